"""The asyncio shell of the sync protocol: moves bytes between a core and a connection, nothing else.

One session is three tasks: one reads and works, one sends, one tells the time.  The reader never waits for the sender,
so two nodes that send to each other at once cannot block each other; the core bounds what the reader can pile up.
Work is done in slices of a few ms with a turn of the loop between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from basefs.errors import BaseFSError
from basefs.sync.interface import LogState
from basefs.sync.limits import DEFAULT_LIMITS, Limits
from basefs.sync.messages import Refusal, Refuse
from basefs.sync.penalty import PenaltyBox
from basefs.sync.protocol import SyncProtocol
from basefs.sync.result import Counters, Reason, Result
from basefs.sync.schedule import Address
from basefs.sync.states import Role
from basefs.sync.wire import encode

log = logging.getLogger(__name__)

#: Bytes read, and written, at once.
_CHUNK = 64 * 1024
#: Seconds between two ticks: the time-outs are ten times as long at least.
_TICK = 1.0
#: Seconds for the last lines to leave after the end of a session, and for the peer to read why it was refused.
_GRACE = 2.0
#: Bytes of a refused peer that are read and thrown away.  Closing with unread bytes resets the connection, and the
#: peer might never see the reason; reading for ever would be a gift to a flooder.
_LINGER_BYTES = 1024 * 1024

#: Sessions that others may have with us at once.  More: a busy node serves more peers, each more slowly.
MAX_SESSIONS = 16
#: Of these, from one host: enough for several nodes behind one address.
MAX_SESSIONS_PER_HOST = 8
#: Seconds to wait for a connection.
CONNECT_TIMEOUT = 5.0


class _Session:
    """One core and one connection."""

    def __init__(
        self,
        core: SyncProtocol,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        progress: Callable[[Counters], None] | None,
    ) -> None:
        self._core = core
        self._reader = reader
        self._writer = writer
        self._progress = progress
        self._wake = asyncio.Event()  # the sender may have something to do
        self._ended = asyncio.Event()  # the core has a result, or a task failed
        self._failure: Exception | None = None

    async def run(self) -> Result:
        """Run to the end and close the connection.  Raises only what is a bug."""
        tasks = [asyncio.ensure_future(self._guard(part())) for part in (self._receive, self._send, self._tick)]
        receiver, sender, ticker = tasks
        try:
            await self._ended.wait()
            ticker.cancel()
            await asyncio.wait({sender}, timeout=_GRACE)
            if sender.done():  # if it failed, why is still to be told
                self._write_rest()
            if self._core.result and self._core.result.reason is not Reason.COMPLETE:
                with contextlib.suppress(OSError, RuntimeError):
                    self._writer.write_eof()
                await asyncio.wait({receiver}, timeout=_GRACE)
            self._writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(self._writer.wait_closed(), _GRACE)
        finally:
            self._core.abort("this node is stopping")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if self._writer.transport.get_write_buffer_size():
                # The peer does not read, and waiting for it could take for ever.
                self._writer.transport.abort()
            self._write_rest()
            self._writer.close()
        if self._failure is not None and not isinstance(self._failure, BaseFSError):
            raise self._failure
        result = self._core.result
        assert result is not None, "a session ends with a result"
        return result

    async def _guard(self, part: Coroutine[Any, Any, None]) -> None:
        try:
            await part
        except Exception as error:  # the log failed, or a bug: either way the session is over
            self._failure = error
            self._core.abort("internal error")
            self._signal()

    def _write_rest(self) -> None:
        """Once the core has ended, this is at most what was begun and a line that says why."""
        if not self._writer.transport.is_closing():
            self._writer.write(self._core.data_to_send(_CHUNK))

    def _signal(self) -> None:
        self._wake.set()
        if self._core.result is not None:
            self._ended.set()

    async def _receive(self) -> None:
        core = self._core
        while core.result is None:
            try:
                data = await self._reader.read(_CHUNK)
            except OSError:
                data = b""
            if data:
                core.receive_data(data)
            while core.wants_work:
                core.work()
                self._signal()
                if self._progress:
                    self._progress(core.counters)
                await asyncio.sleep(0)
            if not data:
                core.receive_eof()
            self._signal()
        with contextlib.suppress(OSError):
            left = _LINGER_BYTES
            while left > 0 and (data := await self._reader.read(_CHUNK)):
                left -= len(data)

    async def _send(self) -> None:
        core = self._core
        while not core.closed:
            data = core.data_to_send(_CHUNK)
            if data:
                try:
                    self._writer.write(data)
                    await self._writer.drain()
                except OSError:
                    # The peer may have told us why before it closed: the receiver reads that, and then the end.
                    return
                # `drain` returns at once while the transport has room, and a long answer must not hold up the loop.
                await asyncio.sleep(0)
            elif core.wants_send:
                await asyncio.sleep(0)
            else:
                self._wake.clear()
                await self._wake.wait()
        self._signal()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while self._core.result is None:
            self._core.tick(loop.time())
            self._signal()
            await asyncio.sleep(_TICK)


async def sync_with(
    state: LogState,
    host: str,
    port: int,
    *,
    own_port: int = 0,
    limits: Limits = DEFAULT_LIMITS,
    connect_timeout: float = CONNECT_TIMEOUT,
    progress: Callable[[Counters], None] | None = None,
) -> Result:
    """Compare logs with a peer until both are equal.

    `own_port`: where the peer can reach us later, 0 if nowhere.  `progress` is called after each slice of work.  All
    that can go wrong with the peer or the network is in the result (`Result.raise_for_reason` raises it).
    """
    try:
        opening = asyncio.open_connection(host, port, limit=_CHUNK)
        reader, writer = await asyncio.wait_for(opening, connect_timeout)
    except (OSError, asyncio.TimeoutError) as error:
        detail = f"cannot reach {host}:{port}: {str(error) or 'no answer'}"
        return Result(Reason.UNREACHABLE, detail, False, Counters())
    core = SyncProtocol(state, Role.INITIATOR, port=own_port, limits=limits)
    return await _Session(core, reader, writer, progress).run()


class SyncServer:
    """Accepts sessions."""

    def __init__(
        self,
        state: LogState,
        host: str,
        port: int,
        *,
        limits: Limits = DEFAULT_LIMITS,
        max_sessions: int = MAX_SESSIONS,
        max_per_host: int = MAX_SESSIONS_PER_HOST,
        penalties: PenaltyBox | None = None,
        on_result: Callable[[Address, Result], None] | None = None,
    ) -> None:
        """`on_result` gets the peer's host with its sync port (0 if it did not tell) after each session."""
        self._state = state
        self._host = host
        self._port = port
        self._limits = limits
        self._max_sessions = max_sessions
        self._max_per_host = max_per_host
        self._penalties = penalties if penalties is not None else PenaltyBox()
        self._on_result = on_result
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._hosts: Counter[str] = Counter()

    @property
    def port(self) -> int:
        """The port that it listens on (useful if it was given as 0)."""
        return self._port

    @property
    def sessions(self) -> int:
        """How many are running."""
        return self._hosts.total()

    async def start(self) -> None:
        """Listen.  Raises `OSError` if the address is taken."""
        self._server = await asyncio.start_server(self._accept, self._host, self._port, limit=_CHUNK)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and end all sessions."""
        if self._server is None:
            return
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = writer.get_extra_info("peername")
        host = str(peer[0]) if peer else "?"
        try:
            with contextlib.suppress(OSError):
                await self._serve(host, reader, writer)
        except asyncio.CancelledError:
            pass  # only `stop` cancels; a task of the server that ends cancelled would be reported as an error
        except Exception:
            log.exception("a session with %s failed", host)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._penalties.banned(host, asyncio.get_running_loop().time()):
            return await self._turn_away(Refuse(Refusal.BANNED, "come back later"), reader, writer)
        if self._hosts.total() >= self._max_sessions or self._hosts[host] >= self._max_per_host:
            return await self._turn_away(Refuse(Refusal.BUSY, "too many sessions"), reader, writer)
        self._hosts[host] += 1
        try:
            core = SyncProtocol(self._state, Role.RESPONDER, port=self._port, limits=self._limits)
            result = await _Session(core, reader, writer, None).run()
        finally:
            self._hosts[host] -= 1
            self._hosts += Counter()  # drops the hosts without a session
        # Those who never said what they want are as unwelcome as those who said nonsense.
        silent = result.reason is Reason.TIMEOUT and not any(result.peer_identity)
        if result.reason is Reason.RUBBISH or silent:
            self._penalties.punish(host, asyncio.get_running_loop().time())
        if self._on_result:
            self._on_result((host, result.peer_port), result)

    async def _turn_away(self, refuse: Refuse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tell why and close; not even that if there are many to be told."""
        if len(self._tasks) > 4 * self._max_sessions:
            writer.transport.abort()
            return
        writer.write(encode(refuse))
        writer.write_eof()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(_CHUNK), _GRACE)  # its greeting: unread, it would reset the connection
