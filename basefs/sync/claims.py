"""Which session brings what, where several are open: nothing is asked for twice.  No I/O; time is an argument.

A content that one session is receiving is incomplete for all others as well, and each of them would ask for the rest.
What one session is comparing differs for all others as well, so they compare one after the other; contents come over
several at once.
"""

from __future__ import annotations

from basefs.log.hashes import BlockHash

#: Seconds without a byte after which a session does not count any more: what it should bring may be asked for
#: elsewhere.
PATIENCE = 3.0


class Claims:
    """The blocks that the sessions of one node expect."""

    def __init__(self) -> None:
        self._owners: dict[BlockHash, object] = {}
        self._moved_at: dict[object, float] = {}
        self._now = 0.0
        self._asking: object | None = None

    def may_ask(self, owner: object) -> bool:
        """Whether a session may ask for entries: no other one does so, or nothing has come there for a while."""
        asking = self._asking
        if asking is None or asking is owner:
            return True
        return self._now - self._moved_at.get(asking, -PATIENCE) >= PATIENCE

    def asks(self, owner: object) -> None:
        """A session has asked for entries."""
        if self._asking is not owner:
            self._asking = owner
            self.moved(owner)

    def has_answer(self, owner: object) -> None:
        """A session has what it asked for."""
        if self._asking is owner:
            self._asking = None

    def tick(self, now: float) -> None:
        """Tell the time, in seconds."""
        self._now = max(self._now, now)

    def moved(self, owner: object) -> None:
        """Something has come in a session."""
        self._moved_at[owner] = self._now

    def held_by_other(self, hash: BlockHash, owner: object) -> bool:
        """Whether another session than `owner` will bring a block, as it seems."""
        holder = self._owners.get(hash)
        if holder is None or holder is owner:
            return False
        return self._now - self._moved_at.get(holder, -PATIENCE) < PATIENCE

    def take(self, hash: BlockHash, owner: object) -> None:
        """This session will bring a block."""
        self._owners[hash] = owner

    def came(self, hash: BlockHash) -> None:
        """A block is here."""
        self._owners.pop(hash, None)

    def ended(self, owner: object) -> None:
        """A session is over, whatever it has brought."""
        self.has_answer(owner)
        self._moved_at.pop(owner, None)
        for hash in [hash for hash, holder in self._owners.items() if holder is owner]:
            del self._owners[hash]
