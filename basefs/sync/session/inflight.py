"""The requests in flight over all sessions of a node: nothing is asked for twice.  No I/O; time is an argument.

A content that one session is receiving is incomplete for all others as well, and each of them would ask for the rest.
What one session is comparing differs for all others as well, so they compare one after the other; contents come over
several at once, and a large content piece by piece.

A chain names each next block only, so a peer has to say where the pieces of it begin (CHAIN).  That cannot be verified
beforehand; but a piece is verified from its start on, and its last block names the next start.  A start that is not
that one was made up by the peer that named it, and what came for it is dropped before the log has seen it.

Invariants of `PieceMap`

1. `_parts` follow each other in the chain, if the peers that named them are right; the log lacks the first one's end.
2. What came of a piece hangs together from its start on.  The log is given it in the order of the chain, by one session
   at a time.
3. Memory: `WINDOW` pieces that the log cannot take yet, and the starts of so many more as one CHAIN has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import HASH_SIZE, ZERO_HASH, BlockHash
from basefs.sync.wire.limits import PART_BLOCKS

#: Pieces behind the first one that may be asked for: larger costs memory (1 MiB each), smaller makes quick peers wait
#: for a slow one that has the first.
WINDOW = 12
#: Pieces that one peer is asked for at once, so that it has work while a request crosses, and how many more if it
#: brings most of all that comes: then it is alone, or far away.
DEPTH = 2
_MORE_DEPTH = 2
_RECENT = 8
#: Blocks that are given to the log at once.
_GIVEN = 8


@dataclass(slots=True, eq=False)
class _Piece:
    """Some consecutive blocks.

    Attributes:
        start: the first one.
        giver: who told of it.
        next: the first one that has not come; of what follows the part once it is here.
        count: how many have come.
        held: those of them that the log does not have, with their hashes.
        owner: who brings the rest.
        request: what it was asked for.
        taken_at: how many parts had come when it was.
    """

    start: BlockHash
    giver: object
    next: BlockHash
    count: int = 0
    held: deque[tuple[BlockHash, bytes]] = field(default_factory=deque)
    owner: object | None = None
    request: BlockHash | None = None
    taken_at: int = 0

    @property
    def has_come(self) -> bool:
        return self.count == PART_BLOCKS or self.next == ZERO_HASH


class PieceMap:
    """The parts of one content at a time: others come as if there were no parts.

    Attributes:
        came: how many parts have come.
    """

    def __init__(self, counts: Callable[[object], bool]) -> None:
        """`counts`: whether what a session should bring may be on its way."""
        self._counts = counts
        self._parts: deque[_Piece] = deque()
        self._by_next: dict[BlockHash, _Piece] = {}
        self._held: set[BlockHash] = set()
        self._giving: object | None = None
        #: Those of them whose session is over are nobody's business any more.
        self._liars: WeakSet[object] = WeakSet()
        self._recent: deque[object] = deque(maxlen=_RECENT)
        #: By peer, the session that asks it: two would wait for each other at the other end of a narrow link.
        self._sessions: dict[object, object] = {}
        self.came = 0

    # What is known of the content

    def begin(self, start: BlockHash, owner: object) -> bool:
        """Look at the content that goes on with this block, which the log waits for; not while another one comes."""
        if self._giving is not None or self.comes_elsewhere():
            return False
        self._cut(0)
        self._append(start, owner)
        return True

    def stop(self) -> None:
        """The log takes no more of this content."""
        if self._giving is None:
            self._cut(0)

    @property
    def tail(self) -> BlockHash | None:
        """The last start that is known, if it is time to ask what follows."""
        if not self._parts or len(self._parts) > WINDOW or self._parts[-1].next == ZERO_HASH:
            return None
        return self._parts[-1].start

    def learn(self, start: BlockHash, starts: Sequence[BlockHash], giver: object) -> None:
        """Take what a peer says of the parts behind the one that begins with `start`.

        Raises `RemoteProtocolError` if no chain can be like that.
        """
        chain = [start, *starts]
        if len(set(chain)) < len(chain) or ZERO_HASH in starts:
            raise RemoteProtocolError("a list of a chain that leads back, or behind its end")
        tail = self.tail
        if tail not in chain:
            return  # others have told, or another content is looked at
        new = chain[chain.index(tail) + 1 :]
        if not self._by_next.keys().isdisjoint(new) or not {part.start for part in self._parts}.isdisjoint(new):
            return  # one of those who have told of this chain is wrong; it is not known yet who
        for hash in new:
            self._append(hash, giver)

    def _append(self, start: BlockHash, giver: object) -> None:
        part = _Piece(start, giver, start)
        self._parts.append(part)
        self._by_next[start] = part

    def _cut(self, length: int) -> None:
        """Forget all parts but the first ones."""
        while len(self._parts) > length:
            part = self._parts.pop()
            if self._by_next.get(part.next) is part:
                del self._by_next[part.next]
            self._held.difference_update(hash for hash, _ in part.held)

    def is_liar(self, giver: object) -> bool:
        """Whether what a peer said of a chain was wrong."""
        return giver in self._liars

    # Who brings what

    def take(self, owner: object, asked: Container[BlockHash], peer: object = None) -> BlockHash | None:
        """What a session should ask its peer for next, if it should; not what it has `asked` for already.

        The first part that nobody brings; if there is none, the first one whose owner is much slower.
        """
        if peer is not None and self._sessions.get(peer, owner) is not owner:
            return None
        if self.owned(owner) >= DEPTH + _MORE_DEPTH * self._recent.count(owner) // _RECENT:
            return None
        late: _Piece | None = None
        for part in self._open():
            if part.next in asked:
                continue
            if not self._is_owned(part):
                return self._give(part, owner, peer)
            if late is None and self._is_late(part, owner):
                late = part
        return None if late is None else self._give(late, owner, peer)

    def _is_late(self, part: _Piece, owner: object) -> bool:
        """Whether a session should bring a part of another one's: nothing else is left, or all others have come."""
        if part.owner is owner:
            return False
        mine, theirs = self._recent.count(owner), self._recent.count(part.owner)
        is_slow = not self.owned(owner) and mine >= _RECENT // 4 and 4 * theirs <= mine
        return is_slow or self.came - part.taken_at >= WINDOW - 1

    def _give(self, part: _Piece, owner: object, peer: object) -> BlockHash:
        if peer is not None:
            self._sessions[peer] = owner
        part.owner, part.request, part.taken_at = owner, part.next, self.came
        return part.next

    def _open(self) -> list[_Piece]:
        """Those that may be asked for."""
        return [part for _, part in zip(range(WINDOW + 1), self._parts, strict=False) if not part.has_come]

    def _is_owned(self, part: _Piece) -> bool:
        return part.owner is not None and self._counts(part.owner)

    @property
    def wanted(self) -> bool:
        """Whether there is something to ask another peer for."""
        return not all(map(self._is_owned, self._open()))

    def comes_elsewhere(self, owner: object = None) -> bool:
        """Whether another session brings some of it."""
        return any(self._is_owned(part) and part.owner is not owner for part in self._parts)

    def asks(self, peer: object) -> bool:
        """Whether some session asks a peer for parts."""
        return peer in self._sessions

    def owned(self, owner: object) -> int:
        """How many parts a session should bring."""
        return sum(part.owner is owner for part in self._parts)

    def owner(self, hash: BlockHash) -> object | None:
        """Who should bring a block, if it is the next one of a part."""
        part = self._by_next.get(hash)
        return None if part is None else part.owner

    def let_go(self, owner: object, request: BlockHash | None = None) -> None:
        """A session does not bring what it was asked for: all, or by one request."""
        for part in self._parts:
            if part.owner is owner and request in (None, part.request):
                part.owner = None

    def leave(self, owner: object) -> None:
        """A session has no request for parts outstanding."""
        for peer in [peer for peer, session in self._sessions.items() if session is owner]:
            del self._sessions[peer]

    def ended(self, owner: object) -> None:
        """A session is over."""
        self.let_go(owner)
        self.leave(owner)
        if self._giving is owner:
            self._giving = None

    # What has come

    def tracks(self, hash: BlockHash) -> bool:
        """Whether this is the next block of a part."""
        return hash in self._by_next

    def holds(self, hash: BlockHash) -> bool:
        """Whether a block waits until the log can take it."""
        return hash in self._held

    @property
    def head(self) -> BlockHash | None:
        """The block that the log waits for, if nothing is held for it."""
        return self._parts[0].next if self._parts and not self._parts[0].held else None

    def put(self, hash: BlockHash, block: bytes) -> bool:
        """A block that is tracked.  Returns whether the log can take it now; otherwise it is held."""
        part = self._by_next.pop(hash)
        part.next = BlockHash(block[:HASH_SIZE])
        part.count += 1
        now = part is self._parts[0] and not part.held and self._giving is None
        if not now:
            part.held.append((hash, block))
            self._held.add(hash)
        if part.has_come:
            self.came += 1
            self._recent.append(part.owner)
            part.owner = None
            self._check()
        else:
            self._track(part)
        self._advance()
        return now

    def _track(self, part: _Piece) -> None:
        """Know the next block of a part when it comes.

        Where a start was made up, two parts may wait for one block.  The earlier one has it: so the first part of all,
        which is right for sure, always moves on, and shows who was wrong.
        """
        other = self._by_next.get(part.next)
        if other is None or self._parts.index(part) < self._parts.index(other):
            self._by_next[part.next] = part

    def _check(self) -> None:
        """Compare the starts that were told with those that are known now, from the first part on."""
        for place, part in enumerate(self._parts):
            if not part.has_come:
                break
            if place + 1 < len(self._parts) and self._parts[place + 1].start != part.next:
                self._liars.add(self._parts[place + 1].giver)
                self._cut(place + 1)
                break
        last = self._parts[-1]
        if last.has_come and last.next != ZERO_HASH and last.next not in self._by_next:
            self._append(last.next, last.giver)

    def _advance(self) -> None:
        while self._parts and self._parts[0].has_come and not self._parts[0].held:
            self._parts.popleft()

    # To the log

    def is_due(self, owner: object) -> bool:
        """Whether a session should give the log something that was held."""
        return bool(self._parts and self._parts[0].held) and self._giving in (None, owner)

    def give(self, owner: object) -> list[bytes]:
        """What the log can take next; `given` must follow, or `ended`."""
        self._giving = owner
        return [block for _, (_, block) in zip(range(_GIVEN), self._parts[0].held, strict=False)]

    def given(self, owner: object, count: int) -> None:
        """The log has so much of it."""
        if self._giving is owner:
            self._giving = None
            for _ in range(count):
                self._held.discard(self._parts[0].held.popleft()[0])
            self._advance()


#: Seconds without a byte after which a session does not count any more: what it should bring may be asked for
#: elsewhere.
PATIENCE = 3.0
#: Seconds without a new entry or block after which it does not count any more either, whatever it sends: a peer that
#: drips bytes would keep the node from asking anybody else.  A block of 32 KiB takes as long on a link of 32 kbit/s.
FRUITLESS = 10.0
#: Bytes a second from which on a link counts as wide: what is served then takes a moment, and waiting would cost more.
WIDE = 256 * 1024
#: Seconds in which a session that brings contents keeps others from beginning, which would fetch them once more over a
#: narrow link.  What takes longer is large, and others may have other news meanwhile.
CONTENTS_SECONDS = 15.0
#: Seconds after it was seen that several nodes want the same, in which a content comes from one peer at a time: the
#: link of who has all of it is busy, and the others have no more.  A part that was begun elsewhere would only leave a
#: hole in what the peer can pass on that brings the rest.  Not where less than `WIDE` comes: then anybody may help.
CROWDED = 60.0


class RequestTable:
    """The blocks that the sessions of one node expect.

    Attributes:
        bytes: of all blocks that have come, in whichever session.
        accepted, accepted_bytes: what was new, likewise, counted as in `SessionCounters`.
        parts: what is known of a large content, and who brings which part of it.
    """

    def __init__(self) -> None:
        self._owners: dict[BlockHash, object] = {}
        self._moved_at: dict[object, float] = {}
        #: When a session has brought something, or had to for the first time.
        self._gained_at: dict[object, float] = {}
        self._now = 0.0
        self._crowded_at = -CROWDED
        #: Whether what came in the last `PATIENCE` seconds was much, and when, and with how much, they began.
        self._is_quick = True
        self._measured_at = 0.0
        self._measured = 0
        self.bytes = 0
        self.accepted = 0
        self.accepted_bytes = 0
        self.parts = PieceMap(self._counts)
        self._asking: object | None = None
        #: Who has asked last, whether it has its answer or not.
        self._asked: object | None = None

    def may_ask(self, owner: object) -> bool:
        """Whether a session may ask for entries: no other one does so, or nothing has come there for a while."""
        asking = self._asking
        if asking is None or asking is owner:
            return True
        return not self._counts(asking)

    def asks(self, owner: object) -> None:
        """A session has asked for entries."""
        if self._asking is not owner:
            self._asking = owner
            if self._asked is owner:
                # One request after the other makes no new beginning, or a peer could keep others from asking with them.
                self._gained_at.setdefault(owner, self._now)
            else:
                self._gained_at[owner] = self._now
            self._asked = owner
            self.moved(owner)

    def has_answer(self, owner: object) -> None:
        """A session has what it asked for."""
        if self._asking is owner:
            self._asking = None

    def tick(self, now: float) -> None:
        """Tell the time, in seconds."""
        self._now = max(self._now, now)
        passed = self._now - self._measured_at
        if passed >= PATIENCE:
            self._measure(self.accepted_bytes - self._measured >= WIDE * passed)

    def _measure(self, is_quick: bool) -> None:
        self._is_quick = is_quick
        self._measured_at, self._measured = self._now, self.accepted_bytes

    def moved(self, owner: object) -> None:
        """Something has come in a session."""
        self._moved_at[owner] = self._now

    def gained(self, owner: object, accepted: int = 1, size: int = 0) -> None:
        """A session has brought something new: so much, as in `SessionCounters`."""
        self._gained_at[owner] = self._now
        self.accepted += accepted
        self.accepted_bytes += size

    def _counts(self, owner: object) -> bool:
        """Whether what a session should bring may be on its way."""
        silent = self._now - self._moved_at.get(owner, -PATIENCE)
        return silent < PATIENCE and self._now - self._gained_at.get(owner, -FRUITLESS) < FRUITLESS

    def held_by_other(self, hash: BlockHash, owner: object) -> bool:
        """Whether another session than `owner` will bring a block, as it seems."""
        return self._holder(hash) is not owner and self.is_coming(hash)

    def is_coming(self, hash: BlockHash) -> bool:
        """Whether some session will bring a block, as it seems."""
        holder = self._holder(hash)
        return holder is not None and self._counts(holder)

    def _holder(self, hash: BlockHash) -> object | None:
        return self.parts.owner(hash) if self.parts.tracks(hash) else self._owners.get(hash)

    def take(self, hash: BlockHash, owner: object) -> None:
        """This session will bring a block, unless it is known who will."""
        if not self.parts.tracks(hash):
            self._owners[hash] = owner
            self._gained_at.setdefault(owner, self._now)

    def take_part(self, owner: object, asked: Container[BlockHash], peer: object = None) -> BlockHash | None:
        """See `PieceMap.take`; nothing more where several nodes want the same and another session brings it."""
        if self._one_is_enough and not self.parts.owned(owner) and self.parts.comes_elsewhere():
            return None
        if not self.parts.owned(owner) and self._asking is not owner:
            # It had nothing to bring, so that it has all the time again.
            self._moved_at[owner] = self._gained_at[owner] = self._now
        return self.parts.take(owner, asked, peer)

    @property
    def wanted(self) -> bool:
        """Whether there are parts to ask another peer for."""
        return self.parts.wanted and not (self._one_is_enough and self.parts.comes_elsewhere())

    @property
    def _one_is_enough(self) -> bool:
        """Whether a content should come from one peer at a time."""
        return self._is_crowded and self._is_quick

    @property
    def _is_crowded(self) -> bool:
        return self._now - self._crowded_at < CROWDED

    def came(self, hash: BlockHash, size: int) -> None:
        """A block of `size` bytes is here."""
        self._owners.pop(hash, None)
        self.bytes += size

    def waits(self, owner: object) -> None:
        """The peer of a session lets it wait: others may ask for its blocks."""
        self.crowd()
        self.let_go(owner)

    def crowd(self) -> None:
        """Several nodes want the same: a peer serves others first, or gets here what is still arriving."""
        if not self._is_crowded:
            self._measure(is_quick=True)
        self._crowded_at = self._now

    def let_go(self, owner: object) -> None:
        """A session does not bring what it was asked for."""
        for hash in [hash for hash, holder in self._owners.items() if holder is owner]:
            del self._owners[hash]
        self.parts.let_go(owner)
        if self._asking is not owner:
            # It has the same time again when it asks again.
            self._gained_at.pop(owner, None)

    def ended(self, owner: object) -> None:
        """A session is over, whatever it has brought."""
        self.has_answer(owner)
        self.let_go(owner)
        self.parts.ended(owner)
        self._moved_at.pop(owner, None)
        self._gained_at.pop(owner, None)
        if self._asked is owner:
            self._asked = None
