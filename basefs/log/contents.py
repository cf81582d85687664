"""Contents: the bytes of a file at an entry, from the blocks and the deltas between them.

The content at an entry is a fact of the log, not of the view: a delta applies to the content at its parent, regardless
of conflicts.

The replica's lock is held to look entries and blocks up, some blocks at a time, and never to decode: contents may be
read by several threads at once.  Small ones that the view shows are looked up without it (`basefs/log/snapshots.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from basefs.errors import IncompleteContent, InvalidEntry, StoreError, UnreadableContent
from basefs.log import codecs
from basefs.log.blocks import LISTED, Encoded, block_count, places
from basefs.log.cache import ContentCache
from basefs.log.content import LARGE_CONTENT, BytesContent, Content
from basefs.log.hashes import BlockHash, EntryHash
from basefs.log.lineage import KEYFRAME_AFTER, MOST_DELTAS, ContentSource, Lineages, is_keyframe
from basefs.log.placement import Placed

log = logging.getLogger(__name__)

#: Contents behind this many deltas are kept on disk as well: fewer are quicker to decode than to look up.
MIN_CACHED_DELTAS = 4
#: Bytes of a content whose blocks are looked up at once: a reader that opens a small file while a batch is arriving
#: waits for the lock once, and not for each step.
_AT_ONCE = 64 * 1024
#: The most of that: steps, and blocks of all of them.  Our own writer stays below; others could write a million.
_STEPS_AT_ONCE, _ALL_BLOCKS_AT_ONCE = KEYFRAME_AFTER + 1, 512
#: Bytes of all contents on the way to one that is decoded at once.
_ALL_AT_ONCE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Step:
    """One write on the way to a content: its entry, the size that it states, its encoding as the entry names it, and
    the bytes of that; whether they decode without the content before.
    """

    write: EntryHash
    size: int
    encoded: Encoded | None
    pieces: Iterator[bytes]
    keyframe: bool


class Contents:
    """Reads the contents of one log.  Thread-safe.

    Attributes:
        lock: serialises the use of the log.
        lineages: the lineage of each content.
        cache: where materialised contents are.
    """

    def __init__(self, store: ContentSource, cache: ContentCache, lock: AbstractContextManager[object]) -> None:
        """`lock` must be one that its holder may take again."""
        self._store = store
        self.cache = cache
        self.lock = lock
        self.lineages = Lineages(store, lock)
        #: Large contents that a thread is materialising; others wait for it.
        self._busy: dict[EntryHash, threading.Lock] = {}

    def size(self, write: EntryHash) -> int:
        """Bytes of the content of a write entry, as it states.  Raises `IncompleteContent` for an unknown one."""
        with self.lock:
            placed = self._store.get(write)
        if placed is None:
            raise IncompleteContent(f"entry {write.hex()[:12]} has not arrived yet, or is damaged")
        return placed.entry.size

    def open(self, write: EntryHash) -> Content:
        """The content of a write entry: one that takes a moment is decoded now, any other one at the first read.

        So the caller may hold a lock now, and must hold none then.

        Raises `IncompleteContent` while blocks are missing, `UnreadableContent` if the blocks do not decode and
        `DamagedLog` if a block is damaged, all of them also when it is read.
        """
        content = self.open_small(write)
        return LoggedContent(self, write, self.size(write)) if content is None else content

    def open_small(self, write: EntryHash) -> Content | None:
        """A content in memory, or one that is small enough to look all up at once; else `None`.  Raises as `open`."""
        cached = self.cache.get(write, only_memory=True)
        if cached is not None:
            return BytesContent(cached)
        self._check_readable(write)
        with self.lock:
            found = self._steps_at_once(write)
        return None if found is None else self._follow(write, *found)

    def _check_readable(self, write: EntryHash) -> None:
        reason = self.cache.unreadable.get(write)
        if reason is not None:
            raise UnreadableContent(reason)

    def _refuse(self, write: EntryHash, why: InvalidEntry) -> UnreadableContent:
        """The error for a content that can never be decoded; it is logged once."""
        with self.lock:
            placed = self._store.get(write)
        name = "" if placed is None else placed.entry.name.decode("utf-8", "backslashreplace")
        reason = (
            f"the content of {name!r} at entry {write.hex()[:12]} cannot be read, {why}: write the file again, or "
            "restore an earlier version, which 'basefs log' lists"
        )
        if write not in self.cache.unreadable:
            self.cache.unreadable.keep(write, reason)
            log.error("%s", reason)
        return UnreadableContent(reason)

    def is_at_hand(self, write: EntryHash) -> bool:
        """Whether the content of a write entry is read in a moment, or cannot be read at all."""
        try:
            return self.open_small(write) is not None
        except StoreError:
            return True

    def materialise(self, write: EntryHash) -> Content:
        """The content of a write entry, decoded, in memory or in a file.  Raises as `open`."""
        self._check_readable(write)
        if self.size(write) <= LARGE_CONTENT:
            return self._materialise(write)
        # Of several first readers of a large file one unpacks it.
        busy = self._busy.setdefault(write, threading.Lock())
        try:
            with busy:
                return self._materialise(write)
        finally:
            self._busy.pop(write, None)

    def _materialise(self, write: EntryHash) -> Content:
        with self.lock:
            # Whatever the cache holds: a content is readable on all nodes or on none.
            deltas = self.lineages.deltas(write)
        if deltas > MOST_DELTAS:
            raise self._refuse(write, InvalidEntry(f"it is more than {MOST_DELTAS} deltas behind a complete version"))
        return self._follow(write, *self._steps(write))

    def _follow(self, write: EntryHash, steps: list[_Step], content: Content) -> Content:
        """Decode a content, from what `_steps` has found."""
        try:
            _check_sizes(steps, content.size)
            for step in reversed(steps):
                before = content
                try:
                    content = self._decode(step, before)
                finally:
                    before.close()
        except InvalidEntry as error:
            content.close()
            raise self._refuse(write, error) from None
        if steps and isinstance(content, BytesContent):
            self.cache.put(write, content.whole(), on_disk=len(steps) > MIN_CACHED_DELTAS)
        return content

    def _steps(self, write: EntryHash) -> tuple[list[_Step], Content]:
        """The steps to decode, newest first, and the content on which the oldest builds."""
        steps: list[_Step] = []
        hash: EntryHash | None = write
        while hash is not None:
            cached = self.cache.get(hash)
            if cached is not None:
                return steps, BytesContent(cached)
            with self.lock:
                placed = self._whole(self._store.get(hash), write)
                keyframe = is_keyframe(placed.entry)
                base = None if keyframe else self.lineages.base(placed)
            if placed.entry.size > LARGE_CONTENT and (file := self.cache.open_file(hash)) is not None:
                return steps, file
            encoded = placed.entry.encoded
            pieces = iter(()) if encoded is None else self.lineages.encoded(encoded)
            steps.append(_Step(hash, placed.entry.size, encoded, pieces, keyframe))
            hash = base
        return steps, BytesContent(b"")

    def _steps_at_once(self, write: EntryHash) -> tuple[list[_Step], Content] | None:
        """`_steps` with all that they read, from memory and the log alone; `None` where that is much.

        The writer of an entry decides the amount, and the lock is held.
        """
        steps: list[_Step] = []
        room, total = _ALL_BLOCKS_AT_ONCE, 0
        hash: EntryHash | None = write
        while hash is not None:
            cached = self.cache.get(hash, only_memory=True)
            if cached is not None:
                is_few = len(steps) + self.lineages.deltas(hash) <= MOST_DELTAS
                return (steps, BytesContent(cached)) if is_few else None
            if len(steps) == _STEPS_AT_ONCE:
                return None
            placed = self._whole(self._store.get(hash), write)
            total += placed.entry.size
            if placed.entry.size > _AT_ONCE or total > _ALL_AT_ONCE:
                return None
            encoded, keyframe = placed.entry.encoded, is_keyframe(placed.entry)
            pieces: list[bytes] = []
            if encoded is not None:
                room -= block_count(encoded.length)
                found = self._all_pieces(encoded) if room >= 0 else None
                if found is None:
                    return None
                pieces = found
            steps.append(_Step(hash, placed.entry.size, encoded, iter(pieces), keyframe))
            hash = None if keyframe else self.lineages.base(placed)
        return steps, BytesContent(b"")

    def _whole(self, placed: Placed | None, write: EntryHash) -> Placed:
        """A write entry on the way to `write`, if it is there with all its blocks.  Raises `IncompleteContent`."""
        if placed is None or not self._store.is_complete(placed.entry.hash):
            raise IncompleteContent(f"blocks of {write.hex()[:12]} have not arrived yet")
        return placed

    def _all_pieces(self, encoded: Encoded) -> list[bytes] | None:
        """The parts of an encoding; `None` where a block is missing."""
        found: list[bytes] = []
        for place in places(encoded.place, self._read):
            data = self._read(place.hash)
            if data is None:
                return None
            if place.role not in LISTED:
                found.append(data)
        return found

    def _read(self, hash: BlockHash) -> bytes | None:
        block = self._store.block(hash)
        return None if block is None else block.data

    def _decode(self, step: _Step, before: Content) -> Content:
        if step.encoded is None:
            return BytesContent(b"")
        if step.size > LARGE_CONTENT and step.keyframe:
            content = codecs.decode_pieces(step.encoded.codec, step.pieces, step.size)
            return self.cache.write_file(step.write, content, step.size)
        old = b"" if step.keyframe else before.whole()
        data = codecs.decode(step.encoded.codec, b"".join(step.pieces), old, step.size)
        if step.size > LARGE_CONTENT:
            return self.cache.write_file(step.write, (data,), step.size)
        return BytesContent(data)

    def keep(self, write: EntryHash, content: Content) -> None:
        """Keep a content that was just written, since it is likely to be read next."""
        self.cache.keep(write, content)

    def close(self) -> None:
        """Release the cache."""
        self.cache.close()


def _check_sizes(steps: list[_Step], size: int) -> None:
    """Raise `InvalidEntry` for steps that nobody decodes, before any of them takes time or room.

    `size`: bytes of the content on which the oldest builds.
    """
    for step in reversed(steps):
        if step.encoded is not None:
            codecs.check(step.encoded.codec, step.encoded.length, size, step.size)
        size = step.size


class LoggedContent(Content):
    """A content of the log that takes time to unpack: that is done when it is first read, whatever happens to its path
    meanwhile.
    """

    def __init__(self, contents: Contents, write: EntryHash, size: int) -> None:
        self.size = size
        self.write = write
        self._contents = contents
        self._lock = threading.Lock()
        self._content: Content | None = None

    @property
    def key(self) -> bytes:
        return b"entry" + self.write

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            if self._content is None:
                self._content = self._contents.materialise(self.write)
            content = self._content
        return content.read(offset, size)

    def close(self) -> None:
        with self._lock:
            content, self._content = self._content, None
        if content is not None:
            content.close()
