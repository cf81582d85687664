"""The core of a sync session: bytes and ticks in, bytes out.  No I/O, no clock, no randomness (style, habit 1).

    feed it:  `receive_data` while `wants_data`, `receive_eof`, `tick` about once a second
    run it:   `work` while `wants_work`: reads lines, gives entries to the log, a slice of a few ms each
    drain it: `data_to_send` while `wants_send` and the transport is not full
    until:    `closed`; then `result` tells how it went

Neither reading nor working ever waits for sending, so two cores whose shells keep to this cannot block each other.
A broken rule of the peer ends this session only: `_guard` is the one place that turns it into a result.  Errors of the
log itself (`StoreError`) pass through to the shell.
"""

from __future__ import annotations

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import ZERO_HASH
from basefs.sync.answers import Answers
from basefs.sync.compare import Node
from basefs.sync.intake import Intake
from basefs.sync.interface import LogState
from basefs.sync.limits import DEFAULT_LIMITS, MAX_LINE, VERSION, Limits
from basefs.sync.lines import LineBuffer
from basefs.sync.messages import (
    WHOLE,
    BlockReq,
    Blocks,
    BlocksRec,
    Close,
    Entries,
    EntryReq,
    Eof,
    Hash,
    Ls,
    Message,
    PathReq,
    Refusal,
    Refuse,
)
from basefs.sync.outbox import Outbox
from basefs.sync.result import REFUSED, Counters, Reason, Result
from basefs.sync.states import Event, Role, State, follow
from basefs.sync.timers import Progress, Timers
from basefs.sync.wire import encode, parse, with_receiving

#: Received bytes beyond which the shell should let the core work first.
_INBOUND = 4 * MAX_LINE
#: Cost of a slice of `work`, in entries (100 us each): of a line, one and one more for so many bytes.
_SLICE = 32
_BYTES_COST = 8192


class SyncProtocol:
    """One side of one session.

    Attributes:
        role: who opened the connection.
        state: where the session stands (`basefs.sync.states`).
        counters: what was moved so far.
    """

    def __init__(self, log: LogState, role: Role, *, port: int = 0, limits: Limits = DEFAULT_LIMITS) -> None:
        """`port`: our own sync port, told to the peer so that it can come back; 0 if we do not listen."""
        self.role = role
        self.state = State.GREETING
        self.counters = Counters()
        self._log = log
        self._port = port
        self._limits = limits
        self._lines = LineBuffer()
        self._intake = Intake(log, self.counters, limits)
        self._answers = Answers(log, self.counters, self._intake)
        self._outbox = Outbox(self._answers.write, limits.backlog)
        self._timers = Timers(limits)
        self._progress = Progress(limits)
        self._receiving: BlocksRec | None = None
        self._roots = (ZERO_HASH, ZERO_HASH)  # ours and the peer's when the round began
        self._peer: Hash | None = None
        self._close: Close | None = None  # the responder's last
        self._end: tuple[Reason, str, bool, bool] | None = None
        if role is Role.INITIATOR:
            self._begin_round()

    # What the shell does

    def receive_data(self, data: bytes) -> None:
        """Take received bytes; they are looked at by `work`."""
        self.counters.bytes_received += len(data)
        if self._open:
            self._timers.moved()
            self._lines.feed(data)

    def receive_eof(self) -> None:
        """The peer will send nothing more, or the connection is gone."""
        # Lines that have arrived may still end the session properly.
        while self.wants_work:
            self.work()
        self._break(Reason.LOST, "the connection ended in the middle of a session")

    def work(self) -> None:
        """Do one slice of work on what was received."""
        if not self._open:
            return
        try:
            cost = 0
            while cost < _SLICE and self._open:
                if self._intake.pending:
                    cost += self._intake.step()
                    continue
                line = self._lines.next_line()
                if line is None:
                    break
                self._handle(parse(line), len(line) + 1)
                cost += 1 + len(line) // _BYTES_COST
            useless = self._progress.check(self.counters.gained, self.counters.bytes_received)
            if useless and self._open:
                self._refuse(Refusal.USELESS, Reason.USELESS, useless)
            self._maybe_close()
        except RemoteProtocolError as error:
            self._refuse(Refusal.PROTOCOL, Reason.RUBBISH, str(error))

    def data_to_send(self, max_bytes: int) -> bytes:
        """Up to `max_bytes` to be sent; may be empty although `wants_send` is set, call again then."""
        data = self._outbox.take(max_bytes)
        if data:
            self._timers.moved()
            self.counters.bytes_sent += len(data)
        self._maybe_close()
        return data

    def tick(self, now: float) -> None:
        """Tell the time, in seconds of any steady clock.  Ends the session if a time-out has passed."""
        if self._open:
            late = self._timers.tick(now, greeted=self._peer is not None, gained=self.counters.gained)
            if late:
                self._refuse(Refusal.TIMEOUT, Reason.TIMEOUT, late)

    def abort(self, detail: str) -> None:
        """End the session for a reason of our own, and tell the peer."""
        if self._open:
            self._refuse(Refusal.FAILURE, Reason.FAILURE, detail)

    # What the shell asks

    @property
    def wants_data(self) -> bool:
        """Whether `receive_data` should be fed: the session is open and not too much waits for `work`."""
        return self._open and len(self._lines) < _INBOUND and not self._intake.pending

    @property
    def wants_work(self) -> bool:
        """Whether `work` has something to do."""
        return self._open and (self._intake.pending or self._lines.ready)

    @property
    def wants_send(self) -> bool:
        """Whether `data_to_send` has something, or something to do."""
        return self._outbox.ready

    @property
    def closed(self) -> bool:
        """The session is over and everything that was to be sent has been taken."""
        return not self._open and not self._outbox.ready

    @property
    def result(self) -> Result | None:
        """How it went; None while the session is open."""
        if self._end is None:
            return None
        reason, detail, equal, by_peer = self._end
        identity, port = (self._peer.identity, self._peer.port) if self._peer else (ZERO_HASH, 0)
        return Result(reason, detail, equal, self.counters, identity, port, by_peer)

    # Lines

    def _handle(self, message: Message, size: int) -> None:
        """Act on a line.  Raises `RemoteProtocolError`."""
        if self._receiving is not None and not isinstance(message, Ls | Refuse):
            raise RemoteProtocolError("BLOCKS_REC belongs to an LS right behind it")
        match message:
            case Ls() | PathReq() | EntryReq() | BlockReq():
                self._follow(Event.REQUEST)
                if isinstance(message, Ls) and self._receiving is not None:
                    message = with_receiving(message, self._receiving)
                    self._receiving = None
                self._outbox.answer(self._answers.to(message, self._outbox.ask), size)
            case BlocksRec():
                self._follow(Event.BLOCKS_REC)
                self._receiving = message
            case Entries(encoded):
                self._expect_data()
                self._intake.put_entries(encoded)
            case Blocks(blocks):
                self._expect_data()
                self._intake.put_blocks(blocks, streaming=isinstance(self._outbox.current, BlockReq))
            case Eof():
                self._follow(Event.EOF)
                if not isinstance(self._outbox.close_answer(), BlockReq):
                    self._outbox.ask(self._intake.wanted_blocks())
                if not self._outbox.expects_entries:
                    self._outbox.ask(self._intake.wanted_parents())
            case Hash():
                self._on_hash(message)
            case Close():
                self._on_close(message)
            case Refuse(refusal, text):
                self._follow(Event.REFUSE)
                self._finish(REFUSED[refusal], text, by_peer=True)

    def _expect_data(self) -> None:
        self._follow(Event.DATA)
        if self._outbox.current is None:
            raise RemoteProtocolError("data that answers no request")

    def _on_hash(self, theirs: Hash) -> None:
        self._follow(Event.HASH)
        ours = self._log.identity
        newcomer = ours if self.role is Role.INITIATOR else theirs.identity
        if theirs.version != VERSION:
            text = f"this node speaks version {VERSION} of the protocol, not {theirs.version}"
            return self._refuse(Refusal.VERSION, Reason.WRONG_VERSION, text)
        if theirs.identity != ours and newcomer != ZERO_HASH:
            return self._refuse(Refusal.IDENTITY, Reason.WRONG_FILESYSTEM, "this node serves another filesystem")
        self._peer = theirs
        if self.role is Role.RESPONDER:
            self._begin_round()
        self._roots = (self._log.root_hash(), theirs.root)
        # The responder has both hashes first, so the first list is its own: one crossing less than if we had to ask.
        if self.role is Role.RESPONDER and self._roots[0] != theirs.root:
            self._outbox.ask([Node((), WHOLE)])
        self._outbox.ask(self._intake.missing_blocks())

    def _on_close(self, close: Close) -> None:
        self._follow(Event.CLOSE)
        if close.answered > self._outbox.asked:
            raise RemoteProtocolError("CLOSE counts more requests than there were")
        if self.role is Role.INITIATOR:
            self._close = close  # `_maybe_close` looks whether it is current
        elif close.answered < self._outbox.asked:
            raise RemoteProtocolError("CLOSE with something outstanding")
        else:
            self._complete(equal=self._log.root_hash() == close.root)

    # The session

    @property
    def _open(self) -> bool:
        return self.state not in (State.DONE, State.FAILED)

    def _follow(self, event: Event) -> None:
        self.state = follow(self.role, self.state, event)

    def _begin_round(self) -> None:
        self.counters.rounds += 1
        self._close = None
        for part in (self._outbox, self._answers, self._intake):
            part.new_round()
        self._outbox.control(encode(Hash(VERSION, self._log.identity, self._log.root_hash(), self._port)))

    def _maybe_close(self) -> None:
        """The responder says when it has nothing outstanding; the initiator decides what that means.

        Not only a line that was read can bring this about: a request that has become superfluous does too.
        """
        if self.state is not State.TALKING or not self._outbox.idle or self.wants_work or self._receiving is not None:
            return
        ours = self._log.root_hash()
        if self.role is Role.RESPONDER:
            self._follow(Event.SETTLE)
            self._outbox.control(encode(Close(self._outbox.answered, ours)))
        elif self._close is not None and self._close.answered == self._outbox.asked:
            theirs = self._close.root
            changed = ours != theirs and self._roots != (ours, theirs)
            if changed and self.counters.rounds < self._limits.rounds:
                self._follow(Event.AGAIN)
                return self._begin_round()
            self._follow(Event.AGREE)
            self._outbox.control(encode(Close(self._outbox.answered, ours)))
            self._complete(equal=ours == theirs)

    def _complete(self, *, equal: bool) -> None:
        self._finish(Reason.COMPLETE, "in step" if equal else "still different", equal=equal)

    def _refuse(self, refusal: Refusal, reason: Reason, text: str) -> None:
        """End the session and tell the peer why."""
        self._outbox.drop()
        self._outbox.control(encode(Refuse(refusal, text)))
        self._break(reason, text)

    def _break(self, reason: Reason, text: str) -> None:
        if self._open:
            self._follow(Event.BROKEN)
            self._finish(reason, text)

    def _finish(self, reason: Reason, detail: str, *, equal: bool = False, by_peer: bool = False) -> None:
        self._end = (reason, detail, equal, by_peer)
        self._lines.clear()
        if by_peer:
            self._outbox.drop()
