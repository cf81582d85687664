"""The core of a sync session: bytes and ticks in, bytes out.  No I/O, no clock, no randomness (style, habit 1).

    feed it:  `receive_data` while `wants_data`, `receive_eof`, `tick` about once a second
    run it:   `work` while `wants_work`: reads lines, gives entries to the log, a slice of a few ms each; another
              thread may give the log its part: `offer`, `added`
    drain it: `data_to_send` while `wants_send` and the transport is not full
    until:    `closed`; then `result` tells how it went

Neither reading nor working ever waits for sending, so two cores whose shells keep to this cannot block each other.
A broken rule of the peer ends this session only.  Errors of the log itself (`StoreError`) pass through to the shell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from basefs.errors import RemoteProtocolError
from basefs.log.interface import AddResult, LogState
from basefs.sync.session.claims import Claims
from basefs.sync.session.conversation import Conversation
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.standing import Standing
from basefs.sync.session.states import Phase, Role, State
from basefs.sync.session.timers import Progress, Timers
from basefs.sync.wire.codec import encode, parse
from basefs.sync.wire.limits import DEFAULT_LIMITS, LARGE_ANSWER, MAX_LINE, STILL_WAITING, Limits
from basefs.sync.wire.lines import ENTRIES, LineBuffer, belongs
from basefs.sync.wire.messages import Refusal, Wait

#: Received bytes beyond which the shell should let the core work first.
_INBOUND = 4 * MAX_LINE
#: Cost of a slice of `work`, in entries (100 us each): of a line, one and one more for so many bytes.  News waits for a
#: slice of somebody else's at each of its steps.
_SLICE = 8
_BYTES_COST = 8192
#: The same of a line with a list, whose many short fields cost more.
_LIST_COST = 512


class SyncProtocol:
    """One side of one session.

    Attributes:
        counters: what was moved so far.
        peer: what it has told of itself.
        patient: whether entries may wait for the rest of the answer, to be given to the log with it.
    """

    def __init__(
        self,
        log: LogState,
        role: Role,
        *,
        port: int = 0,
        limits: Limits = DEFAULT_LIMITS,
        stay: Callable[[int], bool] = lambda port: False,
        claims: Claims | None = None,
    ) -> None:
        """`port`: our own sync port, told to the peer so that it can come back; 0 if we do not listen.

        `stay`, given the peer's sync port, tells whether the session may stay open once both logs are compared.
        `claims` are shared by all sessions of a node.
        """
        self._log = log
        claims = Claims() if claims is None else claims
        self._talk = Conversation(log, role, port, limits, stay, claims)
        self.counters = self._talk.counters
        self.peer = self._talk.peer
        self.patient = True
        self._lines = LineBuffer()
        self._waited_at = 0.0
        #: A line that has to wait until what came before is in the log.
        self._line: bytes | None = None
        #: Whether the last line had entries, and the rest of the answer is still to come: their blocks, as a rule.
        self._half = False
        self._timers = Timers(limits)
        self._progress = Progress(limits, claims)

    @property
    def role(self) -> Role:
        """Who opened the connection."""
        return self._talk.role

    @property
    def state(self) -> State:
        """Where the session stands (`basefs.sync.session.states`)."""
        return self._talk.state

    # What the shell does

    def receive_data(self, data: bytes) -> None:
        """Take received bytes; they are looked at by `work`."""
        self.counters.bytes_received += len(data)
        if self._talk.open:
            self._timers.moved()
            self._talk.intake.moved()
            self._lines.feed(data)

    def receive_eof(self) -> None:
        """The peer will send nothing more, or the connection is gone."""
        # Lines that have arrived may still end the session properly.
        self.patient = False
        while self.wants_work:
            self.work()
        self._talk.break_off(Reason.LOST, "the connection ended in the middle of a session")

    @property
    def gathers(self) -> bool:
        """Whether entries wait."""
        return self._talk.intake.gathered

    def offer(self) -> Callable[[], AddResult] | None:
        """What the log is to be given next: a call for any thread; hand its result to `added`.  `None`: nothing.

        Meanwhile the session goes on with everything but `work`.
        """
        intake = self._talk.intake
        return partial(self._log.add, *intake.offer()) if self._talk.open and intake.pending else None

    def added(self, result: AddResult) -> None:
        """What `offer` led to."""
        if self._talk.open:
            try:
                self._talk.intake.added(result)
            except RemoteProtocolError as error:
                self._talk.refuse(Refusal.PROTOCOL, Reason.RUBBISH, str(error))

    def work(self, *, offers: bool = False) -> None:
        """Do one slice of work on what was received; `offers`: up to what `offer` has."""
        if not self._talk.open:
            return
        try:
            cost = 0
            while cost < _SLICE and self._talk.open:
                if offers and self._talk.intake.pending:
                    break
                if self._talk.intake.pending:
                    cost += self._talk.intake.step()
                    continue
                line = self._lines.next_line() if self._line is None else self._line
                self._line = line
                if line is None and self._half and self.patient:
                    # A transaction for the entries and another one for their blocks cost twice as much as one.
                    break
                if self._talk.intake.gathered and not belongs(line, more=self._talk.outbox.entries_follow):
                    self._talk.intake.seal()
                    continue
                if line is None:
                    break
                self._line = None
                self._talk.handle(parse(line), len(line) + 1)
                # A second such line shows that the first one had no blocks; it does not wait for more.
                self._half = line.startswith(ENTRIES) and not self._half and not self.standing
                cost += 1 + len(line) // (_LIST_COST if line.startswith(b"LS ") else _BYTES_COST)
            if (useless := self._progress.check(self.counters)) and self._talk.open:
                self._talk.refuse(*useless)
            self._talk.maybe_close(busy=self.wants_work)
            if self.news is not None and not self._talk.intake.pending and self._talk.intake.wanted_parents():
                self.news.miss_parent()
        except RemoteProtocolError as error:
            self._talk.refuse(Refusal.PROTOCOL, Reason.RUBBISH, str(error))

    def data_to_send(self, max_bytes: int, *, hold: bool = False) -> bytes:
        """Up to `max_bytes` to be sent; may be empty although `wants_send` is set, call again then.

        `hold`: no answers to the peer's requests, because others are served first.
        """
        data = self._talk.outbox.take(max_bytes, answers=not hold)
        if data:
            if not self.standing:  # there, both sides speak now and then, and what is sent need not arrive
                self._timers.moved()
            self.counters.bytes_sent += len(data)
        if self.news is not None:
            self.news.sent()
        self._talk.maybe_close(busy=self.wants_work)
        return data

    def tick(self, now: float, on_the_way: int = 0) -> None:
        """Tell the time, in seconds of any steady clock, and how many bytes that were sent the peer has not received.

        Ends the session if a time-out has passed; what waits here to be looked at has come in time.
        """
        if self._talk.open:
            if made_up := self._talk.intake.tick(now):
                return self._talk.refuse(Refusal.PROTOCOL, Reason.RUBBISH, made_up)
            if self.held_back and now - self._waited_at >= STILL_WAITING:
                self._waited_at = now
                self.let_wait()
            greeted, gained, standing = self.wants_work or self.peer.greeted, self.counters.gained, self.standing
            late = self._timers.tick(now, greeted=greeted, gained=gained, standing=standing, on_the_way=on_the_way)
            if late:
                self._talk.refuse(Refusal.TIMEOUT, Reason.TIMEOUT, late)
            elif self.news is not None:
                self.news.tick(now)
            elif self._talk.intake.superfluous(self._talk.outbox.current):
                self.abandon()

    def abort(self, detail: str) -> None:
        """End the session for a reason of our own, and tell the peer."""
        if self._talk.open:
            self._talk.refuse(Refusal.FAILURE, Reason.FAILURE, detail)

    def abandon(self) -> None:
        """End the session because what it should bring has come from somebody else, and tell the peer."""
        if self._talk.open:
            self._talk.refuse(Refusal.ENOUGH, Reason.ENOUGH, "somebody else was quicker")

    def let_wait(self) -> None:
        """Tell the peer that the answer to its request comes later."""
        if self._talk.state is State.TALKING:
            self._talk.outbox.control(encode(Wait()))

    # A standing session

    @property
    def standing(self) -> bool:
        """Whether both sides keep the session open for news."""
        return self._talk.stands

    @property
    def news(self) -> Standing | None:
        """What goes over the session while it is `standing`."""
        return self._talk.standing if self._talk.stands else None

    def leave(self) -> None:
        """End a standing session in peace."""
        self._talk.leave()

    def take_gap(self) -> bool:
        """Whether the peer has told of something that is not here, so that another session must fetch it; once."""
        gap, self._talk.standing.gap = self._talk.standing.gap, False
        return gap

    def take_repeats(self) -> bool:
        """Whether the peer sends what others have brought, so that this session may be a lazy one; once."""
        repeats, self._talk.standing.repeats = self._talk.standing.repeats, False
        return repeats

    # What the shell asks

    @property
    def uploads(self) -> bool:
        """Whether the peer waits for the answer to a request."""
        return self._talk.outbox.answering

    @property
    def uploads_much(self) -> bool:
        """Whether that answer is a large content."""
        return self._talk.answers.bytes >= LARGE_ANSWER

    @property
    def held_back(self) -> bool:
        """Whether requests wait until another session of this node has what it asked for."""
        return self._talk.outbox.held_back

    @property
    def depends(self) -> bool:
        """Whether something to be sent waits for another session, or for the network: look again in a while."""
        return self.held_back or self.dormant or (self.news is not None and self.news.waits)

    @property
    def dormant(self) -> bool:
        """Whether an answer to the peer is what waits."""
        return self._talk.outbox.dormant

    @property
    def phase(self) -> Phase:
        """What the peer sends us."""
        if self._talk.waits:
            return Phase.WAITING
        return Phase.COMPARING if self._talk.outbox.expects_entries else Phase.CONTENTS

    @property
    def wants_data(self) -> bool:
        """Whether `receive_data` should be fed: the session is open and not too much waits for `work`."""
        return self._talk.open and len(self._lines) < _INBOUND and not self._talk.intake.pending

    @property
    def wants_work(self) -> bool:
        """Whether `work` has something to do."""
        intake = self._talk.intake
        received = intake.pending or (intake.gathered and not (self._half and self.patient))
        return self._talk.open and (received or self._line is not None or self._lines.ready)

    @property
    def wants_send(self) -> bool:
        """Whether `data_to_send` has something, or something to do."""
        return self._talk.outbox.ready

    @property
    def closed(self) -> bool:
        """The session is over and everything that was to be sent has been taken."""
        return not self._talk.open and not self._talk.outbox.ready

    @property
    def result(self) -> Result | None:
        """How it went; None while the session is open."""
        return self._talk.result
