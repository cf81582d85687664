"""Lineages: the writes that a content builds on, back to one that decodes without another.

The content at an entry is that of the nearest write, and a delta builds on the content at its parent (docs/formats.md,
section 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from basefs.errors import DamagedLog, IncompleteContent
from basefs.log import codecs
from basefs.log.blocks import LISTED, Block, Encoded, places
from basefs.log.entries import KEEPING_ACTIONS, NAMING_ACTIONS, Action, Entry
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
#: Entries of which it is known where a walk back from them ended, about 100 bytes each.
_REMEMBERED_ENDS = 20_000
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


class _Trail:
    """Walks back through the log from entry to entry.

    A key holder decides how long they are and how many begin close to one another, so each walk goes on where those
    before it ended.  That need not be the end: what has not arrived may come later.
    """

    def __init__(self, behind: Callable[[EntryHash], EntryHash | None]) -> None:
        """`behind`: the next entry of a walk, which is always the same one; `None` at its end; raises
        `IncompleteContent` where it cannot go on yet.
        """
        self._behind = behind
        self._ends: Remembered[EntryHash, EntryHash] = Remembered(_REMEMBERED_ENDS)

    def end(self, start: EntryHash) -> EntryHash:
        """The last entry of the walk from one.  Raises as `behind`."""
        passed: list[EntryHash] = []
        hash = start
        try:
            while (next := self._ends.get(hash) or self._behind(hash)) is not None:
                passed.append(hash)
                hash = next
        finally:
            for each in passed:
                self._ends.keep(each, hash)
        return hash


class Lineages:
    """The lineages of the contents of one log.  Methods need the lock unless they say otherwise."""

    def __init__(self, store: ContentSource, lock: AbstractContextManager[object]) -> None:
        """`lock` must be one that its holder may take again."""
        self._store = store
        self._lock = lock
        self._sources = _Trail(self._before)
        self._chains = _Trail(self._below)
        self._depths: Remembered[EntryHash, int] = Remembered(_REMEMBERED_DEPTHS)

    def source(self, entry: EntryHash) -> EntryHash | None:
        """The write entry whose content the path had at `entry`; `None` where it was no file.

        Raises `IncompleteContent` if an entry on the way is damaged.
        """
        end = self._sources.end(entry)
        return end if self._known(end).entry.action is Action.WRITE else None

    def _known(self, hash: EntryHash) -> Placed:
        placed = self._store.get(hash)
        if placed is None:
            raise IncompleteContent(f"entry {hash.hex()[:12]} has not arrived yet")
        return placed

    def _before(self, hash: EntryHash) -> EntryHash | None:
        """The entry whose content that of another one is, `None` for a write and where there is no file."""
        entry = self._known(hash).entry
        if entry.action in KEEPING_ACTIONS:
            return entry.parent
        return EntryHash(entry.content) if entry.action in NAMING_ACTIONS else None

    def base(self, write: Placed) -> EntryHash | None:
        """The write entry on which a write builds, `None` where there is none.  Raises as `source`."""
        return self.source(write.entry.parent) if write.kind is EntryKind.SUCCESSOR else None

    def is_complete(self, write: Placed) -> bool:
        """Whether a write entry is complete, and all that its content builds on."""
        if is_keyframe(write.entry):
            # As most are.  To look it up by its hash would keep it in memory, and so each file that anybody reads.
            return self._store.is_complete(write.entry.hash)
        try:
            self._chains.end(write.entry.hash)
        except IncompleteContent:
            return False
        return True

    def _below(self, hash: EntryHash) -> EntryHash | None:
        """The write on which one that is complete builds."""
        if not self._store.is_complete(hash):
            raise IncompleteContent(f"blocks of {hash.hex()[:12]} have not arrived yet")
        write = self._store.get(hash)
        return None if write is None or is_keyframe(write.entry) else self.base(write)

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
            placed = self._known(hash)
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
                placed = self._known(hash)
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
