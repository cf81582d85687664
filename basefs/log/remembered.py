"""A cache of recent values, kept in memory because they will be needed again."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Remembered(dict[K, V]):
    """A dictionary of bounded size; `keep` inserts.  Thread-safe."""

    def __init__(self, most: int) -> None:
        """`most`: how many are kept at the most."""
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> None:
        """Remember one; where there is no room, the half that was kept first is forgotten."""
        if len(self) >= self._most:
            # One by one would cost more: a dictionary finds its first key by passing all that were removed there.
            for old in list(islice(self, (self._most + 1) // 2)):
                self.pop(old, None)
        self[key] = value
