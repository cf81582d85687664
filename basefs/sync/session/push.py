"""A session that stands: news both ways, unasked, until one side leaves.  No I/O; time is an argument.

What is lost on the way (a slow connection, an entry whose parent is missing here) is never repaired in place: a gap is
reported, and another session compares and fetches.  Root hashes, sent now and then, find what nobody noticed.

Of all the sessions between some nodes a tree of eager ones is enough to bring news to each of them once.  So over a
session that brought what another one had brought nothing is pushed any more: it is lazy, and the root hash is sent
instead, a moment later.  A peer that lacks something then has what was kept back sent (J. Leitão et al., Epidemic
Broadcast Trees, 2007; docs/replication.md has the differences).

A burst over a wide link is cheapest pushed: each entry crosses to each node once, and nothing is compared.  What the
peer acknowledges shows how wide the link is.  Where that is little, or the peer does not read, the news is given up,
and the root hash is sent instead.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from basefs.log.entries import hash_of
from basefs.log.interface import LogState
from basefs.sync.session.exchange import BlockExchange
from basefs.sync.session.recent import Recent
from basefs.sync.session.requests import RequestQueue
from basefs.sync.session.responder import BatchEncoder
from basefs.sync.session.result import SessionCounters
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import ENTRIES_PER_SLICE, MAX_KEPT, Limits
from basefs.sync.wire.messages import PAUSE, Graft, Prune, Root

#: Bytes that may be on their way, as long as it is not known how much the link takes, and at the most.
LEAST_WINDOW = 16 * 1024
MOST_WINDOW = 256 * 1024
#: Seconds in which half of that is acknowledged on a link that takes more: twice as much may be on its way then.
QUICK = 0.1
#: Seconds without room after which the link is too slow, or the peer too busy, and seconds that news may wait: other
#: news waits behind it.  On a busy machine a peer does not read for a second now and then.
PATIENCE = 2.0
MOST_SECONDS = 5.0
#: Entries that wait at the most, 1 kB each.
MOST_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class QueuedPush:
    """Something that was not pushed at once.

    Attributes:
        entry: encoded.
        size: bytes of the entry and its content.
        since: when it came, in seconds.
    """

    entry: bytes
    size: int
    since: float


class PushQueue:
    """What one peer is still to be sent, in the order in which it came."""

    def __init__(self) -> None:
        self._news: deque[QueuedPush] = deque()
        self._window = LEAST_WINDOW
        #: Since when there has been no room.
        self._full_since: float | None = None

    def __len__(self) -> int:
        """How many entries wait."""
        return len(self._news)

    def add(self, news: Iterable[QueuedPush]) -> None:
        """Take what comes after all that waits."""
        self._news.extend(news)

    def clear(self) -> None:
        """Give all of it up, and begin anew as with an unknown link."""
        self._news.clear()
        self._window = LEAST_WINDOW
        self._full_since = None

    def is_late(self, on_the_way: int, now: float) -> bool:
        """Whether it should be given up, with so many bytes sent and not acknowledged."""
        if not self._news:
            return False
        stuck = self._full_since is not None and now - self._full_since > PATIENCE and not self._has_room(on_the_way)
        return stuck or now - self._news[0].since > MOST_SECONDS or len(self._news) > MOST_ENTRIES

    def take(self, on_the_way: int, now: float) -> tuple[list[bytes], bool]:
        """The encoded entries to be sent now, and whether others were left out because they are too large here."""
        entries: list[bytes] = []
        left_out = False
        if self._full_since is not None:
            if not self._has_room(on_the_way):
                return entries, left_out
            if now - self._full_since < QUICK:
                self._window = min(2 * self._window, MOST_WINDOW)
            self._full_since = None
        while self._news and len(entries) < ENTRIES_PER_SLICE:
            if on_the_way >= self._window:
                self._full_since = now
                break
            news = self._news.popleft()
            if news.size > self._window:
                left_out = True
                continue
            on_the_way += news.size
            entries.append(news.entry)
        return entries, left_out

    def _has_room(self, on_the_way: int) -> bool:
        return on_the_way <= self._window // 2


class Notice(enum.Enum):
    """What the owner of a session that stands has to act on."""

    STANDS = "stands"  # it stands from now on
    GAP = "gap"  # the peer has something that is not here, so that another session must fetch it
    REPEATS = "repeats"  # the peer sends what others have brought, so that this session may be a lazy one


class PushSession:
    """What one side of a standing session knows.

    Invariant: of two peers with different logs at least one has a reason to look.  Each tells its root hash unless that
    is what was told last by either side; who has heard the last one, and has another, is told of a `gap` again and
    again until both are equal.

    Attributes:
        began: whether it stands, or has stood.
        lazy: whether news is kept back on both sides.
    """

    def __init__(
        self,
        log: LogState,
        outbox: RequestQueue,
        counters: SessionCounters,
        limits: Limits,
        notify: Callable[[Notice], None],
        exchange: BlockExchange,
        is_member: Callable[[], bool],
    ) -> None:
        """`notify` is called with each notice; the same one may come several times.  `exchange`: of this session.

        `is_member`: see `RemotePeer`.
        """
        self._notify = notify
        self._log = log
        self._outbox = outbox
        self._encoder = BatchEncoder(log, counters, lambda root: self._whole, is_member)
        self._exchange = exchange
        #: Whether contents that may be exchanged were sent whole the last time.
        self._whole = True
        self._limits = limits
        #: What the peer has or was sent, and whether the peer has brought it here.  What is forgotten may be sent once
        #: more, which costs bytes only.
        self._known: Recent[bytes, bool] = Recent()
        self._repeated: Sequence[bytes] = ()
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
        self._backlog = PushQueue()
        #: The roots that this log went through: a peer that tells one of them is behind, not ahead.
        self._passed: Recent[bytes, None] = Recent(256)
        self.began = False
        self.lazy = False

    def begin(self) -> None:
        """It stands now; both logs may have grown since they were compared."""
        self.began = True
        self._notify(Notice.STANDS)
        self._tell()

    # Telling

    def send(self, entries: Sequence[bytes], *, whole: bool = True) -> None:
        """Send encoded entries, with their blocks, unless the peer has them; or keep them back.

        Not `whole`: contents that may be exchanged are.
        """
        self._whole = whole
        self._passed[self._log.root_hash()] = None
        news = self._news(entries)
        if self.lazy:
            self._kept += news
            self._unsent += len(news)
        else:
            self._send(news)

    def send_later(self, news: Sequence[QueuedPush]) -> None:
        """The same, as soon as the connection takes it: `drain` sends it."""
        if self.lazy:
            self.send([each.entry for each in news])
        else:
            self._passed[self._log.root_hash()] = None
            self._backlog.add(news)

    @property
    def waits(self) -> bool:
        """Whether news waits for the connection: call `drain` again in a while."""
        return bool(self._backlog) or self._exchange.waits

    @property
    def owes(self) -> bool:
        """Whether news, or the root hash that tells of it, is still to be given to the connection."""
        return bool(self._outbox.waiting or self._backlog or self._owes_root or (self._kept and self._unsent))

    def drain(self, on_the_way: int, now: float, *, whole: bool = True) -> None:
        """Send what waits, as far as the connection takes it.

        Args:
            on_the_way: bytes that were sent and that the peer has not acknowledged.
            now: seconds.
            whole: see `send`.
        """
        self._whole = whole
        self._exchange.go_on(now, is_idle=not on_the_way)
        on_the_way += self._outbox.waiting
        if self._backlog.is_late(on_the_way, now):
            # The connection is slower than the news: the peer compares when this is through.
            return self._give_up()
        entries, left_out = self._backlog.take(on_the_way, now)
        self._owes_root = self._owes_root or left_out
        self._send(self._news(entries))
        self.sent()

    def _news(self, entries: Iterable[bytes]) -> list[bytes]:
        """Those of these entries that the peer does not have.

        Contents are exchanged that are not complete here, or that are not sent whole to it.
        """
        news = []
        for entry in entries:
            hash = hash_of(entry)
            is_news = self._known.note(hash, self._known.get(hash, False))
            self._exchange.begin(self._log, entry, whole=self._whole or self.lazy or not is_news)
            if is_news:
                news.append(entry)
        return news

    def _give_up(self) -> None:
        if self._backlog:
            self._backlog.clear()
            self._owes_root = True
            self.sent()

    def _send(self, news: Sequence[bytes]) -> None:
        for line in self._encoder.entries(news):
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
        log = self._log.digest()
        self._told = log.root
        self._passed[self._told] = None
        self._told_at = None
        self._my_turn = False
        kept = self._unsent if self._unsent <= len(self._kept) else 0
        self._unsent = 0
        self._outbox.control(encode(Root(log, kept)))

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
            self._notify(Notice.GAP)

    # Hearing

    def heard(self, entries: Sequence[bytes]) -> None:
        """The peer has sent these encoded entries, which are not in the log yet."""
        hashes = [hash_of(entry) for entry in entries]
        is_repeated = all(self._log.entry(hash) is not None for hash in hashes)
        for hash in hashes:
            self._known[hash] = not is_repeated
        if is_repeated and not self.lazy:
            self._repeated = hashes
            self._notify(Notice.REPEATS)

    def repeats(self, other: PushSession) -> bool:
        """Whether another session that stands has brought what this one has sent in vain, and is not lazy.

        What a session that compares has brought may have been missing because there is no other way for news.
        """
        return not other.lazy and all(other._known.get(hash, False) for hash in self._repeated)

    def heard_root(self, root: bytes, kept: int) -> None:
        """The peer has told its root hash, and how many entries it keeps back."""
        self._heard = root
        self._peer_keeps = kept
        self._parents_miss = False
        self._my_turn = True
        if self.differs:
            self._notify(Notice.GAP)
        if root == self._log.root_hash():
            self._kept.clear()

    def miss_parent(self) -> None:
        """The peer has sent an entry whose parent is not here."""
        self._parents_miss = True
        self._notify(Notice.GAP)

    def pruned(self) -> None:
        """The peer wants news kept back."""
        self.lazy = True
        self._give_up()

    def grafted(self) -> None:
        """The peer wants what was kept back, and news as it comes."""
        if not self.lazy:
            return
        self.lazy = False
        kept = list(self._kept)
        self._kept.clear()
        self._unsent = 0
        for entry in kept:
            self._exchange.begin(self._log, entry, whole=self._whole)
        self._send(kept)
        # Whatever was not kept is found by comparing.
        self._tell()

    # Deciding

    def prune(self) -> None:
        """This session brings what others have brought: root hashes are enough."""
        if not self.lazy:
            self.lazy = True
            self._give_up()
            self._outbox.control(encode(Prune()))

    def graft(self) -> bool:
        """Have the peer send news from now on, and what it keeps back; False if more than that is missing."""
        if not self.lazy:
            return False
        self.lazy = False
        self._outbox.control(encode(Graft()))
        keeps, self._peer_keeps = self._peer_keeps, 0
        return keeps > 0

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
