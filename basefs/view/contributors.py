"""Contributors: the keys that have signed a branch of a path.

A key holder can have thousands of keys sign one path, so each entry of a branch must not hold a collection of its own:
values share what they have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from basefs.log.hashes import Fingerprint

#: Authority of nobody: below every depth that a path can have.
_NO_AUTHORITY = 1 << 30
#: Up to so many keys are copied.
_FEW = 8


class Contributors:
    """A set of keys, and the highest authority among them.  Immutable.

    Attributes:
        best: the least depth of their authorities.
    """

    __slots__ = ("_count", "_places", "best")

    def __init__(self, places: dict[Fingerprint, int], count: int, best: int) -> None:
        """The first `count` keys of `places`, which holds the place of each and may be extended later."""
        self._places = places
        self._count = count
        self.best = best

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(key: Fingerprint, depth: int) -> Contributors:
        """One key, with its authority; most paths have no other, so they share the object."""
        return Contributors({key: 0}, 1, depth)

    @classmethod
    def united(cls, parts: Iterable[Contributors]) -> Contributors:
        """All keys of these; the cost is that of all but the largest."""
        ordered = sorted(parts, key=len, reverse=True)
        found = ordered[0] if ordered else NOBODY
        for part in ordered[1:]:
            found = found.with_others(part)
        return found

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Fingerprint]:
        return islice(self._places, self._count)

    def __contains__(self, key: object) -> bool:
        return self._places.get(key, self._count) < self._count  # type: ignore[call-overload, no-any-return]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contributors) and self.best == other.best and set(self) == set(other)

    __hash__ = None  # type: ignore[assignment]  # compared, never looked up

    def with_others(self, others: Contributors) -> Contributors:
        """These and others; the cost is that of the others, this object if it holds them already."""
        is_part = others._places is self._places and others._count <= self._count
        new = () if is_part else [key for key in others if key not in self]
        best = min(self.best, others.best)
        if not new:
            return self if best == self.best else Contributors(self._places, self._count, best)
        places = self._places
        if self._count <= _FEW or len(places) != self._count:
            # Another value has extended it.
            places = dict(islice(places.items(), self._count))
        for key in new:
            places[key] = len(places)
        return Contributors(places, len(places), best)


NOBODY = Contributors({}, 0, _NO_AUTHORITY)
