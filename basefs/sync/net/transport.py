"""Sessions on TCP connections: an asyncio transport moves bytes between a core and a connection, nothing else.

One session is three tasks: one reads and works, one sends, one tells the time.  The reader never waits for the sender,
so two nodes that send to each other at once cannot block each other; the core bounds what the reader can pile up.
Work is done in slices of a few ms with a turn of the loop between them.  Entries, with the blocks next to them, are
given to the log by a worker thread, since that waits for locks and the disk; the blocks of large contents by this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import random
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from basefs.errors import BaseFSError, NoSpace
from basefs.log.interface import Digest, LogState
from basefs.log.room import Room
from basefs.sync.net.connection import CHUNK, ROUND_TRIPS, Connection
from basefs.sync.net.parties import Parties
from basefs.sync.net.peers import Address, Contact, Contacts, Pace, PenaltyBox, Throttle, Traffic
from basefs.sync.net.tls import Credentials, Refused
from basefs.sync.net.uplink import FREE_BYTES, Flow, LinkWidth, Uplink
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.protocol import TICK, Awake, SyncProtocol, Upload
from basefs.sync.session.push import Notice, PushSession
from basefs.sync.session.recent import Recent
from basefs.sync.session.result import Reason, RemotePeer, Result, SessionCounters
from basefs.sync.session.states import Phase, Role
from basefs.sync.wire.limits import DEFAULT_LIMITS, STILL_WAITING, Limits
from basefs.tasks import cancel, is_set_within, within


@dataclass(frozen=True, slots=True)
class SessionTiming:
    """Times that the sessions of a node take, in seconds.

    Attributes:
        tick: between two looks of a session at the time.
        grace: for the last lines to leave after the end of a session, and for the peer to read why it was refused.
        offence_pause: that sessions from an address wait where one of them has broken a rule and proved no key: others
            may share it (NAT, several nodes or users on one machine).
        unmet: of the first and of the longest pause between two calls of an address at which nobody of the filesystem
            has ever answered.  Gossip may name any address; and a member may be out of reach when it is called first.
        lifetime: that a session stands which this node opened: a random time in this range, so that the graph keeps
            changing.
    """

    tick: float = TICK
    grace: float = 2.0
    offence_pause: float = 5.0
    unmet: tuple[float, float] = (5.0, 30.0)
    lifetime: tuple[float, float] = (300.0, 600.0)


DEFAULT_TIMING = SessionTiming()


@dataclass(frozen=True, slots=True)
class SessionContext:
    """One for each node.

    Attributes:
        limits: what it allows each of them.
        timing: how long some of their steps take.
        penalties: the parties that are refused for a while.
        throttle: which of many equal lines are logged.
        pace: how often a party may begin a session.
        parties: which peers count as one, and which come first.
        per_party: sessions that one party may have with this node at once: enough for several nodes at one address.
        traffic: what all sessions have moved, those that are open included.
        uplink: whose turn it is to upload.
        requests: which session brings what.
        contacts: what is known of the peers.
        room: whether the disk of the log takes more; `None`: there is no disk.
        credentials: the key of this node, and whom it lets in; `None`: the filesystem is open.
        is_member: whether a raw public key is a member's by the log of now: sessions end a moment after a revoke.
        proved: the keys that peers have proved where this node called them, by address, the oldest first.
        sessions: those that run, in the order of their beginnings.
        awake: the time by which sessions judge their peers.
        turns: whose turn it is to work, of the sessions that compare: one slice a round of the event loop, so that
            what else the node does waits for one of them and not for all.
        adding: held by the session whose batch is on its way into the log, of the sessions that compare.
        adding_news: the same of those that stand: a peer that sends much does not keep news waiting.
        rng: for all that is left to chance.
    """

    limits: Limits = DEFAULT_LIMITS
    timing: SessionTiming = DEFAULT_TIMING
    penalties: PenaltyBox = field(default_factory=PenaltyBox)
    throttle: Throttle = field(default_factory=Throttle)
    pace: Pace = field(default_factory=Pace)
    parties: Parties = field(default_factory=Parties)
    per_party: int = 8
    traffic: Traffic = field(default_factory=Traffic)
    uplink: Uplink = field(default_factory=Uplink)
    requests: RequestTable = field(default_factory=lambda: RequestTable(random.random))
    contacts: Contacts = field(default_factory=Contacts)
    room: Room | None = None
    credentials: Credentials | None = None
    is_member: Callable[[bytes], bool] = lambda key: True
    proved: Recent[Address, bytes] = field(default_factory=Recent)
    sessions: dict[Session, None] = field(default_factory=dict)
    awake: Awake = field(default_factory=Awake)
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    adding: asyncio.Lock = field(default_factory=asyncio.Lock)
    adding_news: asyncio.Lock = field(default_factory=asyncio.Lock)
    rng: random.Random = field(default_factory=random.Random)

    def is_full(self) -> bool:
        """Whether the log takes nothing at the moment."""
        return self.room is not None and self.room.is_full()

    def ran_out_of_room(self) -> None:
        """Something that came did not fit."""
        if self.room is not None:
            self.room.ran_out(received=True)

    def prove(self, address: Address, key: bytes) -> None:
        """A peer has proved this key where this node called it."""
        self.proved[address] = key

    def is_at(self, address: Address, key: bytes) -> bool:
        """Whether a peer that has proved this key may say that it answers at an address: no other key does."""
        return self.proved.get(address, key) == key

    def contact(self, address: Address) -> Contact:
        """What is known of a peer, with the bytes of the sessions that are open."""
        contact, now = self.contacts.get(address), self.traffic.open_with(address)
        return replace(contact, sent=contact.sent + now.bytes_sent, received=contact.received + now.bytes_received)


log = logging.getLogger(__name__)


class Keeper(Protocol):
    """Decides on sessions that stay open."""

    def may_keep(self, address: Address, key: bytes, role: Role) -> bool:
        """Whether a session with this peer may stand; `key`: the one that it has proved, empty if none.

        `role` is our own side of it.
        """

    def notice(self, session: Session, notice: Notice | None) -> None:
        """Something has happened in a session that stands; `None`: it has ended."""


class Session:
    """One core and one connection.

    Attributes:
        address: the peer's host, and its own sync port as far as that is known.
    """

    def __init__(
        self,
        core: SyncProtocol,
        connection: Connection,
        address: Address,
        shared: SessionContext,
        progress: Callable[[Session], None] | None = None,
        notice: Callable[[Session, Notice | None], None] | None = None,
    ) -> None:
        """`progress` is called after each slice of work, `notice` as `Keeper.notice`."""
        self.address = address
        self._timing = shared.timing
        self._uplink = shared.uplink
        self._width = LinkWidth()
        self._turns = shared.turns
        self._ran_out_of_room = shared.ran_out_of_room
        self._awake = shared.awake
        self._held_at: float | None = None
        self._core = core
        self._notice = notice
        self._traffic = shared.traffic
        self._adding, self._adding_news = shared.adding, shared.adding_news
        self._stands = False
        self._connection = connection
        self._sessions = shared.sessions
        self._credentials = shared.credentials
        self._progress = progress
        self._wake = asyncio.Event()  # the sender may have something to do
        self._ended = asyncio.Event()  # the core has a result, or a task failed
        self._failure: Exception | None = None  # a bug

    async def run(self) -> Result:
        """Run to the end and close the connection.  Raises only what is a bug."""
        self._traffic.began(self)
        self._sessions[self] = None
        trusted = None if self._credentials is None else self._credentials.trusted
        if trusted is not None and self.key not in trusted:
            # A revoke came between the handshake and now.
            self.expel()
        try:
            result = await self._run()
        finally:
            del self._sessions[self]
            self._traffic.ended(self)
        refused = self._connection.refused
        if refused is not None and result.reason is Reason.LOST:
            # TLS knows why.
            result = replace(result, reason=refused.reason, detail=refused.detail, by_peer=refused.by_peer)
        return replace(result, key=self.key)

    async def _run(self) -> Result:
        tasks = [asyncio.ensure_future(self._guard(part)) for part in (self._receive, self._send, self._tick)]
        receiver, sender, ticker = tasks
        try:
            await self._ended.wait()
            ticker.cancel()
            await asyncio.wait({sender}, timeout=self._timing.grace)
            if sender.done():  # if it failed, why is still to be told
                self._write_rest()
            sender.cancel()  # or it would go on behind the end, once it is its turn or the peer reads again
            if self._core.result and self._core.result.reason is not Reason.COMPLETE:
                with contextlib.suppress(OSError, RuntimeError):
                    self._connection.write_eof()
                await asyncio.wait({receiver}, timeout=self._timing.grace)
            await self._connection.close_within(self._timing.grace)
        finally:
            if self._stands and self._notice is not None:
                self._notice(self, None)
            self._uplink.ended(self)
            self._core.end(Reason.FAILURE, "this node is stopping")
            await cancel(tasks)
            if self._connection.unsent:
                # The peer does not read, and waiting for it could take for ever.
                self._connection.abort()
            self._write_rest()
            self._connection.close()
        if self._failure is not None:
            raise self._failure
        result = self._core.result
        assert result is not None, "a session ends with a result"
        return result

    @property
    def stuck(self) -> bool:
        """Whether the peer has not received everything that was sent."""
        return self._connection.outstanding > 0

    @property
    def sent(self) -> int | None:
        """Bytes that the peer was sent; `None` while news for it has not been written yet."""
        push = self._core.push
        return None if push is not None and push.owes else self._core.counters.bytes_sent

    @property
    def acknowledged(self) -> int:
        """Bytes that the peer has received."""
        return max(self._core.counters.bytes_sent - self._connection.outstanding, 0)

    @property
    def key(self) -> bytes:
        """The raw public key that the peer has proved to hold; empty in an open filesystem."""
        return self._connection.peer or b""

    @property
    def role(self) -> Role:
        """Our side of it."""
        return self._core.role

    @property
    def push(self) -> PushSession | None:
        """What goes over the session while it stands; call `wake` when something was done with it."""
        return self._core.push

    @property
    def sends_whole(self) -> bool:
        """Whether the peer gets contents whole: asking for their blocks would take longer."""
        return self._width.is_wide(asyncio.get_running_loop().time()) or self.flow().is_long

    @property
    def greeted(self) -> bool:
        """Whether the peer has told of its log."""
        return self._core.peer.greeted

    @property
    def counters(self) -> SessionCounters:
        """What was moved so far."""
        return self._core.counters

    def end(self, reason: Reason) -> None:
        """See `SyncProtocol.end`."""
        self._core.end(reason)
        self.wake()

    def expel(self) -> None:
        """End it because the peer's key is no member any more: nothing that it sends counts from now on."""
        self.end(Reason.UNKNOWN_KEY)
        # If it does not close it.
        asyncio.get_running_loop().call_later(1.0, self._connection.abort)

    @property
    def phase(self) -> Phase:
        """What the peer sends us."""
        return self._core.phase

    def flow(self) -> Flow:
        """See `Uploader`."""
        return self._connection.flow(self._core.counters.bytes_sent)

    async def _guard(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # Not begun before this task is: one that is cancelled first would leave it behind, never awaited.
        try:
            await part()
        except Exception as error:  # the log failed, or a bug: either way the session is over
            if not isinstance(error, BaseFSError):
                self._failure = error
            if isinstance(error, NoSpace):
                self._ran_out_of_room()
                self._core.end(Reason.FULL)
            else:
                self._core.end(Reason.FAILURE, "internal error")
            self.wake()

    def _write_rest(self) -> None:
        """Once the core has ended, this is at most what was begun and a line that says why."""
        if not self._connection.closing and (data := self._core.data_to_send(CHUNK)):
            self._write(data)

    def _write(self, data: bytes) -> None:
        self._connection.write(data)
        self._core.add_overhead(*self._connection.take_overhead())

    def wake(self) -> None:
        """There is something to send, or something has happened."""
        self._wake.set()
        for notice in self._core.next_events():
            if notice is Notice.STANDS:
                self._stands = True
                self.address = (self.address[0], self._core.peer.port)
            if self._notice is not None:
                self._notice(self, notice)
        if self._core.result is not None:
            self._ended.set()

    async def _receive(self) -> None:
        core = self._core
        while core.result is None:
            # Entries wait for their blocks, to be given to the log with them: the peer may serve others first.
            data = await self._connection.read(1.0 if core.wants_pause else None)
            core.add_overhead(*self._connection.take_overhead())
            core.receive_data(data)
            added = None
            while core.wants_work:
                async with self._my_turn():
                    write = core.work(added)
                    self.wake()
                    if self._progress:
                        self._progress(self)
                    await asyncio.sleep(0)
                added = None
                if write is not None:
                    # One after the other: they would only wait for the log's lock, and for the interpreter's.
                    async with self._adding_news if self._stands else self._adding:
                        added = await asyncio.get_running_loop().run_in_executor(None, write)
            self.wake()
        with contextlib.suppress(OSError):
            # Closing with unread bytes resets the connection, and a refused peer might never see the reason; reading
            # for ever would be a gift to a flooder.
            await self._connection.throw_away(1024 * 1024)

    async def _send(self) -> None:
        core = self._core
        while not core.closed:
            now = asyncio.get_running_loop().time()
            self._width.note(self.acknowledged, now)
            held = self._is_held()
            if core.push is not None and core.push.waits:
                core.push.drain(self._connection.outstanding, now, whole=self.sends_whole)
            if core.upload is not Upload.NONE and not held:
                async with self._my_turn():
                    data = slice_of_answers(core, asyncio.get_running_loop().time)
                    await asyncio.sleep(0)
            else:
                data = core.data_to_send(CHUNK, hold=held)
            if data:
                try:
                    self._write(data)
                    await self._connection.drain()
                except OSError:
                    # The peer may have told us why before it closed: the receiver reads that, and then the end.
                    return
                await asyncio.sleep(0)  # `drain` returns at once while the transport has room
            elif core.wants_send and not held:
                await asyncio.sleep(0)
            else:
                self._wake.clear()
                # It may be this session's turn by then.
                await is_set_within(self._wake, 0.02 if held or core.wants_time else None)
        self.wake()

    def _my_turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Until it is this session's turn to work.  A push session does not wait for sessions that compare."""
        return contextlib.nullcontext() if self._stands else self._turns

    def _is_held(self) -> bool:
        """Whether others upload first."""
        core = self._core
        if core.upload is Upload.NONE or core.counters.bytes_sent < FREE_BYTES:
            return False
        now = asyncio.get_running_loop().time()
        if self._stands:
            # An honest peer asks for little at once, so that all have their share.
            return not self.sends_whole and self.flow().outstanding >= 4096
        if self._uplink.admits(self, now, large=core.upload is Upload.LARGE, party=core.peer.party):
            self._held_at = None
            return False
        if self._held_at is None or self._uplink.is_turn_of(self):
            self._held_at = now
        elif now - self._held_at >= 0.1:
            self._held_at = now + STILL_WAITING
            core.postpone()
        return True

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while self._core.result is None:
            self._core.tick(self._awake.time(loop.time()), self._connection.outstanding)
            self.wake()
            # Shorter would end sessions that stand on links that lose half of all packets, longer would leave news in a
            # connection that tries ever less often.
            self._connection.persist(15.0 if self._stands else DEFAULT_LIMITS.stall_timeout)
            await asyncio.sleep(self._timing.tick)


#: Seconds of making answers after which everything else in the event loop has its turn.  Longer: news waits for as
#: long at each of its steps; shorter: the turns cost more than the answers.
SLICE = 0.002


def slice_of_answers(core: SyncProtocol, now: Callable[[], float]) -> bytes:
    """What a session has to send while its peer waits for answers, as far as it can be made in `SLICE`.

    64 KiB of answers are up to 300 entries with their blocks, 20 ms.  An answer that waits for another session of this
    node ends the slice: what it waits for does not come while this one works.
    """
    end = now() + SLICE
    data = b""
    while True:
        data += core.data_to_send(CHUNK // 8)
        if len(data) >= CHUNK or core.upload not in (Upload.SMALL, Upload.LARGE) or now() >= end:
            return data


def patience(round_trip: float = 0.0) -> float:
    """Seconds to wait for a connection where other peers' `round_trip` takes so many."""
    # A node has few places for the sessions that it opens, and one bad link makes them all wait.
    return max(5.0, min(ROUND_TRIPS * round_trip, 20.0))


def hang_up(session: Session) -> None:
    """A `progress` that ends a session as soon as the peer has told of its log."""
    if session.greeted:
        session.end(Reason.ENOUGH)


async def sync_with(
    state: LogState,
    host: str,
    port: int,
    *,
    own_port: int = 0,
    connect_timeout: float = patience(),
    progress: Callable[[Session], None] | None = None,
    keeper: Keeper | None = None,
    shared: SessionContext | None = None,
) -> Result:
    """Compare logs with a peer until both are equal.

    `own_port`: where the peer can reach us later, 0 if nowhere.  `progress` is called after each slice of work.
    `keeper`: who may keep the session open for news; then this returns when it ends.  `shared`: with the other
    sessions of this node.  All that can go wrong with the peer or the network is in the result
    (`Result.raise_for_reason` raises it).
    """
    shared = shared or SessionContext()
    try:
        opening = Connection.open(host, port, shared.credentials)
        connection = await within(connect_timeout, opening, Connection.abort)
    except (OSError, asyncio.TimeoutError) as error:
        detail = f"cannot reach {host}:{port} ({_why(error)}): {_question(error)}"
        return Result(Reason.UNREACHABLE, detail, False, SessionCounters())
    except Refused as refused:
        return Result(refused.reason, refused.detail, False, SessionCounters(), by_peer=refused.by_peer)
    asked_at = asyncio.get_running_loop().time()
    if connection.peer:
        shared.prove((host, port), connection.peer)
    core = core_of(state, Role.INITIATOR, host, connection.peer or b"", own_port, keeper, shared, asked_at)
    notice = None if keeper is None else keeper.notice
    return await Session(core, connection, (host, port), shared, progress, notice).run()


def core_of(
    state: LogState,
    role: Role,
    host: str,
    key: bytes,
    port: int,
    keeper: Keeper | None,
    shared: SessionContext,
    asked_at: float | None = None,
) -> SyncProtocol:
    """The core of a session with the peer at `host`, which has proved `key`; `port` is our own sync port, 0 if nowhere.

    What the peer tells of its log is noted among the contacts of this node; `asked_at`: see `Contacts.told`.  A peer
    chooses the port that it tells, so it is not believed where another key answers.
    """

    def stay(peer: int) -> bool:
        return keeper is not None and shared.is_at((host, peer), key) and keeper.may_keep((host, peer), key, role)

    def tells(peer: int, log: Digest) -> None:
        if shared.is_at((host, peer), key):
            shared.contacts.told((host, peer), log, state.digest(), asyncio.get_running_loop().time(), asked_at)

    def has_room(peer: int, has_room: bool) -> None:
        if shared.is_at((host, peer), key):
            shared.contacts.has_room((host, peer), has_room, asyncio.get_running_loop().time())

    remote = RemotePeer(host, shared.parties.sharing(host, key), tells, has_room, lambda: shared.is_member(key))
    limits, requests = shared.limits, shared.requests
    return SyncProtocol(
        state, role, port=port, limits=limits, stay=stay, full=shared.is_full, requests=requests, peer=remote
    )


def _question(error: Exception) -> str:
    """What to look at after a failed connection."""
    if isinstance(error, socket.gaierror):
        return "is the name right, and a name server reachable?"
    match getattr(error, "errno", None):
        case errno.EHOSTUNREACH | errno.EHOSTDOWN:
            return "is the address right, and that machine on?"
        case errno.ENETUNREACH | errno.ENETDOWN:
            return "has this machine a network, and a route there in 'ip route'?"
        case _:
            return "is a filesystem running there, and the port open?"


def _why(error: Exception) -> str:
    """The reason of a failed connection, without what asyncio adds to it."""
    number = getattr(error, "errno", None)
    if number is not None and number > 0:
        return os.strerror(number)
    # Those of names have numbers of their own, and a text.
    return getattr(error, "strerror", None) or str(error) or "no answer"
