"""Which session brings what, where several are open: nothing is asked for twice.  No I/O; time is an argument.

A content that one session is receiving is incomplete for all others as well, and each of them would ask for the rest.
What one session is comparing differs for all others as well, so they compare one after the other; contents come over
several at once.
"""

from __future__ import annotations

from collections.abc import Container

from basefs.log.hashes import BlockHash
from basefs.sync.net.uplink import WIDE
from basefs.sync.session.parts import Parts

#: Seconds without a byte after which a session does not count any more: what it should bring may be asked for
#: elsewhere.
PATIENCE = 3.0
#: Seconds without a new entry or block after which it does not count any more either, whatever it sends: a peer that
#: drips bytes would keep the node from asking anybody else.  A block of 32 KiB takes as long on a link of 32 kbit/s.
FRUITLESS = 10.0
#: Seconds in which a session that brings contents keeps others from beginning, which would fetch them once more over a
#: narrow link.  What takes longer is large, and others may have other news meanwhile.
CONTENTS_SECONDS = 15.0
#: Seconds after it was seen that several nodes want the same, in which a content comes from one peer at a time: the
#: link of who has all of it is busy, and the others have no more.  A part that was begun elsewhere would only leave a
#: hole in what the peer can pass on that brings the rest.  Not where less than `WIDE` comes: then anybody may help.
CROWDED = 60.0


class Claims:
    """The blocks that the sessions of one node expect.

    Attributes:
        bytes: of all blocks that have come, in whichever session.
        accepted, accepted_bytes: what was new, likewise, counted as in `Counters`.
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
        self.parts = Parts(self._counts)
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
        """A session has brought something new: so much, as in `Counters`."""
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
        """See `Parts.take`; nothing more where several nodes want the same and another session brings it."""
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
