"""A sync session without I/O: bytes and ticks in, bytes, events and work for the log out.

    feed it:   `receive_data` unless it `wants_work`, `tick` about once a second
    run it:    `work` while `wants_work`: one slice of a few ms; what it returns is given to the log, in any thread
    drain it:  `data_to_send` while `wants_send` and the transport is not full; `next_events` after each call
    until:     `closed`; then `result` tells how it went

Neither reading nor working waits for sending, so two cores whose transports keep to this cannot block each other.  A
rule that the peer breaks ends this session only.  Errors of the log itself (`StoreError`) pass through to the caller.

The two sides agree on the end as `docs/sync-protocol.md` says: the responder tells when it has nothing outstanding, the
initiator decides whether that is the end, another round, or a session that stands.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import ZERO_HASH
from basefs.log.interface import AddResult, Digest, LogState
from basefs.sync.session.compare import Subtree
from basefs.sync.session.exchange import BlockExchange
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.push import Notice, PushSession
from basefs.sync.session.receiver import Receiver
from basefs.sync.session.requests import RequestQueue, wanted
from basefs.sync.session.responder import Responder
from basefs.sync.session.result import REFUSED, Reason, RemotePeer, Result, SessionCounters
from basefs.sync.session.states import Phase, Role, SessionEvent, SessionState, follow
from basefs.sync.wire.codec import ENTRIES, LineBuffer, belongs, encode, parse
from basefs.sync.wire.limits import DEFAULT_LIMITS, STILL_WAITING, VERSION, Limits
from basefs.sync.wire.messages import (
    WHOLE,
    BlockReq,
    Blocks,
    Close,
    Data,
    Entries,
    EntryReq,
    Eof,
    Graft,
    Hash,
    Have,
    Ls,
    Message,
    PathReq,
    Prune,
    Refusal,
    Refuse,
    Root,
    Same,
    Stay,
    Wait,
)

#: The reason that a peer gets which would send something.
NO_ROOM = "the disk there is full"
#: Seconds between two looks of a session at the time: the time-outs are ten times as long at least.
TICK = 1.0


class Awake:
    """A clock that stands still while this node itself does nothing, because its machine is busy or was suspended.

    What a peer has sent meanwhile lies unread, so that time is no delay of the peer's.  All sessions of a node go by
    one: they tell it to what they share.
    """

    def __init__(self, longest: float = 2 * TICK) -> None:
        """`longest`: seconds between two looks that count at the most."""
        self._longest = longest
        self._looked_at: float | None = None
        self._passed = 0.0

    def time(self, now: float) -> float:
        """Seconds since the first look, `now` in seconds of any steady clock."""
        if self._looked_at is not None:
            self._passed += min(now - self._looked_at, self._longest)
        self._looked_at = now
        return self._passed


class Timers:
    """When something last moved, and when something was last gained."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._began: float | None = None
        self._moved_at = 0.0
        self._gained_at = 0.0
        self._gained = 0
        self._moved = False
        self._on_the_way = 0

    def moved(self) -> None:
        """Bytes came in or went out."""
        self._moved = True

    def tick(
        self, now: float, *, greeted: bool, gained: int, standing: bool = False, on_the_way: int = 0
    ) -> str | None:
        """Tell the time (seconds).  Returns what was too late, if anything.

        `greeted`: the peer's first line is complete; `gained`: a counter of what was useful; `standing`: the session
        waits for news, so that nothing may be gained for long.  `on_the_way`: bytes that the peer has not received; as
        long as they become fewer it is at work, for kernels hold some MiB, which a slow machine verifies for minutes.
        """
        if on_the_way < self._on_the_way and not standing:
            self._moved = True
        self._on_the_way = on_the_way
        if self._began is None:
            self._began = self._moved_at = self._gained_at = now
        if self._moved:
            self._moved_at = now
            self._moved = False
        if gained != self._gained:
            self._gained = gained
            self._gained_at = now
        if not greeted and now - self._began > self._limits.greeting_timeout:
            return f"no greeting in {self._limits.greeting_timeout:g} s"
        if now - self._moved_at > self._limits.idle_timeout:
            return f"nothing moved for {self._limits.idle_timeout:g} s"
        if not standing and now - self._gained_at > self._limits.stall_timeout:
            return f"nothing gained for {self._limits.stall_timeout:g} s"
        return None


class _Since:
    """How much a counter has grown since another one did."""

    def __init__(self) -> None:
        self._other = 0
        self._began = 0

    def grown(self, counter: int, other: int) -> int:
        if other != self._other:
            self._other = other
            self._began = counter
        return counter - self._began


class Progress:
    """What was received since something was last gained.

    Others may have been quicker: an answer that was asked for is on its way whatever they bring, and its sender cannot
    know.  So what comes in vain is no offence where others have brought half as much since the session began.
    """

    def __init__(self, limits: Limits, requests: RequestTable) -> None:
        """`requests`: of all sessions of this node."""
        self._limits = limits
        self._requests = requests
        self._before = (requests.accepted, requests.accepted_bytes)
        self._useless_bytes = _Since()
        self._known = _Since()

    def check(self, counters: SessionCounters) -> tuple[Refusal, Reason, str] | None:
        """Why the session has to end, if it has to: what the peer is told, the reason, and a text."""
        size = self._useless_bytes.grown(counters.bytes_received, counters.gained)
        known = self._known.grown(counters.entries_received, counters.accepted)
        if size > self._limits.useless_bytes:
            others = self._requests.accepted_bytes - self._before[1] - counters.accepted_bytes
            return _judged(f"{self._limits.useless_bytes} bytes and nothing new", overtaken=2 * others >= size)
        if known > self._limits.known:
            others = self._requests.accepted - self._before[0] - counters.accepted
            return _judged(f"{self._limits.known} entries and none of them new", overtaken=2 * others >= known)
        if counters.barren > self._limits.barren:
            return _judged(f"{self._limits.barren} times it had nothing where it had listed something")
        return None


def _judged(text: str, *, overtaken: bool = False) -> tuple[Refusal, Reason, str]:
    return (Refusal.ENOUGH, Reason.ENOUGH, text) if overtaken else (Refusal.USELESS, Reason.USELESS, text)


#: What the peer is told of an end that is neither of both sides nor trouble.
_TOLD = {
    Reason.ENOUGH: (Refusal.ENOUGH, "somebody else was quicker"),
    Reason.FULL: (Refusal.FULL, NO_ROOM),
    Reason.UNKNOWN_KEY: (Refusal.KEY, "your key is no member of this filesystem any more"),
}


class Upload(enum.Enum):
    """What the peer of a session waits for."""

    NONE = "none"
    SMALL = "small"  # the answer to a request
    LARGE = "large"  # a large content
    BLOCKED = "blocked"  # an answer that goes on when another session of this node has brought something


class SyncProtocol:
    """One side of one session.

    Attributes:
        role: which side opened the connection.
        state: where the session stands (`basefs.sync.session.states`).
        counters: what was moved so far.
        peer: what the peer has told of itself.
        result: how it went; `None` while the session is open.
    """

    def __init__(
        self,
        log: LogState,
        role: Role,
        *,
        port: int = 0,
        limits: Limits = DEFAULT_LIMITS,
        stay: Callable[[int], bool] = lambda port: False,
        full: Callable[[], bool] = lambda: False,
        requests: RequestTable | None = None,
        peer: RemotePeer | None = None,
    ) -> None:
        """`port`: our own sync port, told to the peer so that it can come back; 0 if we do not listen.

        `stay`, given the peer's sync port, tells whether the session may stay open once both logs are compared; `full`,
        whether the log takes nothing at the moment.
        `requests` are shared by all sessions of a node.
        """
        requests = RequestTable() if requests is None else requests
        self._requests = requests
        self.role = role
        self.state = SessionState.GREETING
        self.counters = SessionCounters()
        self.peer = peer or RemotePeer()
        self.result: Result | None = None
        self._log = log
        self._port = port
        self._limits = limits
        self._stay = stay
        self._full = full
        self._receiver = Receiver(log, self.counters, limits, requests, self.peer)
        self._responder = Responder(log, self.counters, self._receiver, self.peer.is_member)
        self._queue = RequestQueue(self._responder.write, limits.backlog, self._responder.turn)
        self._events: list[Notice] = []
        self._exchange = BlockExchange(
            requests, self._receiver, lambda have: self._queue.control(encode(have)), self._queue.ask
        )
        self._push = PushSession(
            log, self._queue, self.counters, limits, self._events.append, self._exchange, self.peer.is_member
        )
        self._lines = LineBuffer()
        self._timers = Timers(limits)
        self._progress = Progress(limits, requests)
        #: A line that has to wait until what came before is in the log.
        self._line: bytes | None = None
        #: Whether the last line had entries, and the rest of the answer is still to come: their blocks, as a rule.
        self._half = False
        #: Whether entries may wait for the rest of the answer, to be given to the log with it; whether none will come.
        self._patient = True
        self._eof = False
        self._told_to_wait_at = 0.0
        #: Whether the peer has said that its answer will take a while, and has not sent any data since.
        self._waits = False
        self._roots = (ZERO_HASH, ZERO_HASH)  # ours and the peer's when the round began
        self._close: Close | None = None  # the responder's last
        self._greeted_with = Digest(ZERO_HASH, 0)  # our log when we told it last
        self._is_full = False  # in this round
        if role is Role.INITIATOR:
            self._new_round()
            self._greet()

    # Feeding and draining

    def add_overhead(self, sent: int, received: int) -> None:
        """Count bytes that the connection carried beside those of the session."""
        self.counters.bytes_sent += sent
        self.counters.bytes_received += received

    def receive_data(self, data: bytes | None) -> None:
        """Take received bytes, which `work` looks at.

        b"": the peer will send nothing more; lines that have come may still end the session properly.  `None`: nothing
        has come for a while, so entries wait for their blocks no longer.
        """
        self._patient = bool(data)
        if data:
            self.counters.bytes_received += len(data)
            if self._open:
                self._timers.moved()
                self._requests.moved(self._receiver)
                self._lines.feed(data)
        self._eof = self._eof or data == b""
        self._maybe_lost()

    def work(self, added: AddResult | None = None) -> Callable[[], AddResult] | None:
        """Do one slice of work on what was received.

        Returns what has to be given to the log before the work can go on, if anything: a call for any thread, whose
        result is the argument of the next call.  Meanwhile everything but `work` may be called.
        """
        write = None
        if self._open:
            try:
                if added is not None:
                    self._receiver.added(added)
                write = self._slice()
            except RemoteProtocolError as error:
                self._refuse(Refusal.PROTOCOL, Reason.RUBBISH, str(error))
            self._maybe_lost()
        return write

    def _slice(self) -> Callable[[], AddResult] | None:
        self._judge()
        cost = 0
        # In entries (100 us each): news waits for a slice of somebody else's at each of its steps.
        while cost < 8 and self._open and not self._receiver.pending:
            line = self._next_line()
            if line is None:
                break
            self._handle(parse(line), len(line) + 1)
            # A second such line shows that the first one had no blocks; it does not wait for more.
            self._half = line.startswith(ENTRIES) and not self._half and not self._stands
            # The many short fields of a list cost more.
            cost += 1 + len(line) // (512 if line.startswith(b"LS ") else 8192)
        if self._open and self._receiver.pending:
            return partial(self._log.add, *self._receiver.offer(), peer=self.peer.party)
        self._judge()
        self._maybe_close()
        if self._stands and self._receiver.wanted_parents():
            self._push.miss_parent()
        return None

    def _next_line(self) -> bytes | None:
        """The next line, `None` if there is none, or if entries have to go to the log before it is looked at."""
        line = self._line = self._lines.next_line() if self._line is None else self._line
        if line is None and self._half and self._patient:
            # A transaction for the entries and another one for their blocks cost twice as much as one.
            return None
        if self._receiver.gathered and not belongs(line, more=self._queue.entries_follow):
            self._receiver.seal()
            return None
        self._line = None
        return line

    def _judge(self) -> None:
        """End a session that is of no use; what is on its way into the log is judged when it is there."""
        if (useless := self._progress.check(self.counters) or self._asks_again()) and self._open:
            self._refuse(*useless)

    def _asks_again(self) -> tuple[Refusal, Reason, str] | None:
        """Why the session has to end if the peer asks for what it was sent: an honest one asks for nothing twice."""
        sent = self.counters.entries_sent
        if self._stands or sent <= self._limits.again or sent <= 2 * self._log.digest().entries:
            return None
        return _judged(f"{sent} entries were sent, which is the log more than twice")

    def data_to_send(self, max_bytes: int, *, hold: bool = False) -> bytes:
        """Up to `max_bytes` to be sent; may be empty although `wants_send` is set, call again then.

        `hold`: no answers to the peer's requests, because others are served first.
        """
        data = self._queue.take(max_bytes, answers=not hold)
        if data:
            if not self._stands:  # there, both sides speak now and then, and what is sent need not arrive
                self._timers.moved()
            self.counters.bytes_sent += len(data)
        if self._stands:
            self._push.sent()
        self._maybe_close()
        return data

    def tick(self, now: float, on_the_way: int = 0) -> None:
        """Tell the time, in seconds of any steady clock, and how many bytes that were sent the peer has not received.

        Ends the session if a time-out has passed; what waits here to be looked at has come in time.
        """
        if not self._open:
            return
        self._requests.tick(now)
        if self._queue.held_back and now - self._told_to_wait_at >= STILL_WAITING:
            self._told_to_wait_at = now
            self.postpone()
        greeted, gained = self.wants_work or self.peer.greeted, self.counters.gained
        late = self._timers.tick(now, greeted=greeted, gained=gained, standing=self._stands, on_the_way=on_the_way)
        if late:
            self._refuse(Refusal.TIMEOUT, Reason.TIMEOUT, late)
        elif self._stands:
            self._push.tick(now)
        elif self._receiver.superfluous(self._queue.current):
            self.end(Reason.ENOUGH)

    def end(self, reason: Reason, detail: str = "") -> None:
        """End the session, and tell the peer.

        COMPLETE: in peace, if it stands.  ENOUGH: others have brought what it should bring.  FULL: no room here.
        UNKNOWN_KEY: the peer is no member any more.  FAILURE: trouble of ours.
        """
        if reason is Reason.COMPLETE:
            if self._stands:
                self._follow(SessionEvent.AGREE)
                self._queue.control(encode(Close(0, self._log.digest())))
                self._complete(equal=False)
        elif self._open:
            refusal, text = _TOLD.get(reason, (Refusal.FAILURE, detail))
            self._refuse(refusal, reason, text)

    def postpone(self) -> None:
        """Tell the peer that the answer to its request comes later."""
        if self.state is SessionState.TALKING:
            self._queue.control(encode(Wait()))

    def next_events(self) -> list[Notice]:
        """What has happened in a session that stands since the last call."""
        events = list(dict.fromkeys(self._events))
        self._events.clear()
        return events

    # What it wants and how it is

    @property
    def wants_work(self) -> bool:
        """Whether `work` has something to do."""
        receiver = self._receiver
        received = receiver.pending or (receiver.gathered and not (self._half and self._patient))
        return self._open and (received or self._line is not None or self._lines.ready)

    @property
    def wants_send(self) -> bool:
        """Whether `data_to_send` has something, or something to do."""
        return self._queue.ready

    @property
    def wants_pause(self) -> bool:
        """Whether `receive_data(None)` should follow if nothing comes for a while."""
        return self._receiver.gathered

    @property
    def wants_time(self) -> bool:
        """Whether something to be sent waits for another session, or for the network: look again in a while."""
        return self._queue.held_back or self._queue.dormant or (self._stands and self._push.waits)

    @property
    def closed(self) -> bool:
        """The session is over and everything that was to be sent has been taken."""
        return not self._open and not self._queue.ready

    @property
    def push(self) -> PushSession | None:
        """What goes over the session while it stands."""
        return self._push if self._stands else None

    @property
    def upload(self) -> Upload:
        """What the peer waits for."""
        if not self._queue.answering:
            return Upload.NONE
        if self._queue.dormant:
            return Upload.BLOCKED
        # Blocks are served after others of that kind from 64 KiB on, unless the link is long: while the first peer has
        # them, it serves the others.  Smaller: more peers have to look for somebody else; larger: each of them gets so
        # much from this node first, in each session.
        return Upload.LARGE if self._responder.bytes >= 64 * 1024 else Upload.SMALL

    @property
    def phase(self) -> Phase:
        """What the peer sends us."""
        if self._waits:
            return Phase.WAITING
        return Phase.COMPARING if self._queue.expects_entries else Phase.CONTENTS

    @property
    def _open(self) -> bool:
        return self.state not in (SessionState.DONE, SessionState.FAILED)

    @property
    def _stands(self) -> bool:
        return self.state is SessionState.STANDING

    # Lines

    def _handle(self, message: Message, size: int) -> None:
        """Act on a line.  Raises `RemoteProtocolError`."""
        match message:
            case BlockReq() if self._stands:
                self._follow(SessionEvent.WANT)
                self._queue.answer(self._responder.to(self._exchange.serve(message), self._queue.ask), size)
            case Ls() | PathReq() | EntryReq() | BlockReq():
                self._follow(SessionEvent.REQUEST)
                self._queue.answer(self._responder.to(message, self._queue.ask), size)
            case Entries() | Blocks():
                self._on_data(message)
            case Eof():
                self._on_eof()
            case Wait():
                self._follow(SessionEvent.WAIT)
                self._waits = True
                self._receiver.waits()
            case _:
                self._on_control(message)

    def _on_control(self, message: Message) -> None:
        """A line that begins or ends something, or is told over a session that stands."""
        match message:
            case Hash():
                self._on_hash(message)
            case Same(port):
                self._follow(SessionEvent.SAME)
                self._greeted(Hash(VERSION, self._log.identity, self._greeted_with.entries_alone(), port))
                self._close = Close(0, self._greeted_with)
                # Equal entries do not mean equal contents.
                self._queue.ask(self._ask_blocks())
            case Root(log, kept):
                self._follow(SessionEvent.ROOT)
                self.peer.tells(log)
                self._push.heard_root(log.root, kept)
            case Have():
                self._follow(SessionEvent.HAVE)
                self._exchange.heard(message)
            case Prune():
                self._follow(SessionEvent.PRUNE)
                self._push.pruned()
            case Graft():
                self._follow(SessionEvent.GRAFT)
                self._push.grafted()
            case Close():
                self._on_close(message)
            case Stay():
                self._on_stay()
            case Refuse(refusal, text):
                self._follow(SessionEvent.REFUSE)
                self._finish(REFUSED[refusal], text, by_peer=True)

    def _on_data(self, data: Data) -> None:
        self._follow(SessionEvent.DATA)
        self._waits = False
        request = self._queue.current
        if request is None and not self._stands:
            raise RemoteProtocolError("data that answers no request")
        match data:
            case Entries(encoded):
                if self._stands:
                    self._push.heard(encoded)
                self._receiver.put_entries(encoded)
            case Blocks(blocks):
                self._receiver.put_blocks(blocks, request=request, stands=self._stands)

    def _on_eof(self) -> None:
        self._follow(SessionEvent.EOF)
        answered = self._queue.close_answer()
        self.counters.answer_ended(wanted(answered))
        if self._stands and isinstance(answered, BlockReq):
            self._receiver.finished(answered)
            return
        wanted_blocks = self._receiver.answered(answered)
        self._queue.ask(wanted_blocks)
        if not self._queue.expects_entries:
            self._queue.ask(self._receiver.wanted_parents())

    def _on_hash(self, theirs: Hash) -> None:
        self._follow(SessionEvent.HASH)
        ours = self._log.identity
        newcomer = ours if self.role is Role.INITIATOR else theirs.identity
        if theirs.version != VERSION:
            text = f"this node speaks version {VERSION} of the protocol, not {theirs.version}"
            return self._refuse(Refusal.VERSION, Reason.WRONG_VERSION, text)
        if theirs.identity != ours and newcomer != ZERO_HASH:
            return self._refuse(Refusal.IDENTITY, Reason.WRONG_FILESYSTEM, "this node serves another filesystem")
        self._greeted(theirs)

    def _greeted(self, theirs: Hash) -> None:
        self.peer.greets(theirs)
        log = self._log.digest()
        root, their_root = self._roots = log.root, theirs.log.root
        if self.role is Role.RESPONDER:
            self._new_round()
        self._responder.takes, self._responder.gives = not self._is_full, not theirs.full
        wanted = self._ask_blocks()
        settled = log.same_entries(theirs.log) and theirs.identity == self._log.identity
        if self.role is Role.INITIATOR:
            return self._queue.ask(wanted)
        # Equal entries do not mean equal contents.
        if settled and not (wanted or log.missing or self._is_full):
            self._follow(SessionEvent.SETTLE)
            return self._queue.control(encode(Same(self._port)))
        self._greet()
        # The responder has both hashes first, so the first list is its own: one crossing less than if we had to ask.
        if root != their_root:
            self._queue.ask([Subtree((), WHOLE, their_root)])
        self._queue.ask(wanted)

    def _ask_blocks(self) -> list[BlockReq]:
        """What this log lacks of contents, if it takes it."""
        return [] if self._is_full else self._receiver.ask_blocks()

    def _may_stay(self) -> bool:
        """Whether the session may stand: where one side takes nothing there is no news to send."""
        return self._responder.takes and self._responder.gives and self._stay(self.peer.port)

    def _on_stay(self) -> None:
        self._follow(SessionEvent.STAY)
        if self.role is Role.RESPONDER:
            if not self._may_stay():
                self._follow(SessionEvent.AGREE)
                self._queue.control(encode(Close(self._queue.answered, self._log.digest())))
                return self._complete(equal=False)
            self._follow(SessionEvent.KEEP)
            self._queue.control(encode(Stay()))
        self._push.begin()

    def _on_close(self, close: Close) -> None:
        counts = self.state not in (SessionState.OFFERED, SessionState.STANDING)
        if counts and close.answered > self._queue.asked:
            raise RemoteProtocolError("CLOSE counts more requests than there were")
        if counts and close.answered < self._queue.asked and self.role is Role.RESPONDER:
            raise RemoteProtocolError("CLOSE with something outstanding")
        self._follow(SessionEvent.CLOSE)
        self.peer.tells(close.log)
        if counts and self.role is Role.INITIATOR:
            self._close = close  # `_maybe_close` looks whether it is current
        else:
            self._complete(equal=self._log.root_hash() == close.log.root)

    # Rounds and the end

    def _follow(self, event: SessionEvent) -> None:
        self.state = follow(self.role, self.state, event)

    def _new_round(self) -> None:
        self._is_full = self._full()
        self.counters.rounds += 1
        self._close = None
        for part in (self._queue, self._responder, self._receiver):
            part.new_round()

    def _greet(self) -> None:
        self._greeted_with = self._log.digest()
        self._queue.control(encode(Hash(VERSION, self._log.identity, self._greeted_with, self._port, self._is_full)))

    def _maybe_close(self) -> None:
        """The responder says when it has nothing outstanding; the initiator decides what that means.

        Not only a line that was read can bring this about: a request that has become superfluous does too.
        """
        talking = self.state is SessionState.TALKING and self._queue.idle
        if not talking or self.wants_work:
            return
        close = Close(self._queue.answered, self._log.digest())
        if self.role is Role.RESPONDER:
            self._follow(SessionEvent.SETTLE)
            self._queue.control(encode(close))
        elif self._close is not None and self._close.answered == self._queue.asked:
            self._decide(close, self._close.log.root)

    def _decide(self, close: Close, theirs: bytes) -> None:
        """Nothing is outstanding: another round, a session that stands, or the end."""
        ours = close.log.root
        changed, stays = ours != theirs and self._roots != (ours, theirs), self._may_stay()
        # Where much is written the logs differ after each round: the root hashes that are told find it.
        if changed and self.counters.rounds < (2 if stays else self._limits.rounds):
            self._follow(SessionEvent.AGAIN)
            self._new_round()
            self._greet()
        elif stays:
            self._follow(SessionEvent.OFFER)
            self._queue.control(encode(Stay()))
        else:
            self._follow(SessionEvent.AGREE)
            self._queue.control(encode(close))
            self._complete(equal=ours == theirs)

    def _complete(self, *, equal: bool) -> None:
        self._finish(Reason.COMPLETE, "in step" if equal else "still different", equal=equal)

    def _refuse(self, refusal: Refusal, reason: Reason, text: str) -> None:
        """End the session and tell the peer why."""
        self._queue.drop()
        self._queue.control(encode(Refuse(refusal, text)))
        self._follow(SessionEvent.BROKEN)
        self._finish(reason, text)

    def _maybe_lost(self) -> None:
        if self._eof and self._open and not self.wants_work:
            self._follow(SessionEvent.BROKEN)
            self._finish(Reason.LOST, "the connection ended in the middle of a session")

    def _finish(self, reason: Reason, detail: str, *, equal: bool = False, by_peer: bool = False) -> None:
        peer, stood = self.peer, self._push.began
        self.result = Result(reason, detail, equal, self.counters, peer.identity, peer.port, by_peer, stood)
        self._receiver.close()
        if by_peer:
            self._queue.drop()
