"""The requests in flight over all sessions of a node: nothing is asked for twice.  No I/O; time is an argument.

A content that one session is receiving is incomplete for all others as well, and each of them would ask for the rest.
A difference that one session finds is one for all others as well, so they compare one after the other; contents come
over several at once, in requests of some blocks each.  Each block is verified by its hash, so it does not matter who
brings it, nor in which order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from basefs.log.hashes import BlockHash
from basefs.sync.session.contents import FRUITLESS, KEPT_SECONDS, ContentTable
from basefs.sync.wire.limits import MAX_BLOCKS

#: Requests that one peer is sent at once for blocks, or single blocks over a session that stands, so that it has work
#: while one crosses.
DEPTH = 2
#: Blocks that came lately, by which sessions are compared.
_RECENT = 8 * MAX_BLOCKS

#: Seconds without a byte after which a session does not count any more: what it should bring may be asked for
#: elsewhere.
PATIENCE = 3.0
#: Bytes a second from which on a link counts as wide: what is served then takes a moment, and waiting would cost more.
WIDE = 256 * 1024
#: Seconds in which a session that brings contents keeps others from beginning, which would fetch them once more over a
#: narrow link.  A longer content is large, and others may have other news meanwhile.
CONTENTS_SECONDS = 15.0
#: Seconds after it was seen that several nodes want the same, in which a content comes from one peer at a time: the
#: link of who has all of it is busy, and the others have no more.  Not where less than `WIDE` comes: then anybody may
#: help.
CROWDED = 60.0


@dataclass(slots=True, eq=False)
class _Asked:
    """A request for blocks that is not answered.

    Attributes:
        owner: the session that has sent it.
        peer: where to, `None` if unknown.
        hashes: the blocks.
        left: those that have not come.
        since: how many blocks had come when it was sent.
        at: when, in seconds.
    """

    owner: object
    peer: object
    hashes: tuple[BlockHash, ...]
    left: dict[BlockHash, None]
    since: int
    at: float


class RequestTable:
    """What the sessions of one node expect.

    Attributes:
        bytes, blocks: of all blocks that have come, in whichever session.
        accepted, accepted_bytes: what was new, likewise, counted as in `SessionCounters`.
        spare: whether more blocks are missing than sessions have asked for, as far as the last one saw.
        resume: the number of a missing block: a session has asked for all up to this one, and could ask for no more.
        contents: those whose blocks are exchanged over sessions that stand.
    """

    def __init__(self, chance: Callable[[], float] = float) -> None:
        """`chance`: see `ContentTable`; always 0 by itself."""
        self._asked: dict[BlockHash, _Asked] = {}
        self._requests: dict[object, list[_Asked]] = {}
        self._recent: deque[object] = deque(maxlen=_RECENT)
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
        self.blocks = 0
        self.accepted = 0
        self.accepted_bytes = 0
        self.spare = False
        self.resume = 0
        self.contents = ContentTable(chance)
        self._asking: object | None = None
        #: Who has asked last, whether it has its answer or not.
        self._last_asking: object | None = None

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
            if self._last_asking is owner:
                # One request after the other makes no new beginning, or a peer could keep others from asking with them.
                self._gained_at.setdefault(owner, self._now)
            else:
                self._gained_at[owner] = self._now
            self._last_asking = owner
            self.moved(owner)

    def has_answer(self, owner: object) -> None:
        """A session has what it asked for."""
        if self._asking is owner:
            self._asking = None

    def tick(self, now: float) -> None:
        """Tell the time, in seconds."""
        self._now = max(self._now, now)
        self.contents.tick(self._now)
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

    # Blocks

    def may_take(self, owner: object, peer: object = None) -> bool:
        """Whether a session should ask its peer for blocks.

        Not while another session asks the same peer, as two would wait for each other at the other end of a narrow
        link; and not where several nodes want the same and another session brings it.
        """
        mine = self._requests.get(owner, [])
        if not mine and ((peer is not None and self.asks_peer(peer)) or self.comes_from_one):
            return False
        # More for the one that brings most of all that comes: it is alone, or far away.
        share = self._recent.count(owner) * 2 // _RECENT
        return len(mine) < DEPTH + share

    def take(self, hashes: tuple[BlockHash, ...], owner: object, peer: object = None) -> None:
        """A session asks its peer for these blocks."""
        if self._asking is not owner and (owner not in self._requests or owner not in self._gained_at):
            # It had nothing to bring, or had to wait, so that it has all the time again.
            self._moved_at[owner] = self._gained_at[owner] = self._now
        asked = _Asked(owner, peer, hashes, dict.fromkeys(hashes), self.blocks, self._now)
        self._requests.setdefault(owner, []).append(asked)
        self._asked.update(dict.fromkeys(hashes, asked))

    def late(self, owner: object) -> Sequence[BlockHash]:
        """Blocks that a session should ask for although another one has: nothing else is left, and that one is slow."""
        mine = self._recent.count(owner)
        for other, requests in self._requests.items():
            if other is owner:
                continue
            is_slow = not self._requests.get(owner) and mine >= _RECENT // 4 and 4 * self._recent.count(other) <= mine
            for asked in requests:
                if asked.left and (is_slow or self.blocks - asked.since >= 12 * MAX_BLOCKS):
                    return list(asked.left)
        return []

    def answered(self, owner: object, hashes: tuple[BlockHash, ...]) -> None:
        """The answer to a request has ended, or it is not sent."""
        for asked in self._requests.get(owner, []):
            if asked.hashes == hashes:
                self._release(asked)
                self._requests[owner].remove(asked)
                if not self._requests[owner]:
                    del self._requests[owner]
                return

    def _release(self, asked: _Asked) -> None:
        for hash in asked.left:
            # Another session may have been asked since.
            if self._asked.get(hash) is asked:
                del self._asked[hash]

    def came(self, hash: BlockHash, size: int, owner: object) -> None:
        """A block of `size` bytes is here, which a session has brought."""
        self.bytes += size
        self.blocks += 1
        self._recent.append(owner)
        asked = self._asked.pop(hash, None)
        if asked is not None:
            asked.left.pop(hash, None)

    def held_by_other(self, hash: BlockHash, owner: object, peer: object = None) -> bool:
        """Whether another session than `owner` will bring a block, as it seems, and from another peer."""
        asked = self._asked.get(hash)
        if asked is None or asked.owner is owner or (peer is not None and asked.peer == peer):
            return False
        return self._counts(asked.owner)

    def outstanding(self, owner: object) -> int:
        """How many blocks a session has asked for that have not come."""
        return sum(len(asked.left) for asked in self._requests.get(owner, ()))

    def is_asked(self, hash: BlockHash) -> bool:
        """Whether some session has asked for a block that should come."""
        asked = self._asked.get(hash)
        return asked is not None and self._now - asked.at < KEPT_SECONDS and self._counts(asked.owner)

    def is_coming(self, hash: BlockHash) -> bool:
        """Whether some session will bring a block, as it seems."""
        return self.is_asked(hash) or self.contents.is_coming(hash)

    def asks_peer(self, peer: object) -> bool:
        """Whether some session asks a peer for blocks."""
        return any(asked.peer == peer for requests in self._requests.values() for asked in requests)

    @property
    def comes_from_one(self) -> bool:
        """Whether a content comes, and should come from one peer at a time."""
        return self._is_crowded and self._is_quick and any(map(self._counts, self._requests))

    @property
    def wanted(self) -> bool:
        """Whether there are blocks to ask another peer for."""
        return self.spare and not self.comes_from_one

    @property
    def _is_crowded(self) -> bool:
        return self._now - self._crowded_at < CROWDED

    def waits(self, owner: object) -> None:
        """The peer of a session lets it wait, and answers later: other peers may be asked for the blocks meanwhile."""
        self.crowd()
        for asked in self._requests.get(owner, []):
            self._release(asked)
        if self._asking is not owner:
            # It has the same time again when it asks again.
            self._gained_at.pop(owner, None)

    def crowd(self) -> None:
        """Several nodes want the same: a peer serves others first, or gets here what is still arriving."""
        if not self._is_crowded:
            self._measure(is_quick=True)
        self._crowded_at = self._now

    def ended(self, owner: object) -> None:
        """A session is over, whatever it has brought."""
        self.has_answer(owner)
        for asked in self._requests.pop(owner, []):
            self._release(asked)
        self.contents.forget(owner)
        self._moved_at.pop(owner, None)
        self._gained_at.pop(owner, None)
        if self._last_asking is owner:
            self._last_asking = None
