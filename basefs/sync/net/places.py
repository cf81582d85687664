"""Slots for sessions that others open, shared fairly among parties.

Where all are taken, the party that has most of them loses one to a party that would still have fewer.  Those that are
known come first: for one of them a stranger loses its only place.  So two hosts, or two keys, with any number of
connections leave a place for everybody else.  A party loses a place only to one that would still have fewer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from basefs.sync.net.parties import Party

Guest = TypeVar("Guest", bound=Hashable)


class Places(Generic[Guest]):
    """Some places, and who has them."""

    def __init__(
        self,
        most: int,
        per_party: int,
        is_known: Callable[[Party], bool] = lambda who: True,
        rng: random.Random | None = None,
    ) -> None:
        """`most`: slots in all; `per_party`: slots for one party; `is_known`: whether a party is no stranger.

        `rng`: draws the guest that a party loses.
        """
        self._rng = rng or random.Random()
        self._most = most
        self._per_party = per_party
        self._is_known = is_known
        self._found: dict[Guest, Party] = {}
        self._counts: Counter[Party] = Counter()

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._found)

    def admit(self, who: Party) -> bool:
        """Whether there is a place for a party, perhaps that of another one."""
        return self._counts[who] < self._per_party and (len(self) < self._most or self._loser(who) is not None)

    def enter(self, guest: Guest, who: Party) -> Guest | None:
        """Give a slot to a guest; returns the guest that was evicted for it, if any.

        Where there is none for it, it is the guest itself that is returned.
        """
        if not self.admit(who):
            return guest
        loser = self._loser(who) if len(self) >= self._most else None
        unlucky = None
        if loser is not None:
            unlucky = self._rng.choice([other for other, party in self._found.items() if party == loser])
            self.leave(unlucky)
        self._found[guest] = who
        self._counts[who] += 1
        return unlucky

    def leave(self, guest: Guest) -> None:
        """A guest needs its place no longer, or has lost it already."""
        who = self._found.pop(guest, None)
        if who is not None:
            self._counts[who] -= 1
            self._counts += Counter()  # drops those without a place

    def _loser(self, who: Party) -> Party | None:
        """The party that has to give a place to another one, `None` if none has to."""
        fullest = max(self._counts, key=self._rank, default=None)
        theirs = (not self._is_known(who), self._counts[who] + 1)
        return fullest if fullest is not None and self._rank(fullest) > theirs else None

    def _rank(self, who: Party) -> tuple[bool, int]:
        return not self._is_known(who), self._counts[who]
