"""News for the peer of a standing session that waits until the connection takes it.  No I/O; time is an argument.

A burst over a wide link is cheapest pushed: each entry crosses to each node once, and nobody compares anything.  How
wide the link is shows in what the peer acknowledges.  Where that is little, or the peer does not read, the news is
given up, and the root hash is told instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from basefs.sync.wire.limits import ENTRIES_PER_SLICE

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
class News:
    """Something that was not pushed at once.

    Attributes:
        entry: encoded.
        size: bytes of the entry and its content.
        since: when it came, in seconds.
    """

    entry: bytes
    size: int
    since: float


class Backlog:
    """What one peer is still to be sent, in the order in which it came."""

    def __init__(self) -> None:
        self._news: deque[News] = deque()
        self._window = LEAST_WINDOW
        #: Since when there has been no room.
        self._full_since: float | None = None

    def __len__(self) -> int:
        """How many entries wait."""
        return len(self._news)

    def add(self, news: Iterable[News]) -> None:
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
