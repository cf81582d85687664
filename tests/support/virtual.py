"""Whole nodes in virtual time: an event loop whose clock jumps to what is due next, and a network in memory.

Links between hosts can be cut: bytes wait until the link is back, as TCP would have it, and connections are not made.
Worker threads of the loop are played in its own, so one seed is one run.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

#: The host on which code runs.
HOST: contextvars.ContextVar[str] = contextvars.ContextVar("host")
#: Seconds on the way.
LATENCY = 0.01
#: Bytes on their way beyond which a writer waits.
_WINDOW = 64 * 1024


class _Selector(selectors.DefaultSelector):
    """Looks without waiting; instead of that, time passes."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing is due any more"
            self.loop.now += timeout
        return ready


class _NoSocket:
    """What sessions ask of a socket that is none."""

    def fileno(self) -> int:
        raise OSError("no socket")

    def getsockopt(self, *arguments: int) -> bytes:
        raise OSError("no socket")

    def setsockopt(self, *arguments: int) -> None:
        raise OSError("no socket")


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop and the network.

    Attributes:
        now: seconds.
        cuts: pairs of hosts between which nothing passes.
    """

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 1000.0
        self.cuts: set[frozenset[str]] = set()
        self._servers: dict[tuple[str, int], tuple[Callable[[], Any], contextvars.Context]] = {}
        self._open: set[_Transport] = set()
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Any, *arguments: Any) -> Any:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        self._servers[host, port] = factory, contextvars.copy_context()

        async def nothing() -> None:
            pass

        return SimpleNamespace(
            sockets=[SimpleNamespace(getsockname=lambda: (host, port))],
            close=lambda: self._servers.pop((host, port), None),
            wait_closed=nothing,
        )

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        here = HOST.get()
        await asyncio.sleep(2 * LATENCY)
        while self.is_cut(here, host):
            await asyncio.sleep(0.2)
        if (host, port) not in self._servers:
            raise ConnectionRefusedError(111, "Connection refused")
        make, context = self._servers[host, port]
        ours, theirs = _Transport(self, here, host), _Transport(self, host, here)
        ours.peer, theirs.peer = theirs, ours
        theirs.protocol = context.run(make)
        self.call_soon(theirs.protocol.connection_made, theirs, context=context.copy())
        ours.protocol = factory()
        ours.protocol.connection_made(ours)
        return ours, ours.protocol

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing passes between two hosts."""
        return frozenset((one, other)) in self.cuts

    def kill(self, host: str) -> None:
        """All connections of a host end."""
        for transport in [each for each in self._open if host in (each.host, each.to)]:
            transport.abort()


class _Transport(asyncio.Transport):
    """One side of a connection."""

    peer: _Transport
    protocol: Any

    def __init__(self, loop: VirtualLoop, host: str, to: str) -> None:
        super().__init__({"peername": (to, 0), "socket": _NoSocket()})
        self._loop = loop
        self.host, self.to = host, to
        self._queue: deque[bytes | None] = deque()
        self._waiting = 0
        self._sends = self._paused = self._closing = self._lost = False
        self._kept: deque[bytes | None] = deque()
        loop._open.add(self)

    def write(self, data: Any) -> None:
        if not self._closing and data:
            self._put(bytes(data))

    def write_eof(self) -> None:
        self._put(None)

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._put(None)
            self._closing = True
            self._loop.call_later(LATENCY, self._lose)

    def abort(self) -> None:
        self._closing = True
        self._queue.clear()
        self._loop.call_soon(self._lose)
        if not self._loop.is_cut(self.host, self.to):
            self._loop.call_soon(self.peer._lose)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        while self._kept and not self._paused:
            self._give(self._kept.popleft())

    def _put(self, data: bytes | None) -> None:
        was_full = self._waiting > _WINDOW
        self._queue.append(data)
        self._waiting += len(data or b"")
        if self._waiting > _WINDOW and not was_full:
            self.protocol.pause_writing()
        if not self._sends:
            self._sends = True
            self._loop.call_later(LATENCY, self._deliver)

    def _deliver(self) -> None:
        if self._lost:
            return
        if self._loop.is_cut(self.host, self.to):
            self._loop.call_later(0.2, self._deliver)
            return
        self._sends = False
        full = self._waiting > _WINDOW
        while self._queue:
            data = self._queue.popleft()
            self._waiting -= len(data or b"")
            self.peer._receive(data)
        if full:
            self.protocol.resume_writing()

    def _receive(self, data: bytes | None) -> None:
        if self._paused:
            self._kept.append(data)
        else:
            self._give(data)

    def _give(self, data: bytes | None) -> None:
        if self._lost:
            return
        if data is None:
            self.protocol.eof_received()
        else:
            self.protocol.data_received(data)

    def _lose(self) -> None:
        if not self._lost:
            if self._queue and self._loop.is_cut(self.host, self.to):
                self._loop.call_later(0.2, self._lose)
                return
            self._deliver()
            self._lost = self._closing = True
            self._loop._open.discard(self)
            self.protocol.connection_lost(None)
