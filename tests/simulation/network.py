"""TCP in memory: links with delay, loss and width that can be cut in one direction, and connections over them.

As in TCP nothing is lost or changes its order: what a link loses comes later, and what it does not carry waits until it
does, or until the connection ends because nothing was acknowledged for `TCP_USER_TIMEOUT`.  The "socket" of a transport
answers for the round trip as Linux does, and what was not acknowledged counts as the transport's buffer.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
import socket
import struct
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.simulation.loop import PROCESS, Loop, Process, Trace

#: Seconds after which the kernel sends again what was not acknowledged (`retry_after` of the connection), and after
#: which it gives up by itself.
RETRY = 1.0
GIVE_UP = 900.0
#: Bytes on their way beyond which a writer waits, and that a host keeps for a reader who does not read.
WINDOW = 128 * 1024
#: Bytes that a node may hold for a peer which does not read: beyond the window no more than what was begun.
MAX_OUTSTANDING = WINDOW + 128 * 1024
#: Seconds between two looks whether anything was acknowledged.
_LOOK = 5.0
#: The option of linux/tcp.h, and the places of the round trips in `struct tcp_info`.
_USER_TIMEOUT = 18
_RTT, _MIN_RTT = 68, 148


@dataclass(slots=True)
class Link:
    """One direction between two hosts.

    Attributes:
        latency, jitter: seconds on the way, and of what comes on top by chance, at the most.
        loss: share of what has to be sent again.
        width: bytes a second.
        extra: seconds on top while it is clogged.
        down: causes for which nothing passes.
        busy: until when what was sent before leaves.
        packets, carried: what was sent, and its bytes with the headers of IP and TCP.
    """

    latency: float
    jitter: float
    loss: float = 0.0
    width: float = float("inf")
    extra: float = 0.0
    down: int = 0
    busy: float = 0.0
    packets: int = 0
    carried: int = 0

    def arrival(self, now: float, size: int, rng: random.Random) -> float:
        """When something arrives that is sent now; `size`: bytes of the packet."""
        self.packets += 1
        self.carried += size
        self.busy = max(self.busy, now) + size / self.width
        delay = self.latency + self.extra + rng.random() * self.jitter
        wait = 0.2
        while self.loss and rng.random() < self.loss:
            delay += wait
            wait = min(2 * wait, RETRY)
        return self.busy + delay


class Network:
    """Hosts, the links between them, and what listens and is connected.

    Attributes:
        links: those that were used so far, by both hosts.
    """

    def __init__(
        self,
        loop: Loop,
        seed: int,
        trace: Trace,
        make_link: Callable[[str, str], Link],
        rng: random.Random | None = None,
    ) -> None:
        """`rng`: of all connections; by default each has one of its own, whatever happens on others."""
        loop.network = self
        self._rng = rng
        self.loop = loop
        self.trace = trace
        self._seed = seed
        self._make_link = make_link
        self.links: dict[tuple[str, str], Link] = {}
        self._servers: dict[tuple[str, int], tuple[Callable[[], Any], contextvars.Context, Process]] = {}
        self._open: dict[Transport, None] = {}
        self._connections = 0
        #: Hosts without power.
        self.off: set[str] = set()
        #: Connections that hold more than they may.
        self.found: list[str] = []
        #: Whether the bytes of connections are by chance, as those of TLS are, so that traces leave them out.
        self.is_encrypted = False

    def link(self, here: str, there: str) -> Link:
        """The link in this direction."""
        if (here, there) not in self.links:
            self.links[here, there] = self._make_link(here, there)
        return self.links[here, there]

    @property
    def open_connections(self) -> list[str]:
        """What is connected, as "host to host"."""
        return [f"{each.process.host} to {each.to}" for each in self._open]

    def passes(self, here: str, there: str) -> bool:
        """Whether what is sent arrives now."""
        return not self.link(here, there).down and here not in self.off and there not in self.off

    def listen(self, factory: Any, host: str, port: int) -> Any:
        """A server of the process that calls."""
        process = PROCESS.get()
        self._servers[host, port] = factory, contextvars.copy_context(), process

        def close() -> None:
            if (found := self._servers.get((host, port))) is not None and found[2] is process:
                del self._servers[host, port]

        async def nothing() -> None:
            pass

        sockets = [SimpleNamespace(getsockname=lambda: (host, port), fileno=lambda: -1)]
        return SimpleNamespace(sockets=sockets, close=close, wait_closed=nothing)

    async def connect(self, factory: Any, host: str, port: int) -> Any:
        """A connection of the process that calls; it waits for an answer until the caller gives up."""
        process = PROCESS.get()
        self._connections += 1
        rng = self._rng or random.Random(f"{self._seed} {self._connections}")
        await self._cross(process, process.host, host, rng)
        server = self._servers.get((host, port))
        if server is None:
            await self._cross(process, host, process.host, rng)
            self.trace(f"{process.host} {host}", "refused")
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        make, context, other = server
        number = self._connections
        theirs = Transport(self, other, process.host, rng, f"{number}b")
        ours = Transport(self, process, host, rng, f"{number}a")
        ours.peer, theirs.peer = theirs, ours
        theirs.protocol = context.copy().run(make)
        self.loop.call_soon(theirs.protocol.connection_made, theirs, context=context.copy())
        try:
            await self._cross(process, host, process.host, rng)
        except BaseException:
            ours.abort()
            raise
        self.trace(f"{process.host} {host}", f"connected {number}")
        ours.protocol = factory()
        ours.protocol.connection_made(ours)
        ours.begin()
        return ours, ours.protocol

    async def _cross(self, process: Process, here: str, there: str, rng: random.Random) -> None:
        while True:
            now = self.loop.time()
            await asyncio.sleep(self.link(here, there).arrival(now, 60, rng) - now)
            if not process.alive:
                raise OSError(errno.ENETDOWN, "killed")
            if self.passes(here, there):
                return
            await asyncio.sleep(RETRY)

    def kill(self, process: Process) -> None:
        """End a process: it reaches nobody any more; the kernel resets its connections unless it is off as well."""
        process.alive = False
        self._servers = {at: server for at, server in self._servers.items() if server[2] is not process}
        for transport in [each for each in self._open if each.process is process]:
            transport.die()


class _Socket:
    """What sessions ask of the kernel."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def fileno(self) -> int:
        raise OSError("no socket")

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        info = bytearray(size)
        for place, seconds in ((_RTT, self._transport.round_trip), (_MIN_RTT, self._transport.shortest)):
            struct.pack_into("=I", info, place, min(int(seconds * 1e6), 0xFFFFFFFF))
        return bytes(info)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if (level, option) == (socket.IPPROTO_TCP, _USER_TIMEOUT):
            self._transport.user_timeout = value / 1000


_FIN, _RST = object(), object()


class Transport(asyncio.Transport):
    """One side of a connection.

    Attributes:
        process: whose it is.
        to: the host of its peer.
        user_timeout: seconds without an acknowledgement after which it ends.
        round_trip, shortest: seconds, 0 before the first.
    """

    peer: Transport
    protocol: Any

    def __init__(self, network: Network, process: Process, to: str, rng: random.Random, name: str) -> None:
        super().__init__({"peername": (to, 0), "socket": _Socket(self)})
        self.process = process
        self.user_timeout = GIVE_UP
        self.round_trip = self.shortest = 0.0
        self._network, self._loop, self._rng, self._name = network, network.loop, rng, name
        self.to = to
        #: Of what was sent: bytes, those that the peer acknowledged, the time of the last acknowledgement, and when
        #: what was sent last arrives.
        self._sent = self._acknowledged = 0
        self._moved_at = self._last = 0.0
        self._watched = self._full = self._ended = self._closing = self._lost = False
        #: What has arrived and was not carried, or not read; bytes that have come.
        self._stalled: deque[Any] = deque()
        self._kept: deque[Any] = deque()
        self._kept_bytes = self._came = 0
        self._paused = True
        self._acknowledging = False
        network._open[self] = None
        if name.endswith("b"):
            self._paused = False

    # Asyncio's side

    def write(self, data: Any) -> None:
        if self._closing or self._ended or not data:
            return
        if self._sent == self._acknowledged:
            self._moved_at = self._loop.time()
        self._sent += len(data)
        self._send(bytes(data))
        if self._sent - self._acknowledged > MAX_OUTSTANDING and not self.process.hostile:
            self._network.found.append(f"{self.process.host} holds {self._sent - self._acknowledged} B for {self.to}")
        if self._sent - self._acknowledged > WINDOW and not self._full:
            self._full = True
            self.protocol.pause_writing()
        if not self._watched:
            self._watched = True
            self._loop.call_later(min(self.user_timeout, _LOOK), self._watch)

    def write_eof(self) -> None:
        if not self._ended and not self._closing:
            self._ended = True
            self._send(_FIN)

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        """What is not acknowledged; behind the end it is the kernel's."""
        return 0 if self._closing else self._sent - self._acknowledged

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self.write_eof()
            self._lose(None)

    def abort(self) -> None:
        if not self._closing or not self._ended:
            self._send(_RST)
            self._lose(None)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        while self._kept and not self._paused and not self._lost:
            item = self._kept.popleft()
            if isinstance(item, bytes):
                was_full = self._kept_bytes > WINDOW
                self._kept_bytes -= len(item)
                if was_full:
                    self._count(len(item))
            self._give(item)

    def begin(self) -> None:
        """The connection stands: read what has come before that was known here."""
        self.resume_reading()

    # The network's side

    def die(self) -> None:
        """The process was killed."""
        if not self._lost:
            self._send(_RST)
            self._lose(ConnectionResetError(errno.ECONNRESET, "killed"))

    def _lose(self, error: Exception | None) -> None:
        self._closing = True
        if not self._lost:
            self._lost = True
            self._network._open.pop(self, None)
            if hasattr(self, "protocol"):
                self._loop.call_soon(self.protocol.connection_lost, error)

    def _send(self, item: Any) -> None:
        size = len(item) if isinstance(item, bytes) else 0
        link = self._network.link(self.process.host, self.to)
        # Timers of the same moment have no order.
        at = max(self._last + 1e-9, link.arrival(self._loop.time(), size + 40, self._rng))
        self._last = at
        self._loop.call_at(at, self.peer._arrive, item, self._loop.time())

    def _arrive(self, item: Any, sent_at: float) -> None:
        if self._stalled:
            self._stalled.append((item, sent_at))
        elif not self._network.passes(self.to, self.process.host):
            self._stalled.append((item, sent_at))
            self._loop.call_later(RETRY, self._try_again)
        else:
            self._receive(item, sent_at)

    def _try_again(self) -> None:
        if self._network.passes(self.to, self.process.host):
            while self._stalled:
                self._receive(*self._stalled.popleft())
        else:
            self._loop.call_later(RETRY, self._try_again)

    def _receive(self, item: Any, sent_at: float) -> None:
        if self._lost:
            if isinstance(item, bytes) and not self.peer._lost:
                # Nobody reads it any more.
                self._send(_RST)
            return
        if item is _RST:
            self._network.trace(f"{self.to} {self.process.host}", f"{self._name} reset")
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            return
        if isinstance(item, bytes):
            shown = "" if self._network.is_encrypted else f" {zlib.crc32(item):08x}"
            self._network.trace(f"{self.to} {self.process.host}", f"{self._name} {len(item)}{shown}")
            self.peer._trip(2 * (self._loop.time() - sent_at))
            if self._kept_bytes <= WINDOW:
                self._count(len(item))
        if self._paused or self._kept:
            self._kept.append(item)
            self._kept_bytes += len(item) if isinstance(item, bytes) else 0
        else:
            self._give(item)

    def _trip(self, seconds: float) -> None:
        self.round_trip = 0.875 * (self.round_trip or seconds) + 0.125 * seconds
        self.shortest = min(self.shortest or seconds, seconds)

    def _give(self, item: Any) -> None:
        if self._lost:
            return
        if item is _FIN:
            self.protocol.eof_received()
        else:
            self.protocol.data_received(item)

    def _count(self, size: int) -> None:
        """Bytes have come, which the peer will know."""
        self._came += size
        if not self._acknowledging:
            self._acknowledging = True
            link = self._network.link(self.process.host, self.to)
            self._loop.call_at(link.arrival(self._loop.time(), 40, self._rng), self._acknowledge, self._came)

    def _acknowledge(self, came: int) -> None:
        if not self._network.passes(self.process.host, self.to):
            self._loop.call_later(RETRY, self._acknowledge, self._came)
            return
        self._acknowledging = False
        self.peer._acknowledged_to(came)
        if came < self._came:
            self._count(0)

    def _acknowledged_to(self, came: int) -> None:
        self._acknowledged = came
        self._moved_at = self._loop.time()
        if self._full and self._sent - came <= WINDOW // 2:
            self._full = False
            if not self._lost:
                self.protocol.resume_writing()

    def _watch(self) -> None:
        """End a connection on which nothing is acknowledged."""
        self._watched = False
        if self._lost or self._sent == self._acknowledged:
            return
        due = self._moved_at + self.user_timeout
        if due <= self._loop.time():
            self._network.trace(f"{self.process.host} {self.to}", f"{self._name} timed out")
            self._send(_RST)
            self._lose(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        else:
            self._watched = True
            self._loop.call_at(min(due, self._loop.time() + _LOOK), self._watch)
