"""The append-only store: entries and the tables derived from them, in one SQLite file (docs/formats.md, section 8).

Invariants

1. `entries` and `blocks` only grow; triggers refuse every UPDATE and DELETE.  The other tables are derived from them
   and change in the same transaction.
2. An entry is stored after its parent, and after what a link or revert names.  So every entry has a path.
3. An entry contributes its hash to the Merkle tree (`paths`), a write also while blocks of it are missing (`missing`).
4. A row whose content does not match its hash is never returned, see `database`.

Not thread-safe: `Replica` holds its lock around every call.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from basefs.errors import DamagedLog, InvalidEntry, NameTooLong
from basefs.log.arrivals import Arrivals
from basefs.log.blocks import Block
from basefs.log.database import Database
from basefs.log.detached import Detached
from basefs.log.entries import KEY_ACTIONS, Action, Entry
from basefs.log.granted import Granted
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, Fingerprint, sha224
from basefs.log.interface import Digest
from basefs.log.keys import named_key
from basefs.log.missing import BlockStore
from basefs.log.paths import PathRow, Paths
from basefs.log.placement import NEW_PATH, EntryKind, Placed, place_behind, place_root
from basefs.log.remembered import Remembered
from basefs.log.reserve import NO_LIMITS, DiskLimits, Reserve, free_bytes
from basefs.log.treerows import TreeRows
from basefs.path import check_length

log = logging.getLogger(__name__)

#: What `placed_of` needs of an entry.
ENTRY_COLUMNS = "hash, kind, path, directory, data, checksum"
#: The same of entries `e` that are joined with something else.
_JOINED_COLUMNS = ", ".join(f"e.{column}" for column in ENTRY_COLUMNS.split(", "))
#: The fingerprint in an encoded entry, before the signature.
_SIGNER = "substr(data, -92, 28)"
#: As in the index that is for these.
_IS_GOSSIP_KEY = f"kind = {EntryKind.ANNOTATION:d} AND substr(data, 38, 1) = x'{Action.GOSSIP_KEY:02x}'"
#: Hashes looked up at once.
_HASHES_A_QUERY = 256
#: Actions of which more follows than the place of the entry.
_DERIVED = KEY_ACTIONS | {Action.LINK}
#: Entries kept in memory, about 1 kB each: the last ones of so many files that are written again and again.
_REMEMBERED_ENTRIES = 8192


class Store:
    """The log of one filesystem on disk.

    Attributes:
        database: the file, its transactions and its durability.
        paths: the Merkle tree.
        blocks: blocks, and which of them are missing.
        granted: the keys that a signature may be of.
        arrivals: when entries came.
        detached: intact entries whose parent or grant was lost.
        tree: the rows of the worktree's index.
        reserve: says whether there is room for the contents of others.
        committed: the digest of the log after the last transaction, to be read without the lock.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open a log, or create an empty one.  Raises `StoreError` where that fails."""
        self.database = Database(path, create=create)
        self._db = self.database.main
        self.paths = Paths(self._db)
        self.blocks = BlockStore(self.database)
        self.granted = Granted(self._db, self.paths)
        self.arrivals = Arrivals(self._db)
        self.detached = Detached(self._db)
        self.tree = TreeRows(self._db)
        self.reserve = Reserve(path, NO_LIMITS, free_bytes)
        #: Counts what `version` and `keys_version` cannot see: entries that vanish again.
        self._rollbacks = 0
        self._keys = 0
        #: Entries that were read or stored lately: new entries build on recent ones.
        self._recent: Remembered[EntryHash, Placed] = Remembered(_REMEMBERED_ENTRIES)
        try:
            self._load()
            self.committed = self._digest()
        except BaseException as error:
            self.database.close()
            if isinstance(error, sqlite3.Error):
                raise self.database.translate(error) from None
            raise

    def _load(self) -> None:
        """Load the state in memory; also after a failed transaction."""
        self._rollbacks += 1
        self._recent.clear()
        self.blocks.load()
        self.granted.load()
        self.detached.load()

    def close(self) -> None:
        """Write the WAL back and release the file."""
        self.database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside reaches the log together or not at all.

        Raises `NoSpace` or `StoreError` where SQLite cannot write; the log is then as before.
        """
        try:
            with self.database.transaction():
                yield
                self.paths.flush()
                self.arrivals.flush()
                digest = self._digest()
            self.committed = digest
        except BaseException:
            self.paths.forget()
            self.arrivals.pending = None
            self._load()
            raise

    def _digest(self) -> Digest:
        missing = self.blocks.wanted_count
        waiting = missing if self.blocks.lacks_room else 0
        return Digest(self.paths.root_hash(), self.entry_count(), waiting, missing, self.blocks.wanted_hash())

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Roll back the insertions inside, in a transaction or without one.  Raises `StoreError`."""
        pending, arrival = self.paths.take_pending(), self.arrivals.pending
        try:
            with self.database.savepoint():
                yield
        finally:
            self.paths.restore(pending)
            self.arrivals.pending = arrival
            self._load()

    @contextmanager
    def as_of(self, sequence: int) -> Iterator[None]:
        """Inside, no entry is seen that arrived after the one with this number; nothing can be inserted."""
        # A temporary view hides the table of the same name, whose indexes it uses.
        self._db.execute(f"CREATE TEMP VIEW entries AS SELECT * FROM main.entries WHERE seq <= {int(sequence)}")
        self._recent.clear()
        self._rollbacks += 1
        try:
            yield
        finally:
            self._recent.clear()
            self._rollbacks += 1
            self._db.execute("DROP VIEW temp.entries")

    @property
    def version(self) -> tuple[int, int]:
        """Another one after each change of what is read here."""
        return self._rollbacks, self._db.total_changes

    @property
    def keys_version(self) -> tuple[int, int]:
        """Another one after each grant and revoke."""
        return self._rollbacks, self._keys

    def sequence(self, hash: EntryHash) -> int | None:
        """The number of an entry in the order of arrival, from 1 on; `None` if it is unknown."""
        row = self._db.execute("SELECT seq FROM entries WHERE hash = ?", (hash,)).fetchone()
        return None if row is None else int(row[0])

    # -- reading ------------------------------------------------------------------------------------------------------

    def __contains__(self, hash: EntryHash) -> bool:
        return self._db.execute("SELECT 1 FROM entries WHERE hash = ?", (hash,)).fetchone() is not None

    def known(self, hashes: Sequence[EntryHash]) -> set[EntryHash]:
        """Those of these hashes whose entries are in the log."""
        found: set[EntryHash] = set()
        for start in range(0, len(hashes), _HASHES_A_QUERY):
            some = hashes[start : start + _HASHES_A_QUERY]
            marks = ",".join("?" * len(some))
            found.update(row[0] for row in self._db.execute(f"SELECT hash FROM entries WHERE hash IN ({marks})", some))
        return found

    def arrived_behind(self, sequence: int) -> set[EntryHash]:
        """The entries that came after the one with this number."""
        return {EntryHash(hash) for (hash,) in self._db.execute("SELECT hash FROM entries WHERE seq > ?", (sequence,))}

    def arrived(self, sequence: int) -> dict[int, bool]:
        """The paths, by id, with state or key entries behind a number; and whether what is below may differ for these.

        A key that was granted or revoked changes what others see below only where it has signed something.
        """
        query = "SELECT DISTINCT path FROM entries WHERE seq > ? AND kind < 3"
        found = {path: False for (path,) in self._db.execute(query, (sequence,))}
        keys = [placed for placed in self.keys_behind(sequence) if placed.entry.action is not Action.ADMIT]
        if keys and self._have_signed([placed.entry for placed in keys]):
            found.update((placed.path_id, True) for placed in keys)
        return found

    def _have_signed(self, entries: Sequence[Entry]) -> bool:
        """Whether a key that grants and revokes name, or one that owes its grant to it, has signed a state entry."""
        if any(entry.extensions.recovery is not None for entry in entries):
            return True
        named = set(map(named_key, entries))
        for placed in self.keys_behind(0):
            if placed.entry.fingerprint in named and placed.entry.action is Action.GRANT:
                named.add(named_key(placed.entry))
        query = f"SELECT 1 FROM entries WHERE kind < 2 AND {_SIGNER} IN ({','.join('?' * len(named))}) LIMIT 1"
        return self._db.execute(query, [*named]).fetchone() is not None

    def entry_count(self) -> int:
        """Number of entries."""
        return int(self._db.execute("SELECT max(seq) FROM entries").fetchone()[0] or 0)

    def get(self, hash: EntryHash) -> Placed | None:
        """The entry with this hash, or `None` if it is unknown or its row is damaged."""
        recent = self._recent.get(hash)
        if recent is not None:
            return recent
        row = self._db.execute(f"SELECT {ENTRY_COLUMNS} FROM entries WHERE hash = ?", (hash,)).fetchone()
        placed = None if row is None else self._placed(row)
        if placed is not None:
            self._recent.keep(hash, placed)
        return placed

    def root(self) -> Entry | None:
        """The root entry; `None` before it has arrived, and if its row is damaged."""
        identity = self.database.meta("identity")
        placed = None if identity is None else self.get(EntryHash(identity))
        return None if placed is None else placed.entry

    def block(self, hash: BlockHash) -> Block | None:
        """A block, or `None` if it is unknown or damaged."""
        return self.blocks.block(hash)

    def is_complete(self, write: EntryHash) -> bool:
        """Whether all blocks of a write are here."""
        return self.blocks.is_complete(write)

    def find(self, prefix: str) -> list[EntryHash]:
        """The hashes of the entries that begin with these hexadecimal digits, at most 16 of them."""
        digits = prefix.lower()
        if not digits or len(digits) > 2 * len(ZERO_HASH) or digits.strip("0123456789abcdef"):
            return []
        low = bytes.fromhex(digits.ljust(2 * len(ZERO_HASH), "0"))
        high = bytes.fromhex(digits.ljust(2 * len(ZERO_HASH), "f"))
        rows = self._db.execute("SELECT hash FROM entries WHERE hash BETWEEN ? AND ? LIMIT 16", (low, high))
        return [EntryHash(hash) for (hash,) in rows]

    def latest(self) -> Placed | None:
        """The entry that came last; `None` in an empty log, or as in `get`."""
        row = self._db.execute(f"SELECT {ENTRY_COLUMNS} FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        return None if row is None else self._placed(row)

    def entries_at(self, path_id: int, directories: Collection[EntryHash] | None = None) -> list[Placed]:
        """All entries of one path, or those in these incarnations of its directory, in order of arrival.

        So parents come first.
        """
        within, values = _within(directories)
        rows = self._db.execute(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE path = ?{within} ORDER BY seq", (path_id, *values)
        )
        return self._all_placed(rows)

    def keys_at(self, path_id: int) -> list[Placed]:
        """The grants, revokes and admits of one path, in order of arrival."""
        # The sign keeps SQLite from the index of all keys: a path has few entries.
        rows = self._db.execute(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE path = ? AND +kind = {EntryKind.KEY:d} ORDER BY seq", (path_id,)
        )
        return self._all_placed(rows)

    def key_hashes_at(self, path_id: int) -> set[EntryHash]:
        """Their hashes alone, which takes a tenth of the time."""
        rows = self._db.execute(f"SELECT hash FROM entries WHERE path = ? AND +kind = {EntryKind.KEY:d}", (path_id,))
        return {EntryHash(hash) for (hash,) in rows}

    def keys_behind(self, sequence: int) -> list[Placed]:
        """The grants, revokes and admits that came after the entry with this number, in order of arrival."""
        query = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE kind = {EntryKind.KEY:d} AND seq > ? ORDER BY seq"
        return self._all_placed(self._db.execute(query, (sequence,)))

    def gossip_keys(self, signers: Collection[Fingerprint]) -> list[Entry]:
        """The annotations of which the gossip key is made that these keys have signed, in order of arrival."""
        # Others, of which there may be any number, cost no decoding.
        marks = ", ".join("?" * len(signers))
        query = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE {_IS_GOSSIP_KEY} AND {_SIGNER} IN ({marks}) ORDER BY seq"
        return [placed.entry for placed in self._all_placed(self._db.execute(query, tuple(signers)))]

    def key_paths(self) -> set[int]:
        """The ids of the paths on which any grant, revoke or admit hangs."""
        # Not DISTINCT, for which SQLite would go through all entries by path instead of the index of keys.
        rows = self._db.execute(f"SELECT path FROM entries WHERE kind = {EntryKind.KEY:d}")
        return {path_id for (path_id,) in rows}

    def entries_under(
        self, path_id: int, directories: Collection[EntryHash], names: Collection[bytes] | None = None
    ) -> dict[PathRow, list[Placed]]:
        """The entries of all paths directly below `path`, or of those with some names, in these incarnations of it.

        By path, in one query.
        """
        within, values = _within(directories)
        some = "" if names is None else f" AND p.name IN ({','.join('?' * len(names))})"
        rows = self._db.execute(
            f"SELECT {_JOINED_COLUMNS}, p.name, p.hash FROM paths p "
            f"JOIN entries e ON e.path = p.id WHERE p.parent = ?{some}{within} ORDER BY p.id, e.seq",
            (path_id, *(names or ()), *values),
        )
        found: dict[int, tuple[PathRow, list[Placed]]] = {}
        for *columns, name, hash in rows:
            placed = self._placed(columns)
            if placed is not None:
                found.setdefault(placed.path_id, (PathRow(placed.path_id, path_id, name, hash), []))[1].append(placed)
        return dict(found.values())

    def _all_placed(self, rows: Iterable[Sequence[object]]) -> list[Placed]:
        """The entries of these rows; damaged ones are reported and left out."""
        return [placed for row in rows if (placed := self._placed(row)) is not None]

    def _placed(self, row: Sequence[object]) -> Placed | None:
        placed = placed_of(row)
        if placed is None:
            assert isinstance(row[0], bytes)
            self.database.report_damage("entry", row[0])
        return placed

    def links_to(self, path_id: int) -> list[Placed]:
        """The links that name an entry of this path."""
        return self._all_placed(
            self._db.execute(
                f"SELECT {_JOINED_COLUMNS} FROM links l JOIN entries e ON e.hash = l.entry WHERE l.path = ?", (path_id,)
            )
        )

    # -- writing ------------------------------------------------------------------------------------------------------

    def place(self, entry: Entry) -> Placed | None:
        """Where an entry would stand; `None` while its parent, or what a link or revert names, is unknown.

        Raises `InvalidEntry` if it can stand nowhere (docs/formats.md, section 3), `DamagedLog` behind a damaged row.
        """
        if entry.is_root:
            return place_root(entry)
        needs: list[Placed] = []
        for hash in entry.needs:
            placed = self.get(hash)
            if placed is None:
                if hash in self.database.damaged:
                    raise DamagedLog(f"an entry that entry {entry.hash.hex()[:12]} builds on is damaged")
                return None
            needs.append(placed)
        placed = place_behind(entry, *needs)
        if placed.path_id == NEW_PATH:
            row = self.paths.find(placed.above, entry.name)
            if row is not None:
                return placed._replace(path_id=row.id)
            try:
                check_length((*self.paths.path_of(placed.above), entry.name))
            except NameTooLong as error:
                raise InvalidEntry(f"entry {entry.hash.hex()[:12]}: {error}") from None
        return placed

    def insert(self, placed: Placed, *, now: float, complete: bool = False, needed: bool = True) -> Placed:
        """Append a placed and verified entry, inside a transaction; returns it with its path's id.

        `complete`: the caller knows that the blocks which it names are here; `needed`: they should come.
        """
        entry, kind, path_id, directory, above, _ = placed
        if path_id == NEW_PATH:
            # `place` has found no such path, and nothing came in between.
            path_id = self.paths.make(above, entry.name, entry.hash)
            placed = Placed(entry, kind, path_id, directory, above, is_first=True)
        elif kind is EntryKind.CHILD and entry.is_root:
            self.paths.add_root(entry.hash)
            self.database.set_meta("identity", entry.hash)
        else:
            self.paths.contribute(path_id, entry.hash)
        data = entry.encode()
        cursor = self._db.execute(
            "INSERT INTO entries (hash, parent, kind, path, directory, data, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (entry.hash, entry.parent, int(kind), path_id, directory, data, checksum_of(data)),
        )
        assert cursor.lastrowid is not None
        self.arrivals.pending = cursor.lastrowid, now
        if entry.action in _DERIVED:
            self._derive(placed)
        if not complete:
            self.blocks.open(placed, now, needed)
        if kind is EntryKind.SUCCESSOR:
            # Few other entries will build on that one.
            self._recent.pop(entry.parent, None)
        if entry.action is not Action.DELETE:
            # Few entries build on the end of a file.
            self._recent.keep(entry.hash, placed)
        return placed

    def _derive(self, placed: Placed) -> None:
        """Note what an entry says about others or its path, inside a transaction."""
        entry = placed.entry
        self._keys += placed.kind is EntryKind.KEY
        if entry.action is Action.GRANT:
            self.granted.add(placed.path_id, entry.content)
        elif entry.action is Action.LINK:
            named = self.get(EntryHash(entry.content))
            assert named is not None, "`place` has found it"
            self._db.execute("INSERT INTO links VALUES (?, ?)", (named.path_id, entry.hash))

    def set_limits(self, limits: DiskLimits, free: Callable[[Path], int] = free_bytes) -> None:
        """Keep the contents of others within limits from now on; `free`: bytes that are free in a directory."""
        self.reserve = Reserve(self.database.path, limits, free)
        self.review()

    def review(self) -> int:
        """Let contents wait once a limit is reached, or have them come again; returns how many come again."""
        reached = self.reserve.reached()
        if bool(reached) == self.blocks.lacks_room:
            return 0
        self.blocks.lacks_room = bool(reached)
        self.committed = self._digest()
        if reached:
            log.info("no room for contents: %s is reached, those of other nodes wait", reached)
            return 0
        log.info("room for contents again: %d that have waited are fetched", self.blocks.wanted_count)
        return self.blocks.wanted_count


def _within(directories: Collection[EntryHash] | None) -> tuple[str, Collection[EntryHash]]:
    """A condition for entries under some incarnations of a directory; more of them than one are rare."""
    if directories is None or len(directories) > _HASHES_A_QUERY:
        return "", ()
    return f" AND directory IN ({','.join('?' * len(directories))})", directories


def placed_of(row: Sequence[object]) -> Placed | None:
    """The entry in a row of `ENTRY_COLUMNS`, or `None` if it does not match its hash and checksum."""
    hash, kind, path_id, directory, data, checksum = row
    assert isinstance(hash, bytes) and isinstance(kind, int) and isinstance(path_id, int)
    assert isinstance(directory, bytes) and isinstance(data, bytes)
    try:
        entry = Entry.decode(data)
    except InvalidEntry:
        return None
    if entry.hash != hash or checksum != checksum_of(data):
        return None
    return Placed(entry, EntryKind(kind), path_id, EntryHash(directory))


def checksum_of(data: bytes) -> bytes:
    """The checksum of an encoding in a row, since the hash of an entry does not cover its signature."""
    return sha224(data)[:8]
