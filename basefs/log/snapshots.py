"""Snapshots: the log as of one commit, read without the replica's lock.

In a write-ahead log each reader sees the last commit and nothing of a transaction under way (sqlite.org/wal.html,
"Concurrency").  So no peer receives what may still be taken back, and a reader never waits for the writer.

Each thread that reads has a connection from the pool for that time.  Damaged rows are reported and read as missing.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence

from basefs.errors import StoreError
from basefs.log.blocks import Block
from basefs.log.cache import ContentCache
from basefs.log.contents import Contents
from basefs.log.database import Database
from basefs.log.entries import Entry, hash_of
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, sha224
from basefs.log.interface import Listing
from basefs.log.missing import BLOCK_QUERY, decoded_block
from basefs.log.paths import Paths
from basefs.log.placement import EntryKind, Placed
from basefs.log.remembered import Remembered
from basefs.log.store import ENTRY_COLUMNS, checksum_of, placed_of
from basefs.path import Path

#: Encoded entries kept in memory, about 400 bytes each.
_REMEMBERED_ENTRIES = 2048
#: Children of one path compete with each other, successors with those of the same parent; grants with none.
_FORKS = f"""
    SELECT DISTINCT path FROM (
        SELECT path FROM entries WHERE kind < {EntryKind.KEY.value}
        GROUP BY path, CASE kind WHEN {EntryKind.CHILD.value} THEN x'' ELSE parent END HAVING count(*) > 1
    )
"""


_PATH = "SELECT path FROM entries WHERE hash = ?"
#: The path of an entry, if another one competes with it.
_COMPETES = f"""
    SELECT path FROM entries AS one WHERE hash = ? AND kind != {EntryKind.KEY.value} AND EXISTS (
        SELECT 1 FROM entries AS other
        WHERE other.path = one.path AND other.kind = one.kind AND other.hash != one.hash
        AND (one.kind = {EntryKind.CHILD.value} OR other.parent = one.parent)
    )
"""


class Snapshot:
    """One connection of the pool: entries, blocks and Merkle tree.  Used by one thread at a time.

    Attributes:
        paths: the Merkle tree.
        contents: what the entries hold; only what is small enough to be looked up at once.
    """

    def __init__(self, database: Database, cache: ContentCache) -> None:
        self._database = database
        self.db = database.connect_reader()
        self.paths = Paths(self.db)
        self.contents = Contents(self, cache, contextlib.nullcontext())

    def get(self, hash: EntryHash) -> Placed | None:
        """An entry; `None` if it is unknown or damaged."""
        row = self.db.execute(f"SELECT {ENTRY_COLUMNS} FROM entries WHERE hash = ?", (hash,)).fetchone()
        return None if row is None else placed_of(row)

    def block(self, hash: BlockHash) -> Block | None:
        """A block; `None` if it is unknown or damaged."""
        return decoded_block(self.db.execute(BLOCK_QUERY, (hash,)).fetchone(), hash)

    def is_complete(self, write: EntryHash) -> bool:
        """Whether all blocks of a write are here: what the view shows is complete; else a block is found missing."""
        return True

    def encoded(self, hash: EntryHash) -> bytes | None:
        """The encoding of an entry; `None` if it is unknown or damaged."""
        row = self.db.execute("SELECT hash, data, checksum FROM entries WHERE hash = ?", (hash,)).fetchone()
        return None if row is None else self._checked(*row)

    def entries_at(self, path_id: int) -> dict[EntryHash, bytes]:
        """The encodings of all entries of one path by their hashes, in order of arrival, so parents first."""
        rows = self.db.execute("SELECT hash, data, checksum FROM entries WHERE path = ? ORDER BY seq", (path_id,))
        return {EntryHash(row[0]): data for row in rows.fetchall() if (data := self._checked(*row)) is not None}

    def _checked(self, hash: bytes, data: bytes, checksum: bytes) -> bytes | None:
        """An encoding as it was stored, or `None` if its row is damaged; decoding it would cost more."""
        if checksum != checksum_of(data) or hash_of(data) != hash:
            self._database.report_damage("entry", hash)
            return None
        return data


class SnapshotReader:
    """What a log has committed.  Thread-safe; all methods raise `StoreError` where SQLite cannot read.

    The methods for the sync protocol are those of `basefs/log/interface.py`.

    Attributes:
        database: the file.
    """

    def __init__(self, database: Database, cache: ContentCache) -> None:
        self.database = database
        self._cache = cache
        self._idle: list[Snapshot] = []
        self._in_use = 0
        self._is_closed = False
        self._changed = threading.Condition()
        #: What was committed or sent lately: a peer asks for an entry several times, and so do several peers.
        self._recent: Remembered[EntryHash, bytes] = Remembered(_REMEMBERED_ENTRIES)

    def close(self) -> None:
        """Close the connections, when the last one is back."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._in_use)
            for snapshot in self._idle:
                snapshot.db.close()
            self._idle.clear()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Snapshot]:
        """A connection for this thread, of which each statement sees the last commit.

        What SQLite raises meanwhile leaves it as an error of ours.
        """
        with self._changed:
            if self._is_closed:
                raise StoreError(f"the log {self.database.path} is closed")
            self._in_use += 1
            snapshot = self._idle.pop() if self._idle else None
        try:
            snapshot = snapshot or Snapshot(self.database, self._cache)
            yield snapshot
        except sqlite3.Error as error:
            raise self.database.translate(error) from None
        finally:
            with self._changed:
                self._in_use -= 1
                if snapshot is not None:
                    self._idle.append(snapshot)
                if self._is_closed:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def _moment(self) -> Iterator[Snapshot]:
        """A connection to which everything is as at the first look, whatever is committed meanwhile."""
        with self._connected() as snapshot:
            snapshot.db.execute("BEGIN")
            try:
                yield snapshot
            finally:
                if snapshot.db.in_transaction:
                    snapshot.db.execute("COMMIT")

    def remember(self, entries: Iterable[Entry]) -> None:
        """These are committed now, and likely to be sent next."""
        for entry in entries:
            self._recent.keep(entry.hash, entry.encode())

    def open_small(self, write: EntryHash) -> bytes | None:
        """The content of a write entry, if it is small; `None` also where it cannot be read."""
        cached = self._cache.get(write, only_memory=True)
        if cached is not None:
            return cached
        try:
            with self._connected() as snapshot:
                content = snapshot.contents.open_small(write)
        except StoreError:
            # The view shows what a transaction under way has made, or it is damaged: the caller asks the log.
            return None
        return None if content is None else content.whole()

    def identity(self) -> bytes | None:
        """Hash of the root entry; `None` in a log that takes the first one that comes."""
        with self._connected() as snapshot:
            row = snapshot.db.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
        return None if row is None else bytes(row[0])

    def forked_paths(self) -> list[Path]:
        """The paths on which two entries build on the same thing, sorted: only there can a revision have lost.

        One look at all entries, which no writer waits for.
        """
        with self._moment() as snapshot:
            rows = snapshot.db.execute(_FORKS).fetchall()
            return sorted(snapshot.paths.path_of(path_id) for (path_id,) in rows)

    def competing(self, entries: Iterable[EntryHash]) -> list[Path]:
        """The paths of those of these entries that compete with another one, in their order."""
        with self._moment() as snapshot:
            rows = (snapshot.db.execute(_COMPETES, (entry,)).fetchone() for entry in entries)
            return list(dict.fromkeys(snapshot.paths.path_of(row[0]) for row in rows if row is not None))

    def paths_of(self, entries: Iterable[EntryHash]) -> list[Path]:
        """The paths of those of these entries that are here, each once."""
        with self._moment() as snapshot:
            rows = (snapshot.db.execute(_PATH, (entry,)).fetchone() for entry in entries)
            return list(dict.fromkeys(snapshot.paths.path_of(row[0]) for row in rows if row is not None))

    # -- the interface of the sync protocol ---------------------------------------------------------------------------

    def path_hash(self, path: Path) -> bytes:
        """Merkle hash of a path; zero where it is unknown."""
        with self._moment() as snapshot:
            path_id = snapshot.paths.id_of(path)
            return ZERO_HASH if path_id is None else snapshot.paths.row(path_id).hash

    def child_hashes(self, path: Path, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """The Merkle hashes of those of these names in a path that are known."""
        with self._moment() as snapshot:
            path_id = snapshot.paths.id_of(path)
            rows = [] if path_id is None else [snapshot.paths.find(path_id, name) for name in names]
        return {row.name: row.hash for row in rows if row is not None}

    def listing(self, path: Path) -> Listing | None:
        """What the Merkle tree holds at a path, `None` where it is unknown."""
        with self._moment() as snapshot:
            path_id = snapshot.paths.id_of(path)
            if path_id is None:
                return None
            entries = snapshot.entries_at(path_id)
            children = snapshot.paths.children(path_id)
        return Listing(entries=tuple(entries), children=tuple(children))

    def walk(self, path: Path) -> Iterator[bytes]:
        """The encoded entries of a path and of all below it, parents first; looks at one path at a time."""
        with self._moment() as snapshot:
            start = snapshot.paths.id_of(path)
        todo = [] if start is None else [start]
        while todo:
            path_id = todo.pop()
            with self._moment() as snapshot:
                found = snapshot.entries_at(path_id)
                todo.extend(row.id for row in reversed(snapshot.paths.below(path_id)))
            yield from found.values()

    def entry(self, hash: EntryHash) -> bytes | None:
        """The encoding of an entry; `None` if it is unknown or damaged."""
        data = self._recent.get(hash)
        if data is None:
            with self._connected() as snapshot:
                data = snapshot.encoded(hash)
            if data is not None:
                self._recent.keep(hash, data)
        return data

    def block(self, hash: BlockHash) -> bytes | None:
        """The encoding of a block; `None` if it is unknown or damaged."""
        with self._connected() as snapshot:
            row = snapshot.db.execute(BLOCK_QUERY, (hash,)).fetchone()
        if row is None:
            return None
        if sha224(row[0]) != hash:
            self.database.report_damage("block", hash)
            return None
        return bytes(row[0])

    def has_block(self, hash: BlockHash) -> bool:
        """Whether a block is here."""
        with self._connected() as snapshot:
            return snapshot.db.execute("SELECT 1 FROM blocks WHERE hash = ?", (hash,)).fetchone() is not None

    def wants_block(self, hash: BlockHash) -> bool:
        """Whether a block is one of the `missing_blocks`."""
        query = "SELECT 1 FROM missing WHERE block = ? AND NOT here LIMIT 1"
        with self._connected() as snapshot:
            return snapshot.db.execute(query, (hash,)).fetchone() is not None

    def missing_blocks(self, limit: int, behind: int = 0) -> list[tuple[int, BlockHash]]:
        """The blocks that wanted writes lack, at most `limit` of those with a number above `behind`, with it.

        In the order of the contents; a block has a number for each list that names it.
        """
        query = "SELECT seq, block FROM missing WHERE seq > ? AND NOT here ORDER BY seq LIMIT ?"
        with self._connected() as snapshot:
            return [(seq, BlockHash(block)) for seq, block in snapshot.db.execute(query, (behind, limit)).fetchall()]
