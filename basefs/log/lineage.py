"""Lineages: the writes that a content builds on, back to one that decodes without another.

The content at an entry is that of the nearest write, and a delta builds on the content at its parent (docs/formats.md,
section 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from basefs.errors import DamagedLog, IncompleteContent
from basefs.log import codecs
from basefs.log.blocks import LISTED, Block, Encoded, places
from basefs.log.entries import KEEPING_ACTIONS, Action, Entry
from basefs.log.hashes import BlockHash, EntryHash
from basefs.log.placement import EntryKind, Placed
from basefs.log.remembered import Remembered

#: Behind this many deltas comes a keyframe, so that a cold read costs the same after 30 or 3000 edits.  More
#: would save blocks on files that change often, fewer would make them quicker to read.
KEYFRAME_AFTER = 32
#: No reader decodes more than this many: other writers may count differently, or mean harm.
MOST_DELTAS = 64
#: Blocks that are read while the lock is held: at most 512 KiB, about 3 ms.
_BLOCKS_AT_ONCE = 16
#: Deltas that are known to be complete, about 100 bytes each.
_REMEMBERED_COMPLETE = 20_000
#: Writes of which it is known how many deltas they are behind a keyframe, about 100 bytes each.
_REMEMBERED_DEPTHS = 10_000


@dataclass(frozen=True, slots=True)
class Lineage:
    """The write entries from a content back to where decoding can start.

    Attributes:
        writes: newest first.
        delta_bytes: bytes of the deltas among them.
    """

    writes: tuple[Placed, ...]
    delta_bytes: int


class ContentSource(Protocol):
    """Where entries and blocks are, `basefs/log/store.py` or `basefs/log/snapshots.py`."""

    def get(self, hash: EntryHash) -> Placed | None:
        """An entry, or `None` if it is unknown or damaged."""

    def block(self, hash: BlockHash) -> Block | None:
        """A block, or `None` if it is unknown or damaged."""

    def is_complete(self, write: EntryHash) -> bool:
        """Whether all blocks of a write are here."""


class Lineages:
    """The lineages of the contents of one log.  Methods need the lock unless they say otherwise."""

    def __init__(self, store: ContentSource, lock: AbstractContextManager[object]) -> None:
        """`lock` must be one that its holder may take again."""
        self._store = store
        self._lock = lock
        self._complete: set[EntryHash] = set()
        self._depths: Remembered[EntryHash, int] = Remembered(_REMEMBERED_DEPTHS)

    def source(self, entry: EntryHash) -> EntryHash | None:
        """The write entry whose content the path had at `entry`; `None` where it was no file.

        Raises `IncompleteContent` if an entry on the way is unknown, or a revert names an entry of another path: what
        lies elsewhere cannot change this path by its arrival.
        """
        hash = entry
        path_id: int | None = None
        while True:
            placed = self._store.get(hash)
            if placed is None:
                raise IncompleteContent(f"entry {hash.hex()[:12]} has not arrived yet")
            action = placed.entry.action
            if path_id not in (None, placed.path_id):
                raise IncompleteContent(f"entry {hash.hex()[:12]} is not a revision of the path that a revert names")
            path_id = None
            if action is Action.WRITE:
                return hash
            if action in (Action.REVERT, Action.LINK):
                path_id = placed.path_id if action is Action.REVERT else None
                hash = EntryHash(placed.entry.content)
            elif action in KEEPING_ACTIONS:
                hash = placed.entry.parent
            else:
                return None

    def base(self, write: Placed) -> EntryHash | None:
        """The write entry on which a write builds, `None` where there is none.  Raises as `source`."""
        return self.source(write.entry.parent) if write.kind is EntryKind.SUCCESSOR else None

    def is_complete(self, write: Placed) -> bool:
        """Whether a write entry is complete, and all that its content builds on."""
        visited: list[EntryHash] = []
        current: Placed | None = write
        while current is not None and current.entry.hash not in self._complete:
            if not self._store.is_complete(current.entry.hash):
                return False
            if current.kind is not EntryKind.SUCCESSOR or is_keyframe(current.entry):
                # It builds on nothing, which is quick to find out again.
                break
            visited.append(current.entry.hash)
            try:
                base = self.base(current)
            except IncompleteContent:
                return False
            current = None if base is None else self._store.get(base)
        if len(self._complete) > _REMEMBERED_COMPLETE:
            self._complete.clear()
        self._complete.update(visited)
        return True

    def lacking(self, write: EntryHash) -> set[EntryHash]:
        """The writes that are not complete of those without which the content of a write entry cannot be read, as far
        as is known.
        """
        found: set[EntryHash] = set()
        hash: EntryHash | None = write
        for _ in range(MOST_DELTAS + 1):
            placed = None if hash is None else self._store.get(hash)
            if placed is None:
                break
            if not self._store.is_complete(placed.entry.hash):
                found.add(placed.entry.hash)
            if is_keyframe(placed.entry):
                break
            try:
                hash = self.base(placed)
            except IncompleteContent:
                break
        return found

    def deltas(self, write: EntryHash) -> int:
        """How many deltas decode the content of a write entry; counts up to `MOST_DELTAS` + 1.

        Raises `IncompleteContent`.
        """
        passed: list[EntryHash] = []
        count = 0
        hash: EntryHash | None = write
        while hash is not None and len(passed) <= MOST_DELTAS:
            known = self._depths.get(hash)
            if known is not None:
                count = known
                break
            placed = self._store.get(hash)
            if placed is None:
                raise IncompleteContent(f"entry {hash.hex()[:12]} has not arrived yet")
            if is_keyframe(placed.entry):
                break
            passed.append(hash)
            hash = self.base(placed)
        if len(passed) <= MOST_DELTAS:
            for number, each in enumerate(reversed(passed), count + 1):
                self._depths.keep(each, number)
        return min(count + len(passed), MOST_DELTAS + 1)

    def of(self, write: EntryHash) -> Lineage:
        """The lineage that decodes the content of a write entry, or as much of it as is too long for another delta.

        Takes the lock.  Raises `IncompleteContent`.
        """
        writes: list[Placed] = []
        delta_bytes = 0
        hash: EntryHash | None = write
        while hash is not None and len(writes) <= KEYFRAME_AFTER:
            with self._lock:
                placed = self._store.get(hash)
                if placed is None:
                    raise IncompleteContent(f"entry {hash.hex()[:12]} has not arrived yet")
                writes.append(placed)
                if is_keyframe(placed.entry):
                    break
                hash = self.base(placed)
            encoded = placed.entry.encoded
            delta_bytes += 0 if encoded is None else encoded.length
        return Lineage(tuple(writes), delta_bytes)

    def encoded(self, encoded: Encoded) -> Iterator[bytes]:
        """The encoding of a complete content, some blocks at a time.  Takes the lock.

        Raises `DamagedLog` where a block is missing or damaged.
        """
        waiting: list[BlockHash] = []
        for place in places(encoded.place, self._read):
            if place.role not in LISTED:
                waiting.append(place.hash)
            if len(waiting) == _BLOCKS_AT_ONCE:
                yield self._joined(waiting)
                waiting.clear()
        if waiting:
            yield self._joined(waiting)

    def _joined(self, hashes: list[BlockHash]) -> bytes:
        with self._lock:
            return b"".join(map(self._read, hashes))

    def _read(self, hash: BlockHash) -> bytes:
        with self._lock:
            block = self._store.block(hash)
        if block is None:
            raise DamagedLog(f"block {hash.hex()[:12]} is missing or damaged: see 'basefs check'")
        return block.data


def is_keyframe(write: Entry) -> bool:
    """Whether the content of a write decodes without the one before, or not at all."""
    encoded = write.encoded
    return encoded is None or codecs.is_keyframe(encoded.codec)
