"""Told: what a log tells other nodes, without the replica's lock, over a connection that waits for nobody who writes.

In a write-ahead log every statement sees the last commit and nothing of a transaction under way (sqlite.org/wal.html,
"Concurrency").  So nobody is told of what may still be taken back, and who answers a peer does not wait for who writes.

Invariant: what must fit together, such as a path's entries and its hash, is read at one `moment`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from basefs.log.chains import BLOCK_QUERY, next_of
from basefs.log.database import Database
from basefs.log.entries import Entry, hash_of
from basefs.log.guard import Guard
from basefs.log.hashes import BlockHash, EntryHash, sha224
from basefs.log.paths import Paths
from basefs.log.remembered import Remembered
from basefs.log.store import checksum_of

#: Entries kept in memory, about 400 bytes each.
_REMEMBERED_ENTRIES = 2048


class Told:
    """Entries, blocks and Merkle tree of a log as of its last commit.  Thread-safe, but for `paths`.

    Its root hash is in `Store.committed`.

    What is damaged is reported and not told.  All methods raise `StoreError` where SQLite cannot read.

    Attributes:
        lock: what serialises the use of the connection; its holder may take it again.
        paths: the Merkle tree, to be read at a `moment`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._db = database.telling
        self.lock = Guard(database.translate)
        self.paths = Paths(self._db)
        #: What was committed or told lately: who wants an entry asks several times, and several ask for it.
        self._recent: Remembered[EntryHash, bytes] = Remembered(_REMEMBERED_ENTRIES)

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Inside, everything is as it was at the first look, whatever is committed meanwhile."""
        with self.lock:
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                if self._db.in_transaction:
                    self._db.execute("COMMIT")

    def identity(self) -> bytes | None:
        """Hash of the root entry; `None` in a log that takes the first one that comes."""
        with self.lock:
            row = self._db.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
        return None if row is None else bytes(row[0])

    def remember(self, entries: Iterable[Entry]) -> None:
        """These are committed now, and likely to be told next."""
        for entry in entries:
            self._recent.keep(entry.hash, entry.encode())

    def entry(self, hash: EntryHash) -> bytes | None:
        """The encoding of an entry; `None` if it is unknown or damaged."""
        data = self._recent.get(hash)
        if data is not None:
            return data
        with self.lock:
            row = self._db.execute("SELECT hash, data, checksum FROM entries WHERE hash = ?", (hash,)).fetchone()
        data = None if row is None else self._checked(*row)
        if data is not None:
            self._recent.keep(hash, data)
        return data

    def entries_at(self, path_id: int) -> dict[EntryHash, bytes]:
        """The encodings of all entries of one path by their hashes, in order of arrival, so parents first."""
        with self.lock:
            rows = self._db.execute(
                "SELECT hash, data, checksum FROM entries WHERE path = ? ORDER BY seq", (path_id,)
            ).fetchall()
        return {EntryHash(row[0]): data for row in rows if (data := self._checked(*row)) is not None}

    def _checked(self, hash: bytes, data: bytes, checksum: bytes) -> bytes | None:
        """An encoding as it was stored, or `None` if its row is damaged; decoding it would cost more."""
        if checksum != checksum_of(data) or hash_of(data) != hash:
            self._database.report_damage("entry", hash)
            return None
        return data

    def block(self, hash: BlockHash) -> bytes | None:
        """The encoding of a block; `None` if it is unknown or damaged."""
        with self.lock:
            row = self._db.execute(BLOCK_QUERY, (hash,)).fetchone()
        if row is None:
            return None
        if sha224(row[0]) != hash:
            self._database.report_damage("block", hash)
            return None
        return bytes(row[0])

    def block_behind(self, hash: BlockHash, count: int) -> BlockHash | None:
        """The block so many places behind one in its chain; `None` if it is not here, or the chain ends before."""
        with self.lock:
            for _ in range(count):
                # Not verified: who asks verifies each block that it gets.
                following = next_of(self._db, hash)
                if following is None:
                    return None
                hash = following
            return None if next_of(self._db, hash) is None else hash

    def waiting_at(self, path_id: int) -> tuple[list[EntryHash], list[tuple[EntryHash, BlockHash]]]:
        """The incomplete writes of a path: those *receiving*, and those *stalled* with their last block's hash."""
        with self.lock:
            rows = self._db.execute(
                "SELECT w.entry, c.last, c.stalled FROM waiting w JOIN entries e ON e.hash = w.entry "
                "JOIN chains c ON c.first = w.first WHERE e.path = ?",
                (path_id,),
            ).fetchall()
        receiving = [EntryHash(entry) for entry, _, stalled in rows if not stalled]
        return receiving, [(EntryHash(entry), BlockHash(last)) for entry, last, stalled in rows if stalled]

    def missing_blocks(self, limit: int) -> list[BlockHash]:
        """The blocks that incomplete chains wait for, at most `limit` of them."""
        with self.lock:
            rows = self._db.execute("SELECT DISTINCT missing FROM chains LIMIT ?", (limit,)).fetchall()
        return [BlockHash(missing) for (missing,) in rows]
