"""A bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A dict that forgets what was set longest ago.  Not thread-safe, unlike `Remembered` of the log."""

    def __init__(self, most: int = 4096) -> None:
        """`most`: keys remembered, about 200 bytes each with their values."""
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)

    def note(self, key: K, value: V) -> bool:
        """Set a key; returns whether it was unknown."""
        is_news = key not in self
        self[key] = value
        return is_news
