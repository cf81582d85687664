"""The part of a session that stands: news both ways, unasked, until one side leaves.  No I/O and no clock.

What is lost on the way (a slow connection, an entry whose parent is missing here) is never repaired in place: a `gap`
is noted, and another session compares and fetches.  The root hash, told now and then, finds what nobody noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from basefs.log.entries import SIGNATURE_SIZE
from basefs.log.hashes import sha224
from basefs.sync.interface import LogState
from basefs.sync.limits import Limits
from basefs.sync.outbox import Outbox
from basefs.sync.parcels import Packer
from basefs.sync.recent import Recent
from basefs.sync.result import Counters

#: Entries that are remembered as known to the peer.  What is forgotten may be sent once more, which costs bytes only.
_KNOWN = 4096


class Standing:
    """What one side of a standing session knows.

    Attributes:
        began: whether it stands, or has stood.
        gap: whether the peer has told of something that is not here.
    """

    def __init__(
        self, log: LogState, outbox: Outbox, counters: Counters, limits: Limits, greet: Callable[[], bytes]
    ) -> None:
        """`greet` makes a HASH line of the current root."""
        self._log = log
        self._outbox = outbox
        self._packer = Packer(log, counters)
        self._limits = limits
        self._greet = greet
        self._known = Recent(_KNOWN)
        self._told_at: float | None = None
        self._owes_root = False
        self._peer_root: bytes | None = None
        self._parents_miss = False
        self.began = False
        self.gap = False

    def begin(self) -> None:
        """It stands now; both logs may have grown since they were compared."""
        self.began = True
        self.tell_root()

    def push(self, entries: Sequence[bytes]) -> None:
        """Send encoded entries, with their blocks, unless the peer has them."""
        news = [entry for entry in entries if self._known.add(_hash_of(entry))]
        for line in self._packer.entries(news):
            if self._full:
                # The connection is slower than the news: the peer compares when this is through.
                self._owes_root = True
                return
            self._outbox.control(line)

    def tell_root(self) -> None:
        """Send the root hash: where it is news, the peer will compare."""
        if self._full:
            self._owes_root = True
        else:
            self._outbox.control(self._greet())

    def sent(self) -> None:
        """Something has left: send what had to wait for it."""
        if self._owes_root and not self._outbox.waiting:
            self._owes_root = False
            self._outbox.control(self._greet())

    def tick(self, now: float) -> None:
        """Tell the time, in seconds."""
        if self._told_at is None or now - self._told_at >= self._limits.heartbeat:
            self._told_at = now
            self.tell_root()

    def heard(self, entries: Sequence[bytes]) -> None:
        """The peer has sent these encoded entries."""
        for entry in entries:
            self._known.add(_hash_of(entry))

    def heard_root(self, root: bytes) -> None:
        """The peer has told its root hash."""
        self._peer_root = root
        self._parents_miss = False
        self.gap = self.gap or self.differs

    def miss_parent(self) -> None:
        """The peer has sent an entry whose parent is not here."""
        self._parents_miss = True
        self.gap = True

    @property
    def differs(self) -> bool:
        """Whether the peer has something that is not here, as far as it has told."""
        return self._parents_miss or self._peer_root not in (None, self._log.root_hash())

    @property
    def _full(self) -> bool:
        return self._outbox.waiting > self._limits.push_backlog


def _hash_of(encoded: bytes) -> bytes:
    """The hash of an encoded entry: its signature is no part of it."""
    return sha224(encoded[:-SIGNATURE_SIZE])
