"""The items of one path, ordered by key, so that any prefix can be listed or aggregated (docs/sync-protocol.md, 2).

The items of a path are its own entries (key: the entry's hash) and its sub-paths (key: SHA-224 of the name, so that
similar names spread evenly).  The XOR of the values of all items is the hash of the path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter, xor
from typing import Any, Generic, TypeVar

from basefs.log.hashes import HASH_SIZE, BlockHash, EntryHash, sha224
from basefs.log.interface import Listing, LogState
from basefs.path import Path
from basefs.sync.wire.limits import MAX_ITEMS
from basefs.sync.wire.messages import PAUSE, Kind, Ls, Part

T = TypeVar("T")
_KEY = itemgetter(0)

#: Items indexed before other work gets a turn (about 2 ms).
_ITEMS_PER_SLICE = 1024
#: Items kept indexed in one session (about 300 bytes each); the path at hand is kept whatever its size.
_MAX_CACHED_ITEMS = 32_768


@dataclass(frozen=True, slots=True)
class Own:
    """An own entry of a path: in the tree, stalled (`block` is the last that arrived), or receiving.

    `order` is its place in the listing, which is in the order of the log: nothing depends on what comes later.
    """

    hash: EntryHash
    order: int
    block: BlockHash | None = None
    receiving: bool = False


@dataclass(frozen=True, slots=True)
class Child:
    """A sub-path: its name and its Merkle hash."""

    name: bytes
    value: bytes


def in_log_order(entries: list[Own]) -> list[Own]:
    """The order in which entries are listed, asked for and sent, so that the receiver can accept each at once."""
    return sorted(entries, key=lambda own: own.order)


class _Ordered(Generic[T]):
    """Items of one kind, sorted by hexadecimal key; `values` are what they add to the Merkle hash."""

    def __init__(self, items: list[tuple[str, int, T]]) -> None:
        items.sort(key=_KEY)
        self.keys = [key for key, _, _ in items]
        self.values = [value for _, value, _ in items]
        self.items = [item for _, _, item in items]

    def range(self, prefix: str) -> tuple[int, int]:
        """Where the keys with this prefix are."""
        # 'g' follows every hexadecimal digit.
        return bisect_left(self.keys, prefix), bisect_left(self.keys, prefix + "g")

    def total(self, prefix: str) -> int:
        """The XOR of the values."""
        low, high = self.range(prefix)
        return reduce(xor, self.values[low:high], 0)

    def buckets(self, prefix: str) -> dict[str, bytes]:
        """Next digit -> XOR of the values, of each digit that occurs."""
        sums: dict[str, int] = {}
        low, high = self.range(prefix)
        place = len(prefix)
        for index in range(low, high):
            digit = self.keys[index][place]
            sums[digit] = sums.get(digit, 0) ^ self.values[index]
        return {digit: value.to_bytes(HASH_SIZE, "big") for digit, value in sums.items()}


class Index:
    """A snapshot of a `Listing`, searchable by prefix."""

    def __init__(self, own: list[tuple[str, int, Own]], children: list[tuple[str, int, tuple[bytes, bytes]]]) -> None:
        """Items with their keys and values; a sub-path is its name and its Merkle hash."""
        self._own = _Ordered(own)
        self._children = _Ordered(children)

    def __len__(self) -> int:
        """Number of items."""
        return len(self._own.keys) + len(self._children.keys)

    def own(self, prefix: str = "") -> list[Own]:
        """Own entries whose hash begins with `prefix`, receiving ones included."""
        low, high = self._own.range(prefix)
        return self._own.items[low:high]

    def children(self, prefix: str = "") -> list[Child]:
        """Sub-paths the SHA-224 of whose name begins with `prefix`."""
        low, high = self._children.range(prefix)
        # Few of a large directory are ever looked at.
        return [Child(name, value) for name, value in self._children.items[low:high]]

    def entry_buckets(self, prefix: str) -> dict[str, bytes]:
        """The XOR of the own entries below `prefix`, by next digit."""
        return self._own.buckets(prefix)

    def child_buckets(self, prefix: str) -> dict[str, bytes]:
        """The XOR of the sub-paths below `prefix`, by next digit."""
        return self._children.buckets(prefix)

    def value(self, part: Part) -> bytes:
        """What a part contributes to the Merkle hash of the path."""
        entries = 0 if part.kind is Kind.CHILDREN else self._own.total(part.prefix)
        children = 0 if part.kind is Kind.ENTRIES else self._children.total(part.prefix)
        return (entries ^ children).to_bytes(HASH_SIZE, "big")

    def ls(self, path: Path, part: Part) -> Ls:
        """The LS of a part of this path: listed if there are at most `MAX_ITEMS` of a kind, else aggregated."""
        prefix = part.prefix
        entries: list[Own] = []
        children: list[Child] = []
        entry_buckets = child_buckets = None
        if part.kind is not Kind.CHILDREN:
            if self._few(self._own, prefix):
                entries = in_log_order(self.own(prefix))
            else:
                entry_buckets = self.entry_buckets(prefix)
        if part.kind is not Kind.ENTRIES:
            if self._few(self._children, prefix):
                children = self.children(prefix)
            else:
                child_buckets = self.child_buckets(prefix)
        return Ls(
            path,
            part,
            entries=tuple(own.hash for own in entries if own.block is None and not own.receiving),
            stalled=tuple((own.hash, own.block) for own in entries if own.block is not None),
            receiving=tuple(own.hash for own in entries if own.receiving),
            children=tuple((child.name, child.value) for child in children),
            entry_buckets=entry_buckets,
            child_buckets=child_buckets,
        )

    @staticmethod
    def _few(items: _Ordered[Any], prefix: str) -> bool:
        low, high = items.range(prefix)
        return high - low <= MAX_ITEMS or len(prefix) == 2 * HASH_SIZE


EMPTY = Index([], [])


def build(listing: Listing) -> Generator[bytes, None, Index]:
    """Index a listing; yields `PAUSE` now and then, so that a large directory does not hold up everything else."""
    found = [Own(entry, order) for order, entry in enumerate(listing.entries)]
    found += [Own(entry, len(found), block) for entry, block in listing.stalled]
    found += [Own(entry, len(found), receiving=True) for entry in listing.receiving]
    own: list[tuple[str, int, Own]] = []
    for count, item in enumerate(found, 1):
        value = 0 if item.receiving else int.from_bytes(item.hash, "big") ^ int.from_bytes(item.block or b"", "big")
        own.append((item.hash.hex(), value, item))
        if count % _ITEMS_PER_SLICE == 0:
            yield PAUSE
    children: list[tuple[str, int, tuple[bytes, bytes]]] = []
    for start in range(0, len(listing.children), _ITEMS_PER_SLICE):
        some = listing.children[start : start + _ITEMS_PER_SLICE]
        children += [(sha224(child[0]).hex(), int.from_bytes(child[1], "big"), child) for child in some]
        if len(some) == _ITEMS_PER_SLICE:
            yield PAUSE
    return Index(own, children)


def _weight(path: Path, index: Index) -> int:
    """What an index counts in the cache: its items, and a little for itself and the names of its path."""
    return 1 + len(path) // 4 + len(index)


class Indexes:
    """The indexes that a session has at hand.

    An index is a snapshot: it stays as it was when the session first looked at the path, until the next round, or until
    the session goes on after others have asked before it.  A large directory would otherwise be indexed anew for each
    of its prefixes while its entries are arriving.  What a snapshot misses was gained since, and costs at worst a
    duplicate or is found in the next round.
    """

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._cache: OrderedDict[Path, Index] = OrderedDict()
        self._items = 0

    def clear(self) -> None:
        """Look again: a new round begins, or others have brought something."""
        self._cache.clear()
        self._items = 0

    def open(self, path: Path) -> Generator[bytes, None, Index | None]:
        """The index of a path, None if nothing is known of it; yields `PAUSE` while it is being built."""
        if path in self._cache:
            self._cache.move_to_end(path)
            return self._cache[path]
        listing = self._state.listing(path)
        if listing is None:
            return None  # not remembered: a peer could make up any number of paths
        index = yield from build(listing)
        if path not in self._cache:  # another answer may have built it meanwhile
            self._cache[path] = index
            self._items += _weight(path, index)
        while self._items > _MAX_CACHED_ITEMS and len(self._cache) > 1:
            self._items -= _weight(*self._cache.popitem(last=False))
        return index
