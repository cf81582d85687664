"""Which session brings which content, where several are open: nothing is asked for twice.  No I/O; time is an argument.

A content that one session is receiving is incomplete for all others as well, and each of them would ask for the rest.
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
        self._moved_at.pop(owner, None)
        for hash in [hash for hash, holder in self._owners.items() if holder is owner]:
            del self._owners[hash]
