"""The append-only store: entries, blocks, and what is derived from them, in one SQLite file (design, section 3.4).

Invariants

1. `entries` and `blocks` only grow; triggers refuse every UPDATE and DELETE.  The other tables are derived from them
   and change in the same transaction.
2. An entry is stored after its parent, a block of a chain after the one that names it.  So every entry has a path, and
   every chain is verified from its start.
3. `paths.hash` of a path is the XOR of what its own entries contribute and of its sub-paths' hashes.  An entry
   contributes its hash; a write whose chain is *receiving* contributes nothing, one whose chain is *stalled* its hash
   XOR the hash of the last block that came (paper, section 3.2.2).
4. A row whose content does not match its hash is never returned.  It is counted in `damaged` and logged.

Not thread-safe: `Replica` holds its lock around every call, but for `sync`, `checkpoint` and `store_blocks`.

SQLite syncs its files when the WAL is written back to the database, which takes as long as the disk likes.  So the
connection that needs the lock leaves that to `checkpoint`, which has a connection of its own.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from basefs.errors import DamagedLog, InvalidEntry, NoSpace, StoreError
from basefs.log.blocks import Block
from basefs.log.entries import CHILD_ACTIONS, KEY_ACTIONS, ROOT_NAME, Action, Entry
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, Fingerprint, sha224, xor
from basefs.log.keys import fingerprint_of

log = logging.getLogger(__name__)

FORMAT = 1
ROOT_PATH_ID = 1
#: Bytes of WAL from which on it is written back to the database, which may take seconds while the disk is busy.
CHECKPOINT_BYTES = 4 * 1024 * 1024
#: The same for the connection that needs the lock, if nobody calls `checkpoint`: pages of 4 KiB.
_LAST_RESORT_PAGES = 16 * 1024
#: The path id of an entry that will be the first of its path.  Nothing is written for entries that may be refused.
NEW_PATH = -1

_SCHEMA = """
-- Facts about the file itself: format, and identity (the hash of the root entry).
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

-- One row an entry, in order of arrival.  All columns but `data` are copies of what it says, or derived:
--   kind       0 successor on its parent's path, 1 child: first of its path, 2 grant or revoke
--   path       static path, see `paths`
--   checksum   first bytes of the SHA-224 of `data`: the hash does not cover the signature
--   directory  hash of the mkdir under which the chain of this path lives; zero for the root's own chain
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, parent BLOB NOT NULL, kind INTEGER NOT NULL, path INTEGER NOT NULL,
    directory BLOB NOT NULL, data BLOB NOT NULL, checksum BLOB NOT NULL
);
CREATE UNIQUE INDEX entries_hash ON entries (hash);
CREATE INDEX entries_path ON entries (path);
CREATE INDEX entries_keys ON entries (seq) WHERE kind = 2;

-- Encoded blocks (next hash and data).
CREATE TABLE blocks (seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX blocks_hash ON blocks (hash);

-- Merkle tree over all paths that any entry ever named.
CREATE TABLE paths (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name BLOB NOT NULL, hash BLOB NOT NULL);
CREATE UNIQUE INDEX paths_name ON paths (parent, name);

-- One row a chain of blocks whose end has not arrived:
--   first    hash of its first block, as write entries name it
--   missing  hash of the block that it waits for
--   last     hash of the last block that came; zero if none
--   stalled  whether the Merkle tree shows it, see invariant 3
--   changed  UNIX seconds of the last arrival
CREATE TABLE chains (
    first BLOB PRIMARY KEY, missing BLOB NOT NULL, last BLOB NOT NULL, stalled INTEGER NOT NULL, changed REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX chains_missing ON chains (missing);
-- The write entries that wait for a chain.
CREATE TABLE waiting (first BLOB NOT NULL, entry BLOB NOT NULL, PRIMARY KEY (first, entry)) WITHOUT ROWID;

-- Keys that any accepted grant names, and where; what a signature is checked against.
CREATE TABLE granted (path INTEGER NOT NULL, fingerprint BLOB NOT NULL, public BLOB NOT NULL,
    PRIMARY KEY (fingerprint, path, public)) WITHOUT ROWID;

-- Hard links: `path` is the path of the target entry, NULL while that is unknown.
CREATE TABLE links (entry BLOB PRIMARY KEY, target BLOB NOT NULL, path INTEGER) WITHOUT ROWID;
CREATE INDEX links_target ON links (target);
CREATE INDEX links_path ON links (path);

CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER blocks_no_update BEFORE UPDATE ON blocks BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER blocks_no_delete BEFORE DELETE ON blocks BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
"""


class EntryKind(IntEnum):
    """Where an entry stands relative to its parent (design, section 3.2)."""

    SUCCESSOR = 0
    CHILD = 1
    KEY = 2


def kind_of(action: Action, parent: Action | None) -> EntryKind:
    """The place that an action takes behind a parent; `None` is the root entry's missing parent."""
    if action in KEY_ACTIONS:
        return EntryKind.KEY
    if parent is None or (parent is Action.MKDIR and action in CHILD_ACTIONS):
        return EntryKind.CHILD
    return EntryKind.SUCCESSOR


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry and its place.

    Attributes:
        entry: the entry.
        kind: child, successor, or grant/revoke.
        path: id of its static path; `NEW_PATH` before the first entry of a path is inserted.
        directory: hash of the mkdir under which its chain lives; `ZERO_HASH` for the root's own chain.
        above: id of the path that holds this one; 0 for the root, and where `path` tells it.
    """

    entry: Entry
    kind: EntryKind
    path: int
    directory: EntryHash
    above: int = 0


@dataclass(frozen=True, slots=True)
class PathRow:
    """A node of the Merkle tree: path id, id of the path above (0 for the root), name, and 28-byte hash."""

    id: int
    parent: int
    name: bytes
    hash: bytes


class Store:
    """The log of one filesystem on disk.

    Attributes:
        path: the SQLite file.
        damaged: hashes of the rows found not to match their content since the store was opened.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open a log, or create an empty one.  Raises `StoreError` where that fails."""
        if create == path.exists():
            raise StoreError(f"{path} exists already" if create else f"there is no log at {path}")
        self.path = path
        self.damaged: set[bytes] = set()
        self._merkle: dict[int, bytes] = {}
        self._unresolved: set[EntryHash] = set()
        self._granted: dict[Fingerprint, dict[int, bytes]] = {}
        self._unsynced = False
        try:
            if create:
                # The mode must be right before the first byte: SQLite gives its side files the same one.
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self._db = _connect(path)
            self._db.execute(f"PRAGMA wal_autocheckpoint = {_LAST_RESORT_PAGES}")
            if create:
                self._db.executescript("BEGIN;" + _SCHEMA + f"PRAGMA user_version = {FORMAT}; COMMIT;")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot open the log {path}: {error}") from None
        if version != FORMAT:
            raise StoreError(f"{path} has log format {version}, this version reads {FORMAT}: upgrade BaseFS")
        self._bulk = self._connect_aside()
        self._checkpointer = self._connect_aside()
        self._load()

    def _connect_aside(self) -> sqlite3.Connection:
        connection = _connect(self.path)
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def _load(self) -> None:
        self._granted.clear()
        for path, fingerprint, public in self._db.execute("SELECT path, fingerprint, public FROM granted"):
            self._granted.setdefault(Fingerprint(fingerprint), {})[path] = public
        rows = self._db.execute("SELECT target FROM links WHERE path IS NULL")
        self._unresolved = {EntryHash(target) for (target,) in rows}

    def close(self) -> None:
        """Write the WAL back and release the file."""
        self._bulk.close()
        self._checkpointer.close()
        self._db.close()

    # -- transactions and durability ---------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside reaches the log together or not at all.

        Raises `NoSpace` or `StoreError` where SQLite cannot write; the log is then as before.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._flush_merkle()
            self._db.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise _store_error(error, self.path) from None
            raise
        self._unsynced = True

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._merkle.clear()
        self._load()

    @property
    def unsynced(self) -> bool:
        """Whether anything was committed since the last `take_unsynced`."""
        return self._unsynced

    def take_unsynced(self) -> bool:
        """Clear and return the flag; the caller then calls `sync`."""
        unsynced, self._unsynced = self._unsynced, False
        return unsynced

    def mark_unsynced(self) -> None:
        """Set the flag again: a sync has failed."""
        self._unsynced = True

    def sync(self) -> None:
        """Make every committed transaction survive a power cut.  Needs no lock.  Raises `StoreError`.

        In WAL mode committed pages live in the `-wal` file until a checkpoint, which syncs that file itself
        (sqlite.org/wal.html, "Performance considerations"), so one fsync of it is enough.
        """
        try:
            descriptor = os.open(f"{self.path}-wal", os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise StoreError(f"cannot make the log {self.path} durable: {error.strerror}") from None
        finally:
            os.close(descriptor)

    def checkpoint(self) -> None:
        """Write the WAL back to the database if it has grown.  Needs no lock, but only one thread may do it at a time.

        Raises `StoreError`.
        """
        try:
            if os.path.getsize(f"{self.path}-wal") > CHECKPOINT_BYTES:
                self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except FileNotFoundError:
            return
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot write the log {self.path} back: {error}") from None

    # -- identity -----------------------------------------------------------------------------------------------------

    def meta(self, key: str) -> bytes | None:
        """A fact about the file; `None` where it is not set."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def set_meta(self, key: str, value: bytes) -> None:
        """Record a fact, inside a transaction."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    # -- entries ------------------------------------------------------------------------------------------------------

    def __contains__(self, hash: EntryHash) -> bool:
        return self._db.execute("SELECT 1 FROM entries WHERE hash = ?", (hash,)).fetchone() is not None

    def entry_count(self) -> int:
        """Number of entries."""
        return int(self._db.execute("SELECT max(seq) FROM entries").fetchone()[0] or 0)

    def block_totals(self) -> int:
        """Number of blocks."""
        return int(self._db.execute("SELECT max(seq) FROM blocks").fetchone()[0] or 0)

    def get(self, hash: EntryHash) -> Placed | None:
        """The entry with this hash, or `None` if it is unknown or its row is damaged."""
        row = self._db.execute(
            "SELECT hash, kind, path, directory, data, checksum FROM entries WHERE hash = ?", (hash,)
        ).fetchone()
        return None if row is None else self._placed(row)

    def find(self, prefix: str) -> list[EntryHash]:
        """The hashes of the entries that begin with these hexadecimal digits, at most 16 of them."""
        digits = prefix.lower()
        if not digits or len(digits) > 2 * len(ZERO_HASH) or digits.strip("0123456789abcdef"):
            return []
        low = bytes.fromhex(digits.ljust(2 * len(ZERO_HASH), "0"))
        high = bytes.fromhex(digits.ljust(2 * len(ZERO_HASH), "f"))
        rows = self._db.execute("SELECT hash FROM entries WHERE hash BETWEEN ? AND ? LIMIT 16", (low, high))
        return [EntryHash(hash) for (hash,) in rows]

    def raw(self, hash: EntryHash) -> bytes | None:
        """The encoding of an entry, or `None` as in `get`."""
        placed = self.get(hash)
        return None if placed is None else placed.entry.encode()

    def entries_at(self, path: int) -> list[Placed]:
        """All entries of one path, in order of arrival (so parents first)."""
        rows = self._db.execute(
            "SELECT hash, kind, path, directory, data, checksum FROM entries WHERE path = ? ORDER BY seq", (path,)
        )
        return [placed for row in rows if (placed := self._placed(row)) is not None]

    def entries_under(self, path: int) -> dict[PathRow, list[Placed]]:
        """All entries of all paths directly below `path`, by path; in one query, for a whole directory."""
        rows = self._db.execute(
            "SELECT e.hash, e.kind, e.path, e.directory, e.data, e.checksum, p.name, p.hash FROM paths p "
            "JOIN entries e ON e.path = p.id WHERE p.parent = ? ORDER BY p.id, e.seq",
            (path,),
        )
        found: dict[int, tuple[PathRow, list[Placed]]] = {}
        for *columns, name, hash in rows:
            placed = self._placed(columns)
            if placed is not None:
                found.setdefault(placed.path, (PathRow(placed.path, path, name, hash), []))[1].append(placed)
        return dict(found.values())

    def _placed(self, row: Iterable[object]) -> Placed | None:
        hash, kind, path, directory, data, checksum = row
        assert isinstance(hash, bytes) and isinstance(kind, int) and isinstance(path, int)
        assert isinstance(directory, bytes) and isinstance(data, bytes)
        try:
            entry = Entry.decode(data)
        except InvalidEntry:
            entry = None
        if entry is None or entry.hash != hash or checksum != _checksum(data):
            self._report_damage("entry", hash)
            return None
        return Placed(entry, EntryKind(kind), path, EntryHash(directory))

    def _report_damage(self, what: str, hash: bytes) -> None:
        if hash not in self.damaged:
            self.damaged.add(hash)
            log.error(
                "%s is damaged: %s %s does not match its hash; the filesystem is read-only until it is repaired",
                self.path,
                what,
                hash.hex()[:12],
            )

    def place(self, entry: Entry) -> Placed | None:
        """Where an entry would stand; `None` while its parent is unknown.

        Raises `InvalidEntry` if it can stand nowhere (design, section 3.2).
        """
        if entry.is_root:
            return Placed(entry, EntryKind.CHILD, ROOT_PATH_ID, EntryHash(ZERO_HASH))
        parent = self.get(entry.parent)
        if parent is None:
            if entry.parent in self.damaged:
                raise DamagedLog(f"the parent of entry {entry.hash.hex()[:12]} is damaged")
            return None
        return self._place_behind(entry, parent)

    def _place_behind(self, entry: Entry, parent: Placed) -> Placed:
        kind = kind_of(entry.action, parent.entry.action)
        if kind is EntryKind.KEY:
            if parent.entry.action not in KEY_ACTIONS | {Action.MKDIR, Action.WRITE}:
                raise InvalidEntry("a grant or revoke hangs on a mkdir, a write, or another grant or revoke")
            return Placed(entry, kind, parent.path, parent.directory)
        if parent.entry.action in KEY_ACTIONS:
            raise InvalidEntry("only a grant or revoke may follow a grant or revoke")
        if kind is EntryKind.CHILD:
            if entry.name == ROOT_NAME:
                raise InvalidEntry("only the root is named '/'")
            path = self.find_path(parent.path, entry.name)
            return Placed(entry, kind, path.id if path else NEW_PATH, parent.entry.hash, parent.path)
        if entry.name != parent.entry.name:
            raise InvalidEntry("a successor carries the name of its parent")
        if parent.path == ROOT_PATH_ID and entry.action not in (Action.MODE, Action.ACK):
            raise InvalidEntry("the root directory cannot become anything else")
        return Placed(entry, kind, parent.path, parent.directory)

    def insert(self, placed: Placed, *, now: float, complete: bool = False) -> Placed:
        """Append a placed and verified entry, inside a transaction; returns it with its path's id.

        `complete`: the caller knows that the blocks which it names are here.
        """
        entry = placed.entry
        if placed.path == NEW_PATH:
            placed = replace(placed, path=self._path_id(placed.above, entry.name))
        data = entry.encode()
        self._db.execute(
            "INSERT INTO entries (hash, parent, kind, path, directory, data, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (entry.hash, entry.parent, placed.kind, placed.path, placed.directory, data, _checksum(data)),
        )
        if entry.is_root:
            self._db.execute("INSERT INTO paths VALUES (?, 0, ?, ?)", (ROOT_PATH_ID, b"", ZERO_HASH))
            self.set_meta("identity", entry.hash)
        elif entry.action is Action.GRANT:
            self._grant(placed.path, entry.content)
        elif entry.action is Action.LINK:
            self._link(entry)
        if entry.hash in self._unresolved:
            self._unresolved.discard(entry.hash)
            self._db.execute("UPDATE links SET path = ? WHERE target = ?", (placed.path, entry.hash))
        if entry.action is not Action.WRITE or not entry.content or self._open_chain(placed, now, complete):
            self._contribute(placed.path, entry.hash)
        return placed

    def _grant(self, path: int, public: bytes) -> None:
        fingerprint = fingerprint_of(public)
        # Two keys with one fingerprint would take 2**64 work by somebody who holds a key; the first one stays.
        self._granted.setdefault(fingerprint, {}).setdefault(path, public)
        self._db.execute("INSERT OR IGNORE INTO granted VALUES (?, ?, ?)", (path, fingerprint, public))

    def _link(self, entry: Entry) -> None:
        target = EntryHash(entry.content)
        row = self._db.execute("SELECT path FROM entries WHERE hash = ?", (target,)).fetchone()
        if row is None:
            self._unresolved.add(target)
        self._db.execute("INSERT INTO links VALUES (?, ?, ?)", (entry.hash, target, None if row is None else row[0]))

    def links_to(self, path: int) -> list[Placed]:
        """The link entries whose target is an entry of this path."""
        rows = self._db.execute(
            "SELECT e.hash, e.kind, e.path, e.directory, e.data, e.checksum "
            "FROM links l JOIN entries e ON e.hash = l.entry WHERE l.path = ?",
            (path,),
        ).fetchall()
        return [placed for row in rows if (placed := self._placed(row)) is not None]

    def links_below(self, path: int) -> list[Placed]:
        """The link entries whose target is an entry of any path below this one."""
        rows = self._db.execute(
            "WITH RECURSIVE below (id) AS (SELECT id FROM paths WHERE parent = ? "
            "UNION ALL SELECT p.id FROM below b JOIN paths p ON p.parent = b.id) "
            "SELECT e.hash, e.kind, e.path, e.directory, e.data, e.checksum FROM below b JOIN links l ON l.path = b.id "
            "JOIN entries e ON e.hash = l.entry",
            (path,),
        ).fetchall()
        return [placed for row in rows if (placed := self._placed(row)) is not None]

    def has_links(self, path: int) -> bool:
        """Whether a link entry ever named an entry of this path."""
        return self._db.execute("SELECT 1 FROM links WHERE path = ? LIMIT 1", (path,)).fetchone() is not None

    # -- keys ---------------------------------------------------------------------------------------------------------

    def public_key(self, placed: Placed) -> bytes | None:
        """The raw public key that an entry names, if it was ever granted on the entry's path or above it."""
        places = self._granted.get(placed.entry.fingerprint)
        if places is None:
            return None
        if ROOT_PATH_ID in places:
            return places[ROOT_PATH_ID]
        path = placed.above if placed.path == NEW_PATH else placed.path
        while path:
            if path in places:
                return places[path]
            path = self.path_row(path).parent
        return None

    def granted_paths(self) -> set[int]:
        """The ids of the paths on which any key was ever granted."""
        return {path for places in self._granted.values() for path in places}

    def key_names(self) -> dict[Fingerprint, str]:
        """The names under which keys were granted, the latest where there are several; for people."""
        names: dict[Fingerprint, str] = {}
        # Literally 2, EntryKind.KEY: SQLite uses a partial index for a condition that it can see.
        rows = self._db.execute(
            "SELECT hash, kind, path, directory, data, checksum FROM entries WHERE kind = 2 ORDER BY seq"
        )
        for row in rows:
            placed = self._placed(row)
            if placed is not None and placed.entry.action is Action.GRANT:
                names[fingerprint_of(placed.entry.content)] = placed.entry.name.decode("utf-8", "backslashreplace")
        return names

    # -- blocks -------------------------------------------------------------------------------------------------------

    def block(self, hash: BlockHash) -> Block | None:
        """A block, or `None` if it is unknown or damaged."""
        row = self._db.execute("SELECT data FROM blocks WHERE hash = ?", (hash,)).fetchone()
        if row is None:
            return None
        try:
            block = Block.decode(row[0])
        except InvalidEntry:
            block = None
        if block is None or block.hash != hash:
            self._report_damage("block", hash)
            return None
        return block

    def is_complete(self, first: bytes) -> bool:
        """Whether all blocks of a chain are here; the empty content always is."""
        return not first or self._db.execute("SELECT 1 FROM chains WHERE first = ?", (first,)).fetchone() is None

    def insert_block(self, block: Block) -> None:
        """Append a block, inside a transaction, without looking who waits for it: for content made on this node."""
        self._db.execute("INSERT OR IGNORE INTO blocks (hash, data) VALUES (?, ?)", (block.hash, block.encode()))

    def store_blocks(self, blocks: Sequence[Block]) -> bool:
        """Store some blocks of content made on this node, whose entry comes later, in a transaction of its own.

        Needs no lock, but nobody else may write meanwhile.  False if a chain waits for one of them: then nothing is
        stored, and `append_block` must be used.  Raises `NoSpace`, `StoreError`.
        """
        try:
            with self._bulk:
                self._bulk.execute("BEGIN IMMEDIATE")
                for block in blocks:
                    if self._bulk.execute("SELECT 1 FROM chains WHERE missing = ?", (block.hash,)).fetchone():
                        self._bulk.execute("ROLLBACK")
                        return False
                rows = [(block.hash, block.encode()) for block in blocks]
                self._bulk.executemany("INSERT OR IGNORE INTO blocks (hash, data) VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise _store_error(error, self.path) from None
        self._unsynced = True
        return True

    def _open_chain(self, placed: Placed, now: float, complete: bool) -> bool:
        """Note what a write waits for; True if all its blocks are here."""
        first = BlockHash(placed.entry.content)
        if self._db.execute("SELECT 1 FROM chains WHERE first = ?", (first,)).fetchone():
            # All writes of one chain are in one state, so the older ones are *receiving* again, like the new one.
            self._set_stalled(first, stalled=False, now=now)
        elif complete:
            return True
        else:
            missing, last = self._follow(first, BlockHash(ZERO_HASH))
            if missing == ZERO_HASH:
                return True
            self._db.execute("INSERT INTO chains VALUES (?, ?, ?, 0, ?)", (first, missing, last, now))
        self._db.execute("INSERT INTO waiting VALUES (?, ?)", (first, placed.entry.hash))
        return False

    def _follow(self, hash: BlockHash, last: BlockHash) -> tuple[BlockHash, BlockHash]:
        """Walk a chain from `hash`: (first hash that is not here, last block that is)."""
        while hash != ZERO_HASH:
            # Not `block`: hashing 200 MB takes half a second.  Damage is found when the content is read.
            row = self._db.execute("SELECT substr(data, 1, 28) FROM blocks WHERE hash = ?", (hash,)).fetchone()
            if row is None:
                break
            hash, last = BlockHash(row[0]), hash
        return hash, last

    def expects(self, hash: BlockHash) -> bool:
        """Whether some chain waits for exactly this block."""
        return self._db.execute("SELECT 1 FROM chains WHERE missing = ?", (hash,)).fetchone() is not None

    def chains_waiting_for(self, hash: BlockHash) -> list[BlockHash]:
        """The first blocks of the chains that wait for exactly this block."""
        rows = self._db.execute("SELECT first FROM chains WHERE missing = ?", (hash,))
        return [BlockHash(first) for (first,) in rows]

    def append_block(self, block: Block, *, now: float) -> list[EntryHash]:
        """Append an expected block, inside a transaction; returns the write entries whose content it completed."""
        hash = block.hash
        chains = self._db.execute("SELECT first FROM chains WHERE missing = ?", (hash,)).fetchall()
        self.insert_block(block)
        missing, last = self._follow(block.next, hash)
        completed: list[EntryHash] = []
        for (first,) in chains:
            self._set_stalled(first, stalled=False, now=now)
            if missing != ZERO_HASH:
                self._db.execute("UPDATE chains SET missing = ?, last = ? WHERE first = ?", (missing, last, first))
                continue
            for (entry,) in self._db.execute("SELECT entry FROM waiting WHERE first = ?", (first,)).fetchall():
                self._contribute(self._path_of(entry), entry)
                completed.append(EntryHash(entry))
            self._db.execute("DELETE FROM waiting WHERE first = ?", (first,))
            self._db.execute("DELETE FROM chains WHERE first = ?", (first,))
        return completed

    def missing_blocks(self, limit: int) -> list[BlockHash]:
        """The block that each incomplete chain waits for, at most `limit` of them."""
        rows = self._db.execute("SELECT DISTINCT missing FROM chains LIMIT ?", (limit,))
        return [BlockHash(missing) for (missing,) in rows]

    def missing_block(self, first: BlockHash) -> BlockHash | None:
        """The block that one chain waits for, `None` if it is complete or unknown."""
        row = self._db.execute("SELECT missing FROM chains WHERE first = ?", (first,)).fetchone()
        return None if row is None else BlockHash(row[0])

    def stall(self, *, older_than: float) -> int:
        """Chains without a block since `older_than` (UNIX seconds) become *stalled*, in a transaction of its own.

        Returns how many.  From then on the Merkle tree shows the gap, so that the next sync closes it.
        """
        rows = self._db.execute("SELECT first FROM chains WHERE NOT stalled AND changed < ?", (older_than,)).fetchall()
        if rows:
            with self.transaction():
                for (first,) in rows:
                    self._set_stalled(first, stalled=True, now=older_than)
        return len(rows)

    def _set_stalled(self, first: BlockHash, *, stalled: bool, now: float) -> None:
        last, was = self._db.execute("SELECT last, stalled FROM chains WHERE first = ?", (first,)).fetchone()
        if bool(was) != stalled:
            for (entry,) in self._db.execute("SELECT entry FROM waiting WHERE first = ?", (first,)).fetchall():
                self._contribute(self._path_of(entry), xor(entry, last))
        self._db.execute("UPDATE chains SET stalled = ?, changed = ? WHERE first = ?", (stalled, now, first))

    def waiting_at(self, path: int) -> tuple[list[EntryHash], list[tuple[EntryHash, BlockHash]]]:
        """The incomplete writes of a path: those *receiving*, and those *stalled* with their last block's hash."""
        rows = self._db.execute(
            "SELECT w.entry, c.last, c.stalled FROM waiting w JOIN entries e ON e.hash = w.entry "
            "JOIN chains c ON c.first = w.first WHERE e.path = ?",
            (path,),
        ).fetchall()
        receiving = [EntryHash(entry) for entry, _, stalled in rows if not stalled]
        return receiving, [(EntryHash(entry), BlockHash(last)) for entry, last, stalled in rows if stalled]

    # -- paths and the Merkle tree ------------------------------------------------------------------------------------

    def path_row(self, path: int) -> PathRow:
        """The path with this id, which must exist."""
        return PathRow(*self._db.execute("SELECT id, parent, name, hash FROM paths WHERE id = ?", (path,)).fetchone())

    def find_path(self, parent: int, name: bytes) -> PathRow | None:
        """The path `name` below `parent`, or `None` where no entry ever named it."""
        row = self._db.execute(
            "SELECT id, parent, name, hash FROM paths WHERE parent = ? AND name = ?", (parent, name)
        ).fetchone()
        return None if row is None else PathRow(*row)

    def find_names(self, names: Sequence[bytes]) -> int | None:
        """The id of the path with these components from the root down, or `None` where no entry ever named it."""
        path = ROOT_PATH_ID
        for name in names:
            row = self.find_path(path, name)
            if row is None:
                return None
            path = row.id
        return path

    def paths_below(self, parent: int) -> list[PathRow]:
        """The paths directly below one, sorted by name."""
        rows = self._db.execute("SELECT id, parent, name, hash FROM paths WHERE parent = ? ORDER BY name", (parent,))
        return [PathRow(*row) for row in rows]

    def names(self, path: int) -> tuple[bytes, ...]:
        """The components of a path, from the root down; empty for the root."""
        names: list[bytes] = []
        while path != ROOT_PATH_ID:
            row = self.path_row(path)
            names.append(row.name)
            path = row.parent
        return tuple(reversed(names))

    def root_hash(self) -> bytes:
        """XOR of everything in the Merkle tree; `ZERO_HASH` for an empty log."""
        row = self._db.execute("SELECT hash FROM paths WHERE id = ?", (ROOT_PATH_ID,)).fetchone()
        return ZERO_HASH if row is None else row[0]

    def _path_of(self, entry: bytes) -> int:
        return int(self._db.execute("SELECT path FROM entries WHERE hash = ?", (entry,)).fetchone()[0])

    def _path_id(self, parent: int, name: bytes) -> int:
        row = self._db.execute("SELECT id FROM paths WHERE parent = ? AND name = ?", (parent, name)).fetchone()
        if row is not None:
            return int(row[0])
        cursor = self._db.execute("INSERT INTO paths (parent, name, hash) VALUES (?, ?, ?)", (parent, name, ZERO_HASH))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _contribute(self, path: int, hash: bytes) -> None:
        """XOR a hash into a path.  Collected until the commit: a batch updates each ancestor once."""
        self._merkle[path] = xor(self._merkle.get(path, ZERO_HASH), hash)

    def _flush_merkle(self) -> None:
        pending = self._merkle
        self._merkle = {}
        while pending:
            above: dict[int, bytes] = {}
            for path, change in pending.items():
                row = self.path_row(path)
                self._db.execute("UPDATE paths SET hash = ? WHERE id = ?", (xor(row.hash, change), path))
                if row.parent:
                    above[row.parent] = xor(above.get(row.parent, ZERO_HASH), change)
            pending = above


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.execute("PRAGMA journal_mode = WAL")
    # A commit reaches the page cache, so it survives kill -9; `sync` makes it survive a power cut.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _checksum(data: bytes) -> bytes:
    return sha224(data)[:8]


def _store_error(error: sqlite3.Error, path: Path) -> StoreError:
    if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
        return NoSpace(f"the disk that holds {path} is full: free some space")
    return StoreError(f"cannot write the log {path}: {error}")
