"""Whom to fetch from when several peers tell of news at once, and when.  No I/O and no clock.

All of them have the same news as a rule, so one session at a time is enough: several would fetch everything several
times, which on a slow link takes that many times as long.  A session in which nothing moves may be stuck, and one that
was told to wait has others before it: then another one is begun beside it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from basefs.sync.net.schedule import Address
from basefs.sync.session.inflight import CONTENTS_SECONDS

#: Seconds without anything after which another session is begun although the last one has not ended.
PATIENCE = 2.0
#: Seconds, at the most, until the first session: what is on its way over a standing session comes in that time.
JITTER = 0.1
#: Seconds without news before a session begins: in a burst the peers of all sessions tell of what is on its way, and
#: each comparison costs as much as a hundred entries.
QUIET = 0.5
#: Seconds after which it begins all the same, in a burst and while news comes in now and then.
AT_LATEST = 2.0
AT_LATEST_ELSE = 0.5
#: More entries than this within a second are a burst.
BURST_ENTRIES = 16


class Gaps:
    """The peers that have told of something that is not here."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._told: dict[Address, None] = {}
        self._not_before = 0.0
        self._arrived_at = -QUIET
        #: How many entries have come, and since when they were counted.
        self._arrived = 0
        self._counted_since = 0.0
        #: Since when somebody waits to be asked.
        self._since = 0.0
        #: Address -> when something moved last in the session with it that counts, and when it began, seconds.
        self._fetching: dict[Address, tuple[float, float]] = {}
        #: Those of them that were told to wait.
        self._waiting: set[Address] = set()

    def told(self, address: Address, now: float) -> None:
        """A peer has something that is not here; `now` in seconds."""
        if not self._told:
            self._since = now
            self._not_before = now + self._rng.uniform(0, JITTER)
        self._told[address] = None

    def arrived(self, entries: int, now: float) -> None:
        """So many entries of other nodes have come, whoever brought them."""
        if now - self._counted_since > 1.0:
            self._counted_since, self._arrived = now, 0
        self._arrived += entries
        self._arrived_at = now

    def ended(self, address: Address) -> None:
        """A session with a peer has ended."""
        self._fetching.pop(address, None)
        self._waiting.discard(address)

    def moved(self, address: Address, now: float, *, comparing: bool) -> list[Address]:
        """Something has come from a peer.  Returns the peers whose sessions are superfluous now: they let us wait.

        `comparing`: not only contents, which count for `CONTENTS_SECONDS`.
        """
        if address not in self._fetching:
            return []
        _, began = self._fetching[address]
        self._fetching[address] = now if comparing else min(now, began + CONTENTS_SECONDS), began
        self._waiting.discard(address)
        return sorted(self._waiting)

    def waits(self, address: Address) -> None:
        """A peer has told us to wait."""
        if address in self._fetching:
            self._waiting.add(address)

    @property
    def due(self) -> float | None:
        """When to ask for the `next`, in seconds; `None` if nobody has told of anything."""
        if not self._told:
            return None
        busy = [moved for address, (moved, _) in self._fetching.items() if address not in self._waiting]
        latest = AT_LATEST if self._arrived > BURST_ENTRIES else AT_LATEST_ELSE
        quiet = min(self._arrived_at + QUIET, self._since + latest)
        return max(self._not_before, quiet, max(busy) + PATIENCE if busy else 0.0)

    def next(self, now: float, differs: Callable[[Address], bool]) -> Address | None:
        """Whom to fetch from now, `None` if nobody (yet).

        Args:
            now: seconds.
            differs: whether what a peer has told last is still not here.
        """
        while self.due is not None and self.due <= now:
            address = self._rng.choice(list(self._told))
            del self._told[address]
            if differs(address):
                self._since = now
                self._fetching[address] = now, now
                return address
        return None
