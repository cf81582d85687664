"""Rebuild: a second log from the rows of a log that may be damaged.

Every row is read as if a stranger had sent it, and passes through `intake` into a second log beside the first.  So the
two are equal exactly if the first one is intact; otherwise the second one holds the intact rest.  The first log is not
changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from basefs.errors import InvalidEntry
from basefs.log.blocks import Block
from basefs.log.entries import Entry
from basefs.log.hashes import HASH_SIZE, EntryHash
from basefs.log.intake import Intake, Newcomer
from basefs.log.orphans import Orphans
from basefs.log.store import Store, checksum_of

#: Rows that are taken in one transaction.
_BATCH = 1000
#: Rows that may be unreadable one after the other before the rest of a table is given up.
_MAX_GAP = 5000


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong.

    Attributes:
        table: where, as SQLite names it; "file" for the whole.
        row: which row: a number, a hash, a path.
        problem: the error.
        lost: whether it does not follow from the rest of the log, so that only a peer can restore it.
    """

    table: str
    row: str
    problem: str
    lost: bool = False


@dataclass(slots=True)
class Rebuilt:
    """The result of a rebuild.

    Attributes:
        store: the second log.
        findings: the errors in the rows.
        rows: entry -> (seq, parent, kind, path, directory) of its row.
        left: entries that cannot be placed, with the hash or fingerprint that they need.
    """

    store: Store
    findings: list[Damage] = field(default_factory=list)
    rows: dict[EntryHash, tuple[object, ...]] = field(default_factory=dict)
    left: dict[EntryHash, bytes] = field(default_factory=dict)


class _Waiting(Orphans):
    """Orphans without bounds: they come from our own disk."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[EntryHash, tuple[Entry, bytes]] = {}
        self._by_need: dict[bytes, list[EntryHash]] = {}

    def hold(self, entry: Entry, needs: bytes, peer: str) -> None:
        self.entries[entry.hash] = (entry, needs)
        self._by_need.setdefault(needs, []).append(entry.hash)

    def release(self, known: bytes) -> list[tuple[Entry, str]]:
        hashes = [hash for hash in self._by_need.pop(known, ()) if hash in self.entries]
        return [(self.entries.pop(hash)[0], "") for hash in hashes]


class Rebuild:
    """Reads one log into another."""

    def __init__(
        self, source: sqlite3.Connection, store: Store, *, keep_blocks: bool, progress: Callable[[int], None]
    ) -> None:
        """Begin.

        Args:
            source: the log to read.
            store: an empty one.
            keep_blocks: whether to copy the data of all blocks; otherwise only of those that may be lists, and the
                sizes of the others.
            progress: called with the number of rows done since the last call.
        """
        self._source = source
        self._store = store
        self._keep_blocks = keep_blocks
        self._progress = progress
        self._result = Rebuilt(store)

    def run(self) -> Rebuilt:
        """Read everything.  Raises `NoSpace`, `StoreError` where the second log cannot be written."""
        self._blocks()
        waiting = _Waiting()
        newcomer = Newcomer()
        for batch in _batches(self._rows("entries", "seq, hash, parent, kind, path, directory, data, checksum")):
            self._entries(batch, waiting, newcomer)
        self._detached(waiting, newcomer)
        if newcomer.root is not None:
            self._find("entries", 1, "the grant behind the root entry is missing or damaged", lost=True)
        with self._store.transaction():
            for hash, (entry, needs) in waiting.entries.items():
                self._store.detached.hold(entry, needs)
                self._result.left[hash] = needs
            self._arrivals()
            self._tree()
        return self._result

    def _arrivals(self) -> None:
        """Copy the times of arrival, which do not follow from the entries, with their present numbers."""
        try:
            rows = self._source.execute("SELECT seq, time FROM arrivals ORDER BY seq").fetchall()
        except sqlite3.DatabaseError as error:
            self._find("arrivals", "all", f"SQLite cannot read it: {error}")
            return
        numbers = [(row[0], self._store.sequence(hash)) for hash, row in self._result.rows.items()]
        known = {old for old, _ in numbers}
        placed = sorted((int(str(old)), new) for old, new in numbers if new is not None)
        last, position = 0, 0
        found: dict[int, float] = {}
        for seq, time in rows:
            if (seq not in known and not self._result.findings) or not isinstance(time, float):
                self._find("arrivals", seq, "it names no entry, or no time")
                continue
            while position < len(placed) and placed[position][0] <= seq:
                last = max(last, placed[position][1])
                position += 1
            if last:
                found.setdefault(last, time)
        self._store.arrivals.replace(found)

    def _tree(self) -> None:
        """Copy the worktree's index, which does not follow from the entries either.

        Its facts are left out: they name entries by numbers that are others now, and all is looked at again.
        """
        try:
            self._store.tree.copy(self._source)
        except sqlite3.DatabaseError as error:
            self._find("tree", "all", f"SQLite cannot read it: {error}")

    def _find(self, table: str, row: object, problem: str, *, lost: bool = False) -> None:
        self._result.findings.append(Damage(table, str(row), problem, lost))

    def _rows(self, table: str, columns: str) -> Iterator[tuple[object, ...]]:
        """All rows of a table that can be read, by number."""
        last = 0
        while True:
            try:
                query = f"SELECT {columns} FROM {table} NOT INDEXED WHERE seq > ? ORDER BY seq"
                for row in self._source.execute(query, (last,)):
                    last = row[0]
                    yield row
                return
            except sqlite3.DatabaseError as error:
                self._find(table, f"behind {last}", f"SQLite cannot read it: {error}", lost=True)
            found = self._next_readable(table, columns, last)
            if found is None:
                return
            last = int(str(found[0]))
            yield found

    def _next_readable(self, table: str, columns: str, last: int) -> tuple[object, ...] | None:
        for seq in range(last + 1, last + _MAX_GAP):
            try:
                row = self._source.execute(f"SELECT {columns} FROM {table} WHERE seq = ?", (seq,)).fetchone()
            except sqlite3.DatabaseError:
                continue
            if row is not None:
                found: tuple[object, ...] = row
                return found
        return None

    # -- blocks -------------------------------------------------------------------------------------------------------

    def _blocks(self) -> None:
        for batch in _batches(self._rows("blocks", "seq, hash, size, data")):
            rows = []
            for seq, hash, size, data in batch:
                try:
                    if not isinstance(data, bytes):
                        raise InvalidEntry("it holds no bytes")
                    block = Block.decode(data)
                except InvalidEntry as error:
                    self._find("blocks", seq, f"not a block: {error}", lost=True)
                    continue
                if block.hash != hash:
                    # It may be whole under another hash; if nothing names that, it does no harm.
                    self._find("blocks", seq, "it does not match its hash", lost=True)
                elif size != len(block.data):
                    self._find("blocks", seq, "its size does not match its data")
                rows.append((block.hash, len(data), data if self._keep_blocks or not len(data) % HASH_SIZE else b""))
            with self._store.transaction():
                self._store.blocks.copy_rows(rows)
            self._progress(len(batch))

    # -- entries ------------------------------------------------------------------------------------------------------

    def _entries(self, batch: list[tuple[object, ...]], waiting: _Waiting, newcomer: Newcomer) -> None:
        intake = Intake(self._store, waiting, newcomer, now=0.0, local=False)
        with self._store.transaction():
            for seq, hash, parent, kind, path, directory, data, checksum in batch:
                try:
                    if not isinstance(data, bytes):
                        raise InvalidEntry("it holds no bytes")
                    entry = Entry.decode(data)
                except InvalidEntry as error:
                    self._find("entries", seq, f"not an entry: {error}", lost=True)
                    continue
                if entry.hash in self._result.rows:
                    self._find("entries", seq, "it is there twice")
                    continue
                if not self._take(intake, waiting, newcomer, entry, seq):
                    continue
                self._result.rows[entry.hash] = (seq, parent, kind, path, directory)
                if hash != entry.hash:
                    self._find("entries", seq, "its hash does not match its data")
                if checksum != checksum_of(data):
                    self._find("entries", seq, "its checksum does not match its data")
        self._progress(len(batch))

    def _take(self, intake: Intake, waiting: _Waiting, newcomer: Newcomer, entry: Entry, where: object) -> bool:
        """Offer one entry; False if it is refused."""
        accepted, refused = len(intake.accepted), len(intake.rejected)
        intake.add_entries([entry], "")
        if len(intake.accepted) > accepted or entry.hash in waiting.entries or newcomer.root is entry:
            return True
        reason = "; ".join(intake.rejected[refused:]) or "it cannot be placed"
        self._find("entries", where, reason, lost=True)
        return False

    def _detached(self, waiting: _Waiting, newcomer: Newcomer) -> None:
        intake = Intake(self._store, waiting, newcomer, now=0.0, local=False)
        try:
            rows = self._source.execute("SELECT hash, needs, data FROM detached").fetchall()
        except sqlite3.DatabaseError as error:
            self._find("detached", "all", f"SQLite cannot read it: {error}", lost=True)
            return
        with self._store.transaction():
            for hash, needs, data in rows:
                try:
                    entry = Entry.decode(data)
                except (InvalidEntry, TypeError) as error:
                    self._find("detached", _hex(hash), f"not an entry: {error}", lost=True)
                    continue
                if entry.hash != hash:
                    self._find("detached", _hex(hash), "its hash does not match its data")
                self._take(intake, waiting, newcomer, entry, _hex(hash))
                if entry.hash not in waiting.entries:
                    self._find("detached", _hex(hash), "its parent or grant is here, or it is refused")
                elif waiting.entries[entry.hash][1] != needs:
                    self._find("detached", _hex(hash), "it waits for something else than it needs")


def _batches(rows: Iterator[tuple[object, ...]]) -> Iterator[list[tuple[object, ...]]]:
    batch: list[tuple[object, ...]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)
