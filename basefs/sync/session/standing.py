"""The part of a session that stands: news both ways, unasked, until one side leaves.  No I/O and no clock.

What is lost on the way (a slow connection, an entry whose parent is missing here) is never repaired in place: a `gap`
is noted, and another session compares and fetches.  The root hash, told now and then, finds what nobody noticed.

Of all the sessions between some nodes a tree is enough to bring news to each of them once.  So over a session that
brought what was known already nothing is pushed any more: it is *lazy*, and the root hash is told instead, a moment
later.  Who lacks something then has what was kept back sent (J. Leitão et al., Epidemic Broadcast Trees, 2007).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from basefs.log.entries import hash_of
from basefs.log.interface import LogState
from basefs.sync.session.backlog import Backlog, News
from basefs.sync.session.outbox import Outbox
from basefs.sync.session.recent import Recent
from basefs.sync.session.result import Counters
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import MAX_KEPT, Limits
from basefs.sync.wire.messages import PAUSE, Eager, Lazy, Root
from basefs.sync.wire.parcels import Packer

#: Entries that are remembered as known to the peer.  What is forgotten may be sent once more, which costs bytes only.
_KNOWN = 4096
#: Root hashes that are remembered: several seconds of steady changes.
_PASSED = 256


class Standing:
    """What one side of a standing session knows.

    Invariant: of two peers with different logs at least one has a reason to look.  Each tells its root hash unless that
    is what was told last by either side; who has heard the last one, and has another, is told of a `gap` again and
    again until both are equal.

    Attributes:
        began: whether it stands, or has stood.
        gap: whether the peer has told of something that is not here.
        lazy: whether news is kept back on both sides.
        repeats: whether the peer has sent what was here already, although it need not.
    """

    def __init__(self, log: LogState, outbox: Outbox, counters: Counters, limits: Limits) -> None:
        self._log = log
        self._outbox = outbox
        self._packer = Packer(log, counters)
        self._limits = limits
        self._known = Recent(_KNOWN)
        self._told: bytes | None = None
        self._told_at: float | None = None
        self._heard: bytes | None = None
        #: Whether the last root hash on the connection is the peer's.
        self._my_turn = False
        self._looked_at = 0.0
        self._owes_root = False
        self._parents_miss = False
        #: The latest news that a lazy peer was not sent, and how much there was since a root hash was told.
        self._kept: deque[bytes] = deque(maxlen=MAX_KEPT)
        self._unsent = 0
        self._peer_keeps = 0
        self._backlog = Backlog()
        #: The roots that this log went through: a peer that tells one of them is behind, not ahead.
        self._passed = Recent(_PASSED)
        self.began = False
        self.gap = False
        self.lazy = False
        self.repeats = False

    def begin(self) -> None:
        """It stands now; both logs may have grown since they were compared."""
        self.began = True
        self._tell()

    # Telling

    def push(self, entries: Sequence[bytes]) -> None:
        """Send encoded entries, with their blocks, unless the peer has them; or keep them back."""
        self._passed.add(self._log.root_hash())
        news = [entry for entry in entries if self._known.add(hash_of(entry))]
        if self.lazy:
            self._kept += news
            self._unsent += len(news)
        else:
            self._send(news)

    def push_later(self, news: Sequence[News]) -> None:
        """The same, as soon as the connection takes it: `go_on` sends it."""
        if self.lazy:
            self.push([each.entry for each in news])
        else:
            self._passed.add(self._log.root_hash())
            self._backlog.add(news)

    @property
    def waits(self) -> bool:
        """Whether news waits for the connection: call `go_on` again in a while."""
        return bool(self._backlog)

    def go_on(self, on_the_way: int, now: float) -> None:
        """Send what waits, as far as the connection takes it.

        Args:
            on_the_way: bytes that were sent and that the peer has not acknowledged.
            now: seconds.
        """
        on_the_way += self._outbox.waiting
        if self._backlog.is_late(on_the_way, now):
            # The connection is slower than the news: the peer compares when this is through.
            return self._give_up()
        entries, left_out = self._backlog.take(on_the_way, now)
        self._owes_root = self._owes_root or left_out
        self._send([entry for entry in entries if self._known.add(hash_of(entry))])
        self.sent()

    def _give_up(self) -> None:
        if self._backlog:
            self._backlog.clear()
            self._owes_root = True
            self.sent()

    def _send(self, news: Sequence[bytes]) -> None:
        for line in self._packer.entries(news):
            if line == PAUSE:
                continue
            if self._full:
                # The connection is slower than the news: the peer compares when this is through.
                self._owes_root = True
                return
            self._outbox.control(line)

    def tell_root(self) -> None:
        """There is news that was not pushed: where it is news, the peer will compare."""
        self._kept.clear()
        self.tell_if_new()

    def tell_if_new(self) -> None:
        """Tell the root hash, unless both sides know that they agree."""
        root = self._log.root_hash()
        if root == self._heard:
            self._kept.clear()
        elif root != self._told:
            self._tell()

    def _tell(self) -> None:
        if self._full or self._backlog:
            self._owes_root = True
            return
        self._told, entries = self._log.digest()
        self._passed.add(self._told)
        self._told_at = None
        self._my_turn = False
        kept = self._unsent if self._unsent <= len(self._kept) else 0
        self._unsent = 0
        self._outbox.control(encode(Root(self._told, entries, kept)))

    def sent(self) -> None:
        """Something has left: send what had to wait for it."""
        if self._owes_root and not (self._outbox.waiting or self._backlog):
            self._owes_root = False
            self._kept.clear()
            self._tell()

    def tick(self, now: float) -> None:
        """Tell the time, in seconds."""
        if self._told_at is None:
            self._told_at = now
        elif now - self._told_at >= self._limits.silence:
            self._tell()
        elif now - self._told_at >= self._limits.heartbeat:
            self.tell_if_new()
        if self._my_turn and self.differs and now - self._looked_at >= self._limits.heartbeat:
            # The last attempt to fetch it may have failed.
            self._looked_at = now
            self._peer_keeps = 0
            self.gap = True

    # Hearing

    def heard(self, entries: Sequence[bytes]) -> None:
        """The peer has sent these encoded entries, which are not in the log yet."""
        hashes = [hash_of(entry) for entry in entries]
        for hash in hashes:
            self._known.add(hash)
        if not self.lazy and all(self._log.entry(hash) is not None for hash in hashes):
            self.repeats = True

    def heard_root(self, root: bytes, kept: int) -> None:
        """The peer has told its root hash, and how many entries it keeps back."""
        self._heard = root
        self._peer_keeps = kept
        self._parents_miss = False
        self._my_turn = True
        self.gap = self.gap or self.differs
        if root == self._log.root_hash():
            self._kept.clear()

    def miss_parent(self) -> None:
        """The peer has sent an entry whose parent is not here."""
        self._parents_miss = True
        self.gap = True

    def heard_bearing(self, *, lazy: bool) -> None:
        """The peer wants news kept back, or sent."""
        was, self.lazy = self.lazy, lazy
        if lazy:
            self._give_up()
        if was and not lazy:
            kept = list(self._kept)
            self._kept.clear()
            self._unsent = 0
            self._send(kept)
            # Whatever was not kept is found by comparing.
            self._tell()

    # Deciding

    def be_lazy(self) -> None:
        """This session brings what others have brought: root hashes are enough."""
        if not self.lazy:
            self.lazy = True
            self._give_up()
            self._outbox.control(encode(Lazy()))

    def be_eager(self) -> bool:
        """Have the peer send what it keeps back, and news from now on; False if that would bring nothing."""
        if not self.lazy or not self._peer_keeps:
            return False
        self.lazy = False
        self._peer_keeps = 0
        self._outbox.control(encode(Eager()))
        return True

    @property
    def differs(self) -> bool:
        """Whether the peer has something that is not here, as far as it has told."""
        heard = self._heard
        return self._parents_miss or not (heard is None or heard == self._log.root_hash() or heard in self._passed)

    @property
    def agrees(self) -> bool:
        """Whether the peer is known to have the log as it is here, or will look for itself."""
        root = self._log.root_hash()
        return root == self._heard or (root == self._told and not self._my_turn)

    @property
    def _full(self) -> bool:
        return self._outbox.waiting > self._limits.push_backlog
