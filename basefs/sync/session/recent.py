"""The latest hashes of many, to tell what is news from what is not."""

from __future__ import annotations

from collections import OrderedDict


class Recent:
    """A set of bounded size that forgets what was not seen for longest."""

    def __init__(self, most: int) -> None:
        """`most`: hashes remembered, about 130 bytes each."""
        self._most = most
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, hash: bytes) -> bool:
        return hash in self._seen

    def add(self, hash: bytes) -> bool:
        """Remember a hash; returns whether it was news."""
        news = self._seen.pop(hash, False) is False
        self._seen[hash] = None
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return news
