"""Their list against ours: what to ask for, what to send, where to look closer.  No I/O.

The items of a path are its own entries (key: the entry's hash) and its sub-paths (key: SHA-224 of the name, so that
similar names spread evenly), ordered by key, so that any prefix can be listed or aggregated (docs/sync-protocol.md, 3).

Own entries are settled before sub-paths, because whatever is below may depend on them (a parent, a grant).  Where they
are so many that they had to be aggregated, and differ, the sub-paths wait for the next round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Generic, TypeVar

from basefs.log.hashes import HASH_SIZE, ZERO_HASH, EntryHash, sha224
from basefs.log.interface import Listing, LogState
from basefs.path import Path
from basefs.sync.wire.limits import MAX_ITEMS
from basefs.sync.wire.messages import PAUSE, WHOLE, ItemKind, Ls, Part

T = TypeVar("T")

#: Items indexed before other work gets a turn (about 2 ms).
_ITEMS_PER_SLICE = 1024


@dataclass(frozen=True, slots=True)
class Own:
    """An own entry of a path.

    `order` is its place in the listing, which is in the order of the log: nothing depends on what comes later.
    """

    hash: EntryHash
    order: int


@dataclass(frozen=True, slots=True)
class Child:
    """A sub-path: its name and its Merkle hash."""

    name: bytes
    value: bytes


def in_log_order(entries: list[Own]) -> list[Own]:
    """The order in which entries are listed, asked for and sent, so that the receiver can accept each at once."""
    return sorted(entries, key=lambda own: own.order)


class _Ordered(Generic[T]):
    """Items of one kind, sorted by hexadecimal key; `values` are their hashes, empty if they are not in the tree."""

    def __init__(self, items: list[tuple[str, bytes, T]]) -> None:
        items.sort(key=itemgetter(0))
        self.keys = [key for key, _, _ in items]
        self.values = [value for _, value, _ in items]
        self.items = [item for _, _, item in items]

    def range(self, prefix: str) -> tuple[int, int]:
        """Where the keys with this prefix are."""
        # 'g' follows every hexadecimal digit.
        return bisect_left(self.keys, prefix), bisect_left(self.keys, prefix + "g")

    def value(self, prefix: str) -> bytes:
        """The hash of all values in their order; `ZERO_HASH` if there are none."""
        low, high = self.range(prefix)
        values = b"".join(self.values[low:high])
        return sha224(values) if values else ZERO_HASH

    def buckets(self, prefix: str) -> dict[str, bytes]:
        """Next digit -> hash of the values, of each digit that occurs."""
        low, high = self.range(prefix)
        place = len(prefix)
        digits = dict.fromkeys(key[place] for key in self.keys[low:high])
        return {digit: self.value(prefix + digit) for digit in digits}


class Index:
    """A snapshot of a `Listing`, searchable by prefix."""

    def __init__(
        self, own: list[tuple[str, bytes, Own]], children: list[tuple[str, bytes, tuple[bytes, bytes]]]
    ) -> None:
        """Items with their keys and values; a sub-path is its name and its Merkle hash."""
        self._own = _Ordered(own)
        self._children = _Ordered(children)

    def __len__(self) -> int:
        """Number of items."""
        return len(self._own.keys) + len(self._children.keys)

    def own(self, prefix: str) -> list[Own]:
        """Own entries whose hash begins with `prefix`."""
        low, high = self._own.range(prefix)
        return self._own.items[low:high]

    def children(self, prefix: str = "") -> list[Child]:
        """Sub-paths the SHA-224 of whose name begins with `prefix`."""
        low, high = self._children.range(prefix)
        # Few of a large directory are ever looked at.
        return [Child(name, value) for name, value in self._children.items[low:high]]

    def entry_buckets(self, prefix: str) -> dict[str, bytes]:
        """The hashes of the own entries below `prefix`, by next digit."""
        return self._own.buckets(prefix)

    def child_buckets(self, prefix: str) -> dict[str, bytes]:
        """The hashes of the sub-paths below `prefix`, by next digit."""
        return self._children.buckets(prefix)

    def value(self, part: Part) -> bytes:
        """The hash of a part of one kind."""
        items: _Ordered[Any] = self._own if part.kind is ItemKind.ENTRIES else self._children
        return items.value(part.prefix)

    def ls(self, path: Path, part: Part) -> Ls:
        """The LS of a part of this path: listed if there are at most `MAX_ITEMS` of a kind, else aggregated."""
        prefix = part.prefix
        entries: list[Own] = []
        children: list[Child] = []
        entry_buckets = child_buckets = None
        if part.kind is not ItemKind.CHILDREN:
            if self._few(self._own, prefix):
                entries = in_log_order(self.own(prefix))
            else:
                entry_buckets = self.entry_buckets(prefix)
        if part.kind is not ItemKind.ENTRIES:
            if self._few(self._children, prefix):
                children = self.children(prefix)
            else:
                child_buckets = self.child_buckets(prefix)
        return Ls(
            path,
            part,
            entries=tuple(own.hash for own in entries),
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
    own: list[tuple[str, bytes, Own]] = []
    for order, entry in enumerate(listing.entries, 1):
        own.append((entry.hex(), entry, Own(entry, order)))
        if order % _ITEMS_PER_SLICE == 0:
            yield PAUSE
    children: list[tuple[str, bytes, tuple[bytes, bytes]]] = []
    for start in range(0, len(listing.children), _ITEMS_PER_SLICE):
        some = listing.children[start : start + _ITEMS_PER_SLICE]
        children += [(sha224(child[0]).hex(), child[1], child) for child in some]
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
    of its prefixes while its entries are arriving.  The entries that a snapshot misses were gained since, and cost at
    worst a duplicate or are found in the next round.
    """

    def __init__(self, state: LogState, most: int = 32_768) -> None:
        """`most`: items that are kept."""
        self._state = state
        self._most = most
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
        while self._items > self._most and len(self._cache) > 1:
            self._items -= _weight(*self._cache.popitem(last=False))
        return index


@dataclass(frozen=True, slots=True)
class Subtree:
    """A part of a path that has to be listed to the peer.

    `theirs`: the hash of what the peer has there; empty where that is not known.
    """

    path: Path
    part: Part
    theirs: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class MissingSubtrees:
    """Sub-paths of a path of which nothing was here, and the Merkle hash that each has at the peer, by name."""

    path: Path
    theirs: dict[bytes, bytes]


@dataclass(slots=True)
class Differences:
    """What follows from a comparison.

    Attributes:
        ask_entries: entries that the peer has and we lack.
        ask_children: sub-paths of which we lack everything, by name, with the Merkle hash that each has at the peer.
        ask_whole: everything at and below this path is to be asked for.
        look: parts that differ: the peer shall see our list of them.
        send_entries: own entries of this path that the peer lacks.
        send_paths: sub-paths of which the peer has nothing.
        deferred: sub-paths were left for the next round.
    """

    ask_entries: list[EntryHash] = field(default_factory=list)
    ask_children: dict[bytes, bytes] = field(default_factory=dict)
    ask_whole: bool = False
    look: list[Subtree] = field(default_factory=list)
    send_entries: list[EntryHash] = field(default_factory=list)
    send_paths: list[Path] = field(default_factory=list)
    deferred: bool = False


def compare(theirs: Ls, index: Index | None) -> Differences:
    """Compare the peer's LS with our index of the same path; None if we know nothing of it."""
    plan = Differences()
    if index is None:
        plan.ask_whole = _lists_anything(theirs)
        return plan
    if theirs.part.kind is not ItemKind.CHILDREN:
        _compare_own(theirs, index, plan)
    # Sub-paths were not compared yet, so these are prefixes of own entries.
    plan.deferred = bool(plan.look)
    if theirs.part.kind is not ItemKind.ENTRIES and not plan.deferred:
        _compare_children(theirs, index, plan)
    return plan


def _lists_anything(theirs: Ls) -> bool:
    return bool(theirs.entries or theirs.children or theirs.entry_buckets or theirs.child_buckets)


def _differing(theirs: dict[str, bytes], ours: dict[str, bytes]) -> tuple[list[str], list[str]]:
    """Digits under which both have something that differs, and digits under which only we have something."""
    differ = [digit for digit, value in theirs.items() if value != ours.get(digit, ZERO_HASH)]
    return sorted(differ), sorted(set(ours) - set(theirs))


def _compare_own(theirs: Ls, index: Index, plan: Differences) -> None:
    prefix = theirs.part.prefix
    if theirs.entry_buckets is not None:
        return _compare_own_buckets(theirs, theirs.entry_buckets, index, plan)
    known = set(theirs.entries)
    ours = in_log_order(index.own(prefix))
    plan.send_entries += [own.hash for own in ours if own.hash not in known]
    here = {own.hash for own in ours}
    plan.ask_entries += [entry for entry in theirs.entries if entry not in here]


def _compare_own_buckets(theirs: Ls, buckets: dict[str, bytes], index: Index, plan: Differences) -> None:
    prefix = theirs.part.prefix
    differ, only_ours = _differing(buckets, index.entry_buckets(prefix))
    plan.look += [Subtree(theirs.path, Part(ItemKind.ENTRIES, prefix + digit), buckets[digit]) for digit in differ]
    missing = [own for digit in only_ours for own in index.own(prefix + digit)]
    plan.send_entries += [own.hash for own in in_log_order(missing)]


def _compare_children(theirs: Ls, index: Index, plan: Differences) -> None:
    path, prefix = theirs.path, theirs.part.prefix
    if theirs.child_buckets is not None:
        differ, only_ours = _differing(theirs.child_buckets, index.child_buckets(prefix))
        for digit in only_ours:
            for child in index.children(prefix + digit):
                plan.send_paths.append((*path, child.name))
        buckets = theirs.child_buckets
        plan.look += [Subtree(path, Part(ItemKind.CHILDREN, prefix + digit), buckets[digit]) for digit in differ]
        return
    hashes = dict(theirs.children)
    for child in index.children(prefix):
        value = hashes.pop(child.name, None)
        if value is None:
            plan.send_paths.append((*path, child.name))
        elif value != child.value:
            plan.look.append(Subtree((*path, child.name), WHOLE, value))
    plan.ask_children |= hashes
