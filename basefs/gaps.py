"""Whom to fetch from when several peers tell of news at once.  No I/O and no clock.

All of them have the same news as a rule, so one session at a time is enough: several would fetch everything several
times, which on a slow link takes that many times as long.  A session in which nothing moves may be stuck, so another
one is begun beside it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from basefs.sync.schedule import Address

#: Seconds without a byte after which another session is begun although the last one has not ended.
PATIENCE = 2.0


class Gaps:
    """The peers that have told of something that is not here."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._told: dict[Address, None] = {}
        self._fetching: dict[Address, float] = {}

    def told(self, address: Address) -> None:
        """A peer has something that is not here."""
        self._told[address] = None

    def ended(self, address: Address) -> None:
        """A session with a peer has ended."""
        self._fetching.pop(address, None)

    def moved(self, address: Address, now: float) -> None:
        """Something has come from a peer; `now` in seconds."""
        if address in self._fetching:
            self._fetching[address] = now

    def next(self, now: float, differs: Callable[[Address], bool]) -> Address | None:
        """Whom to fetch from now, `None` if nobody (yet).

        Args:
            now: seconds.
            differs: whether what a peer has told last is still not here.
        """
        if any(now - moved < PATIENCE for moved in self._fetching.values()):
            return None
        while self._told:
            address = self._rng.choice(list(self._told))
            del self._told[address]
            if differs(address):
                self._fetching[address] = now
                return address
        return None

    @property
    def waiting(self) -> bool:
        """Whether anybody has told of something that was not fetched yet."""
        return bool(self._told)
