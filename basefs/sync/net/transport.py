"""The asyncio shell of the sync protocol: moves bytes between a core and a connection, nothing else.

One session is three tasks: one reads and works, one sends, one tells the time.  The reader never waits for the sender,
so two nodes that send to each other at once cannot block each other; the core bounds what the reader can pile up.
Work is done in slices of a few ms with a turn of the loop between them.  Entries, with the blocks next to them, are
given to the log by a worker thread, since that waits for locks and the disk; the blocks of large contents by this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from basefs.errors import BaseFSError
from basefs.sync.net.connection import CHUNK, flow, outstanding, persist, read_some, throw_away
from basefs.sync.net.schedule import Address
from basefs.sync.net.shared import Shared
from basefs.sync.net.uplink import FREE_BYTES, Flow
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.result import Counters, Reason, Result
from basefs.sync.session.slices import slice_of_answers
from basefs.sync.session.standing import Standing
from basefs.sync.session.states import Phase, Role
from basefs.sync.session.timers import TICK
from basefs.sync.wire.limits import DEFAULT_LIMITS, STILL_WAITING

log = logging.getLogger(__name__)

#: Seconds for the last lines to leave after the end of a session, and for the peer to read why it was refused.
GRACE = 2.0
#: Bytes of a refused peer that are read and thrown away.  Closing with unread bytes resets the connection, and the
#: peer might never see the reason; reading for ever would be a gift to a flooder.
_LINGER_BYTES = 1024 * 1024
#: Seconds for which entries wait for their blocks, to be given to the log with them: the peer may serve others first.
_PATIENCE = 1.0
#: Seconds between two looks whether it is this session's turn to upload, or to ask.
_LOOK_AGAIN = 0.02
#: Seconds until a peer is told that its turn comes later.
_TELL_TO_WAIT = 0.1
#: Seconds without an acknowledgement after which the peer of a standing session counts as cut off.  Shorter would end
#: sessions on links that lose half of all packets, longer would leave news in a connection that tries ever less often.
_UNREACHABLE = 15.0


class Keeper(Protocol):
    """Who decides on sessions that stay open."""

    def may_keep(self, address: Address, role: Role) -> bool:
        """Whether a session with this peer may stand; `role` is our own side of it."""

    def began(self, session: Session) -> None:
        """A session stands from now on."""

    def ended(self, session: Session) -> None:
        """A session that stood has ended."""

    def gap(self, session: Session) -> None:
        """The peer of a standing session has something that is not here."""

    def repeats(self, session: Session) -> None:
        """The peer of a standing session has sent what was here already."""


class Session:
    """One core and one connection.

    Attributes:
        address: the peer's host, and its own sync port as far as that is known.
    """

    def __init__(
        self,
        core: SyncProtocol,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        address: Address,
        shared: Shared,
        progress: Callable[[Session], None] | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        """`progress` is called after each slice of work."""
        self.address = address
        self._uplink = shared.uplink
        self._turns = shared.turns
        self._awake = shared.awake
        self._held_at: float | None = None
        self._core = core
        self._keeper = keeper
        self._traffic = shared.traffic
        self._adding, self._adding_news = shared.adding, shared.adding_news
        self._stands = False
        self._reader = reader
        self._writer = writer
        self._progress = progress
        self._wake = asyncio.Event()  # the sender may have something to do
        self._ended = asyncio.Event()  # the core has a result, or a task failed
        self._failure: Exception | None = None

    async def run(self) -> Result:
        """Run to the end and close the connection.  Raises only what is a bug."""
        self._traffic.began(self)
        try:
            return await self._run()
        finally:
            self._traffic.ended(self)

    async def _run(self) -> Result:
        tasks = [asyncio.ensure_future(self._guard(part())) for part in (self._receive, self._send, self._tick)]
        receiver, sender, ticker = tasks
        try:
            await self._ended.wait()
            ticker.cancel()
            await asyncio.wait({sender}, timeout=GRACE)
            if sender.done():  # if it failed, why is still to be told
                self._write_rest()
            sender.cancel()  # or it would go on behind the end, once it is its turn or the peer reads again
            if self._core.result and self._core.result.reason is not Reason.COMPLETE:
                with contextlib.suppress(OSError, RuntimeError):
                    self._writer.write_eof()
                await asyncio.wait({receiver}, timeout=GRACE)
            self._writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(self._writer.wait_closed(), GRACE)
        finally:
            if self._stands and self._keeper is not None:
                self._keeper.ended(self)
            self._uplink.ended(self)
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

    @property
    def stuck(self) -> bool:
        """Whether the peer has not received everything that was sent."""
        return outstanding(self._writer) > 0

    @property
    def role(self) -> Role:
        """Our side of it."""
        return self._core.role

    @property
    def news(self) -> Standing | None:
        """What goes over the session while it stands; call `wake` when something was done with it."""
        return self._core.news

    @property
    def counters(self) -> Counters:
        """What was moved so far."""
        return self._core.counters

    def wake(self) -> None:
        """There is something to send."""
        self._signal()

    def leave(self) -> None:
        """End a standing session in peace."""
        self._core.leave()
        self._signal()

    def abandon(self) -> None:
        """End a session because what it should bring has come from somebody else."""
        self._core.abandon()
        self._signal()

    @property
    def phase(self) -> Phase:
        """What the peer sends us."""
        return self._core.phase

    def flow(self) -> Flow:
        """See `Upload`."""
        return flow(self._writer, self._core.counters.bytes_sent)

    async def _guard(self, part: Coroutine[Any, Any, None]) -> None:
        try:
            await part
        except Exception as error:  # the log failed, or a bug: either way the session is over
            self._failure = error
            self._core.abort("internal error")
            self._signal()

    def _write_rest(self) -> None:
        """Once the core has ended, this is at most what was begun and a line that says why."""
        if not self._writer.transport.is_closing() and (data := self._core.data_to_send(CHUNK)):
            self._writer.write(data)

    def _signal(self) -> None:
        self._wake.set()
        if self._keeper is not None:
            if self._core.standing and not self._stands:
                self._stands = True
                self.address = (self.address[0], self._core.peer.port)
                self._keeper.began(self)
            if self._core.take_gap():
                self._keeper.gap(self)
            if self._core.take_repeats():
                self._keeper.repeats(self)
        if self._core.result is not None:
            self._ended.set()

    async def _receive(self) -> None:
        core = self._core
        while core.result is None:
            data = await read_some(self._reader, _PATIENCE if core.gathers else None)
            core.patient = bool(data)
            if data:
                core.receive_data(data)
            while core.wants_work:
                add = core.offer()
                if add is not None:
                    # One after the other: they would only wait for the log's lock, and for the interpreter's.
                    async with self._adding_news if core.standing else self._adding:
                        result = await asyncio.get_running_loop().run_in_executor(None, add)
                    core.added(result)
                async with self._my_turn():
                    core.work(offers=True)
                    self._signal()
                    if self._progress:
                        self._progress(self)
                    await asyncio.sleep(0)
            if data == b"":
                core.receive_eof()
            self._signal()
        with contextlib.suppress(OSError):
            await throw_away(self._reader, _LINGER_BYTES)

    async def _send(self) -> None:
        core = self._core
        while not core.closed:
            held = self._is_held()
            if core.news is not None and core.news.waits:
                core.news.go_on(outstanding(self._writer), asyncio.get_running_loop().time())
            if core.uploads and not held:
                async with self._my_turn():
                    data = slice_of_answers(core, asyncio.get_running_loop().time)
                    await asyncio.sleep(0)
            else:
                data = core.data_to_send(CHUNK, hold=held)
            if data:
                try:
                    self._writer.write(data)
                    await self._writer.drain()
                except OSError:
                    # The peer may have told us why before it closed: the receiver reads that, and then the end.
                    return
                await asyncio.sleep(0)  # `drain` returns at once while the transport has room
            elif core.wants_send and not held:
                await asyncio.sleep(0)
            else:
                self._wake.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), _LOOK_AGAIN if held or core.depends else None)
        self._signal()

    def _my_turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Until it is this session's turn to work.  News does not wait for those who compare."""
        return contextlib.nullcontext() if self._core.standing else self._turns

    def _is_held(self) -> bool:
        """Whether others upload first."""
        core = self._core
        if not core.uploads or core.counters.bytes_sent < FREE_BYTES:
            return False
        now = asyncio.get_running_loop().time()
        if self._uplink.admits(self, now, large=core.uploads_much):
            self._held_at = None
            return False
        if self._held_at is None or self._uplink.is_turn_of(self):
            self._held_at = now
        elif now - self._held_at >= _TELL_TO_WAIT:
            self._held_at = now + STILL_WAITING
            core.let_wait()
        return True

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while self._core.result is None:
            self._core.tick(self._awake.time(loop.time()), outstanding(self._writer))
            self._signal()
            persist(self._writer, _UNREACHABLE if self._stands else DEFAULT_LIMITS.stall_timeout)
            await asyncio.sleep(TICK)
