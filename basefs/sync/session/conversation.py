"""What the lines of a session lead to: who may say what, what is asked and answered, and when it is over.  No I/O.

The two sides agree on the end as `docs/sync-protocol.md` says: the responder tells when it has nothing outstanding, the
initiator decides whether that is the end, another round, or a session that stands.
"""

from __future__ import annotations

from collections.abc import Callable

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import ZERO_HASH
from basefs.log.interface import Digest, LogState
from basefs.sync.session.answers import Answers
from basefs.sync.session.claims import Claims
from basefs.sync.session.compare import Node
from basefs.sync.session.intake import Intake
from basefs.sync.session.outbox import Outbox, wanted
from basefs.sync.session.peer import Peer
from basefs.sync.session.result import REFUSED, Counters, Reason, Result
from basefs.sync.session.standing import Standing
from basefs.sync.session.states import Event, Role, State, follow
from basefs.sync.wire.codec import encode, with_receiving
from basefs.sync.wire.limits import VERSION, Limits
from basefs.sync.wire.messages import (
    WHOLE,
    BlockReq,
    Blocks,
    BlocksRec,
    Chain,
    ChainReq,
    Close,
    Eager,
    Entries,
    EntryReq,
    Eof,
    ForBlocks,
    Hash,
    Lazy,
    Ls,
    Message,
    PathReq,
    Refusal,
    Refuse,
    Root,
    Same,
    Stay,
    Wait,
)


class Conversation:
    """One side of one session, line by line.

    Attributes:
        role: who opened the connection.
        state: where the session stands (`basefs.sync.session.states`).
        counters: what was moved so far.
        answers, outbox: to the peer's requests, and all that is to be sent.
        intake: what came and is not in the log yet.
        standing: what goes over the session while it `stands`.
        peer: what it has told of itself.
        waits: whether the peer has said that its answer will take a while, and has not sent any data since.
    """

    def __init__(
        self, log: LogState, role: Role, port: int, limits: Limits, stay: Callable[[int], bool], claims: Claims
    ) -> None:
        """Arguments as for `SyncProtocol`."""
        self.role = role
        self.state = State.GREETING
        self.counters = Counters()
        self.peer = Peer()
        self._log = log
        self._port = port
        self._limits = limits
        self._stay = stay
        self.intake = Intake(log, self.counters, limits, claims, self.peer)
        self.answers = Answers(log, self.counters, self.intake)
        self.outbox = Outbox(self.answers.write, limits.backlog, self.answers.turn)
        self.standing = Standing(log, self.outbox, self.counters, limits)
        self.waits = False
        self._receiving: BlocksRec | None = None
        self._roots = (ZERO_HASH, ZERO_HASH)  # ours and the peer's when the round began
        self._close: Close | None = None  # the responder's last
        self._end: tuple[Reason, str, bool, bool] | None = None
        self._greeted_with = Digest(ZERO_HASH, 0)  # our log when we told it last
        if role is Role.INITIATOR:
            self._new_round()
            self._greet()

    # Lines

    def handle(self, message: Message, size: int) -> None:
        """Act on a line.  Raises `RemoteProtocolError`."""
        if self._receiving is not None and not isinstance(message, Ls | Refuse):
            raise RemoteProtocolError("BLOCKS_REC belongs to an LS right behind it")
        match message:
            case Ls() | PathReq() | EntryReq() | BlockReq() | ChainReq():
                self._follow(Event.REQUEST)
                if isinstance(message, Ls) and self._receiving is not None:
                    message = with_receiving(message, self._receiving)
                    self._receiving = None
                self.outbox.answer(self.answers.to(message, self.outbox.ask), size)
            case BlocksRec():
                self._follow(Event.BLOCKS_REC)
                self._receiving = message
            case Entries(encoded):
                self._expect_data()
                if self.stands:
                    self.standing.heard(encoded)
                self.intake.put_entries(encoded)
            case Blocks(blocks):
                self._expect_data()
                self.intake.put_blocks(blocks, request=self.outbox.current, streaming=self.stands)
            case Chain(hashes):
                self._expect_data()
                self.intake.share.learn(self.outbox.current, hashes)
            case Eof():
                self._follow(Event.EOF)
                answered = self.outbox.close_answer()
                self.counters.answer_ended(wanted(answered))
                if isinstance(answered, ForBlocks):
                    self.outbox.ask(self.intake.answered(answered))
                else:
                    self.outbox.ask(self.intake.wanted_blocks())
                if not self.outbox.expects_entries:
                    self.outbox.ask(self.intake.wanted_parents())
            case Wait():
                self._follow(Event.WAIT)
                self.waits = True
                self.intake.waits()
            case Hash():
                self._on_hash(message)
            case Same(port):
                self._follow(Event.SAME)
                self._greeted(Hash(VERSION, self._log.identity, *self._greeted_with, port))
                self._close = Close(0, *self._greeted_with)
            case Root(root, entries, kept):
                self._follow(Event.ROOT)
                self.peer.tells(Digest(root, entries))
                self.standing.heard_root(root, kept)
            case Lazy() | Eager():
                self._follow(Event.BEARING)
                self.standing.heard_bearing(lazy=isinstance(message, Lazy))
            case Close():
                self._on_close(message)
            case Stay():
                self._on_stay()
            case Refuse(refusal, text):
                self._follow(Event.REFUSE)
                self._finish(REFUSED[refusal], text, by_peer=True)

    def _expect_data(self) -> None:
        self._follow(Event.DATA)
        self.waits = False
        if self.outbox.current is None and not self.stands:
            raise RemoteProtocolError("data that answers no request")

    def _on_hash(self, theirs: Hash) -> None:
        self._follow(Event.HASH)
        ours = self._log.identity
        newcomer = ours if self.role is Role.INITIATOR else theirs.identity
        if theirs.version != VERSION:
            text = f"this node speaks version {VERSION} of the protocol, not {theirs.version}"
            return self.refuse(Refusal.VERSION, Reason.WRONG_VERSION, text)
        if theirs.identity != ours and newcomer != ZERO_HASH:
            return self.refuse(Refusal.IDENTITY, Reason.WRONG_FILESYSTEM, "this node serves another filesystem")
        self._greeted(theirs)

    def _greeted(self, theirs: Hash) -> None:
        self.peer.greets(theirs)
        root = self._log.root_hash()
        self._roots = (root, theirs.root)
        if self.role is Role.INITIATOR:
            return self.outbox.ask(self.intake.missing_blocks())
        self._new_round()
        wanted = self.intake.missing_blocks()
        if root == theirs.root and theirs.identity == self._log.identity and not wanted:
            self._follow(Event.SETTLE)
            return self.outbox.control(encode(Same(self._port)))
        self._greet()
        # The responder has both hashes first, so the first list is its own: one crossing less than if we had to ask.
        if root != theirs.root:
            self.outbox.ask([Node((), WHOLE, theirs.root)])
        self.outbox.ask(wanted)

    def _on_stay(self) -> None:
        self._follow(Event.STAY)
        if self.role is Role.RESPONDER:
            if not self._stay(self.peer.port):
                self._follow(Event.AGREE)
                self.outbox.control(encode(Close(self.outbox.answered, *self._log.digest())))
                return self._complete(equal=False)
            self._follow(Event.KEEP)
            self.outbox.control(encode(Stay()))
        self.standing.begin()

    def _on_close(self, close: Close) -> None:
        counts = self.state not in (State.OFFERED, State.STANDING)
        if counts and close.answered > self.outbox.asked:
            raise RemoteProtocolError("CLOSE counts more requests than there were")
        if counts and close.answered < self.outbox.asked and self.role is Role.RESPONDER:
            raise RemoteProtocolError("CLOSE with something outstanding")
        self._follow(Event.CLOSE)
        self.peer.tells(Digest(close.root, close.entries))
        if counts and self.role is Role.INITIATOR:
            self._close = close  # `maybe_close` looks whether it is current
        else:
            self._complete(equal=self._log.root_hash() == close.root)

    # The session

    @property
    def open(self) -> bool:
        """Whether anything more may happen."""
        return self.state not in (State.DONE, State.FAILED)

    @property
    def stands(self) -> bool:
        """Whether both sides keep the session open for news."""
        return self.state is State.STANDING

    @property
    def result(self) -> Result | None:
        """How it went; None while it is open."""
        if self._end is None:
            return None
        reason, detail, equal, by_peer = self._end
        peer, stood = self.peer, self.standing.began
        return Result(reason, detail, equal, self.counters, peer.identity, peer.port, by_peer, stood)

    def leave(self) -> None:
        """End a standing session in peace."""
        if self.stands:
            self._follow(Event.AGREE)
            self.outbox.control(encode(Close(0, *self._log.digest())))
            self._complete(equal=False)

    def _follow(self, event: Event) -> None:
        self.state = follow(self.role, self.state, event)

    def _new_round(self) -> None:
        self.counters.rounds += 1
        self._close = None
        for part in (self.outbox, self.answers, self.intake):
            part.new_round()

    def _greet(self) -> None:
        self._greeted_with = self._log.digest()
        self.outbox.control(encode(Hash(VERSION, self._log.identity, *self._greeted_with, self._port)))

    def maybe_close(self, *, busy: bool) -> None:
        """The responder says when it has nothing outstanding; the initiator decides what that means.

        Not only a line that was read can bring this about: a request that has become superfluous does too.  `busy`:
        something that was received is not looked at yet.
        """
        if self.state is not State.TALKING or not self.outbox.idle or busy or self._receiving is not None:
            return
        close = Close(self.outbox.answered, *self._log.digest())
        if self.role is Role.RESPONDER:
            self._follow(Event.SETTLE)
            self.outbox.control(encode(close))
        elif self._close is not None and self._close.answered == self.outbox.asked:
            ours, theirs = close.root, self._close.root
            changed, stays = ours != theirs and self._roots != (ours, theirs), self._stay(self.peer.port)
            # Where much is written the logs differ after each round: the root hashes that are told find it.
            if changed and self.counters.rounds < (2 if stays else self._limits.rounds):
                self._follow(Event.AGAIN)
                self._new_round()
                return self._greet()
            if stays:
                self._follow(Event.OFFER)
                return self.outbox.control(encode(Stay()))
            self._follow(Event.AGREE)
            self.outbox.control(encode(close))
            self._complete(equal=ours == theirs)

    def _complete(self, *, equal: bool) -> None:
        self._finish(Reason.COMPLETE, "in step" if equal else "still different", equal=equal)

    def refuse(self, refusal: Refusal, reason: Reason, text: str) -> None:
        """End the session and tell the peer why."""
        self.outbox.drop()
        self.outbox.control(encode(Refuse(refusal, text)))
        self.break_off(reason, text)

    def break_off(self, reason: Reason, text: str) -> None:
        """End the session, whatever it was doing; nothing if it has ended."""
        if self.open:
            self._follow(Event.BROKEN)
            self._finish(reason, text)

    def _finish(self, reason: Reason, detail: str, *, equal: bool = False, by_peer: bool = False) -> None:
        self._end = (reason, detail, equal, by_peer)
        self.intake.close()
        if by_peer:
            self.outbox.drop()
