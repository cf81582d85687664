"""Contents: what a file was at an entry, from the chains of blocks and the deltas between them.

The content at an entry is a fact of the log, not of the view: a delta applies to the content at its parent, whoever
wins a conflict.  Materialised contents are cached in memory, and those behind several deltas in a file of their own
that may be deleted at any time.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from basefs.errors import IncompleteContent, InvalidEntry
from basefs.log import blocks, codecs
from basefs.log.entries import Action
from basefs.log.hashes import BlockHash, EntryHash, sha224
from basefs.log.store import EntryKind, Placed, Store

#: A chain of this many deltas ends with a keyframe, so that a cold read costs the same after 30 or 3000 edits.  More
#: would save blocks on files that change often, fewer would make them quicker to read.
MAX_DELTAS = 32
#: Contents behind this many deltas are kept on disk as well: fewer are quicker to decode than to look up.
MIN_CACHED_DELTAS = 4
#: Largest content, bytes.  Contents are held in memory, some of them twice, by every node that reads them.  An entry
#: could state 2**48 - 1, so without this a key on one directory could exhaust every reader.
MAX_CONTENT_BYTES = 1024 * 1024 * 1024
MEMORY_CACHE_BYTES = 32 * 1024 * 1024
DISK_CACHE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Lineage:
    """The write entries from a content back to where decoding can start.

    Attributes:
        writes: newest first.
        delta_bytes: bytes of the deltas among them.
    """

    writes: tuple[Placed, ...]
    delta_bytes: int


class ContentCache:
    """Materialised contents by the hash of their write entry, least recently used out first."""

    def __init__(self, path: Path | None) -> None:
        """Open the cache; a damaged file is replaced, since nothing is lost with it."""
        self._memory: OrderedDict[EntryHash, bytes] = OrderedDict()
        self._memory_bytes = 0
        self._db: sqlite3.Connection | None = None
        if path is not None:
            try:
                self._db = self._open(path)
            except sqlite3.DatabaseError:
                path.unlink(missing_ok=True)
                self._db = self._open(path)

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        db.execute(
            "CREATE TABLE IF NOT EXISTS contents (seq INTEGER PRIMARY KEY, entry BLOB UNIQUE, hash BLOB, data BLOB)"
        )
        return db

    def get(self, entry: EntryHash) -> bytes | None:
        """A cached content, or `None`."""
        data = self._memory.get(entry)
        if data is not None:
            self._memory.move_to_end(entry)
            return data
        if self._db is None:
            return None
        try:
            row = self._db.execute("SELECT hash, data FROM contents WHERE entry = ?", (entry,)).fetchone()
        except sqlite3.Error:
            return None
        # The cache is written without syncing, so what it holds is only believed with its hash.
        return row[1] if row is not None and sha224(row[1]) == row[0] else None

    def put(self, entry: EntryHash, data: bytes, *, on_disk: bool) -> None:
        """Keep a content; one that is larger than a quarter of the cache is left out."""
        if len(data) > MEMORY_CACHE_BYTES // 4:
            return
        previous = self._memory.pop(entry, b"")
        self._memory[entry] = data
        self._memory_bytes += len(data) - len(previous)
        while self._memory_bytes > MEMORY_CACHE_BYTES:
            _, dropped = self._memory.popitem(last=False)
            self._memory_bytes -= len(dropped)
        if on_disk and self._db is not None:
            try:
                self._store(entry, data)
            except sqlite3.Error:
                # A full disk must not stop a read.
                self._db = None

    def _store(self, entry: EntryHash, data: bytes) -> None:
        assert self._db is not None
        self._db.execute(
            "INSERT OR IGNORE INTO contents (entry, hash, data) VALUES (?, ?, ?)", (entry, sha224(data), data)
        )
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (page_size,) = self._db.execute("PRAGMA page_size").fetchone()
        if pages * page_size > DISK_CACHE_BYTES:
            self._db.execute("DELETE FROM contents WHERE seq <= (SELECT (min(seq) + max(seq)) / 2 FROM contents)")
            self._db.execute("VACUUM")

    def close(self) -> None:
        """Release the file."""
        if self._db is not None:
            self._db.close()


class Contents:
    """Reads and prepares contents of one log.  Not thread-safe, like the store."""

    def __init__(self, store: Store, cache: ContentCache) -> None:
        self._store = store
        self._cache = cache
        self._complete: set[EntryHash] = set()

    def source(self, entry: EntryHash) -> EntryHash | None:
        """The write entry whose content the path had at `entry`; `None` where it was no file.

        Raises `IncompleteContent` if an entry on the way is unknown.
        """
        hash = entry
        path: int | None = None
        while True:
            placed = self._store.get(hash)
            if placed is None:
                raise IncompleteContent(f"entry {hash.hex()[:12]} has not arrived yet")
            action = placed.entry.action
            if path not in (None, placed.path):
                # A revert to an entry of another path is none.
                return None
            path = None
            if action is Action.WRITE:
                return hash
            if action in (Action.REVERT, Action.LINK):
                path = placed.path if action is Action.REVERT else None
                hash = EntryHash(placed.entry.content)
            elif action in (Action.MODE, Action.ACK):
                hash = placed.entry.parent
            else:
                return None

    def _base(self, write: Placed) -> EntryHash | None:
        return self.source(write.entry.parent) if write.kind is EntryKind.SUCCESSOR else None

    def is_complete(self, write: Placed) -> bool:
        """Whether the content of a write entry can be read: its blocks are here, and those of all it builds on."""
        visited: list[EntryHash] = []
        current: Placed | None = write
        while current is not None and current.entry.hash not in self._complete:
            first = BlockHash(current.entry.content)
            if not self._store.is_complete(first):
                return False
            visited.append(current.entry.hash)
            if not first or self._is_keyframe(first):
                break
            try:
                base = self._base(current)
            except IncompleteContent:
                return False
            current = None if base is None else self._store.get(base)
        if len(self._complete) > 100_000:
            self._complete.clear()
        self._complete.update(visited)
        return True

    def _is_keyframe(self, first: BlockHash) -> bool:
        block = self._store.block(first)
        try:
            return block is None or codecs.is_keyframe(block.data[:1])
        except InvalidEntry:
            return True

    def lineage(self, write: EntryHash) -> Lineage:
        """What decoding the content of a write entry needs.  Raises `IncompleteContent`."""
        writes: list[Placed] = []
        delta_bytes = 0
        hash: EntryHash | None = write
        while hash is not None:
            placed = self._store.get(hash)
            if placed is None:
                raise IncompleteContent(f"entry {hash.hex()[:12]} has not arrived yet")
            writes.append(placed)
            first = BlockHash(placed.entry.content)
            if not first or self._is_keyframe(first):
                break
            delta_bytes += len(self._store.chain(first) or b"")
            hash = self._base(placed)
        return Lineage(tuple(writes), delta_bytes)

    def read(self, write: EntryHash) -> bytes:
        """The content of a write entry.

        Raises `IncompleteContent` while blocks are missing and `InvalidEntry` if the chain does not decode.
        """
        todo: list[tuple[Placed, bytes]] = []
        content = b""
        hash: EntryHash | None = write
        while hash is not None:
            cached = self._cache.get(hash)
            if cached is not None:
                content = cached
                break
            placed = self._store.get(hash)
            chain = None if placed is None else self._store.chain(BlockHash(placed.entry.content))
            if placed is None or chain is None:
                raise IncompleteContent(f"blocks of {write.hex()[:12]} have not arrived yet")
            todo.append((placed, chain))
            if not chain or codecs.is_keyframe(chain):
                break
            hash = self._base(placed)
        for placed, chain in reversed(todo):
            if placed.entry.size > MAX_CONTENT_BYTES:
                raise InvalidEntry(f"a content of {placed.entry.size} bytes is more than a node can hold")
            content = codecs.decode(chain, content, placed.entry.size) if chain else b""
        if todo:
            self._cache.put(write, content, on_disk=len(todo) > MIN_CACHED_DELTAS)
        return content

    def encode(self, new: bytes, base: EntryHash | None) -> list[blocks.Block]:
        """The blocks of a write of `new` behind an entry whose content is that of the write `base`."""
        if not new:
            return []
        old, keyframe = b"", True
        if base is not None:
            try:
                lineage = self.lineage(base)
                old = self.read(base)
                keyframe = len(lineage.writes) > MAX_DELTAS or lineage.delta_bytes >= max(len(new), 4096)
            except (IncompleteContent, InvalidEntry):
                keyframe = True
        return blocks.split(codecs.encode(new, old, keyframe=keyframe))

    def close(self) -> None:
        """Release the cache."""
        self._cache.close()

    def remember(self, write: EntryHash, content: bytes) -> None:
        """Keep a content that was just made, since it is likely to be read next."""
        self._cache.put(write, content, on_disk=False)
