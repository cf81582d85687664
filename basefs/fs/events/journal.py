"""The journal: every change of the view that this node has seen, in order, so that who was away can be told.

It is a database of its own beside the log, kept from the first time that somebody watches.  It remembers the shape of
each live path, so a change is the difference to what was told last: nothing is told twice, and what happened while the
daemon was dying is found when it starts again.  It may be deleted at any time; whoever holds a token of it then has to
begin anew.

Invariant: who applies the records in order to nothing but names and shapes has what `seen` holds.
"""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from basefs.errors import StoreError, UsageError
from basefs.log.entries import Entry
from basefs.path import Path
from basefs.view.events import EventType, Shape, events_between
from basefs.view.states import Kind

JOURNAL_FILE = "journal.db"
#: Records that are kept, about 150 bytes each; whoever was away for longer begins anew.
KEPT = 100_000
#: Records that may be added before the oldest are taken away.
_PRUNE_EVERY = 1000

_SCHEMA = """
-- One row: digits that make the tokens of this journal its own.
CREATE TABLE IF NOT EXISTS journal (id TEXT NOT NULL);
-- What was told, numbered from 1.  `entry`: hash of the entry that the path ends with, `key`: fingerprint of the key
-- that signed it; both empty where that is unknown.
CREATE TABLE IF NOT EXISTS record (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL, type TEXT NOT NULL, path BLOB NOT NULL,
    kind TEXT NOT NULL, entry BLOB NOT NULL, key BLOB NOT NULL
);
-- The shape of each live path, as the records leave it.
CREATE TABLE IF NOT EXISTS seen (
    path BLOB PRIMARY KEY, kind TEXT NOT NULL, content BLOB NOT NULL, attributes BLOB NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Live:
    """What a path is now.

    Attributes:
        path: the path.
        shape: `None` where nothing is there.
        entry: the entry that it ends with, `None` where that is unknown.
    """

    path: Path
    shape: Shape | None
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Record:
    """One event that was told.

    Attributes:
        number: its place, from 1.
        time: UNIX seconds at which this node saw it.
        type: what happened.
        names: to which path.
        kind: what is there; what was there, for a delete.
        entry, key: hash of the entry that the path ends with, and fingerprint of its signer; empty where unknown.
    """

    number: int
    time: int
    type: EventType
    path: Path
    kind: Kind
    entry: bytes
    key: bytes


class ChangeJournal:
    """The journal of one filesystem.  Used in one thread at a time."""

    def __init__(self, path: pathlib.Path, *, kept: int = KEPT) -> None:
        """Open it, or begin one.  `kept`: records that are kept at least.  Raises `StoreError`."""
        self._kept = kept
        with _translated(), contextlib.ExitStack() as unless_done:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db = unless_done.enter_context(contextlib.closing(connection))
            self._db.execute("PRAGMA journal_mode = WAL")
            # A commit survives kill -9; a power cut may cost the last records, and the next start finds what they told.
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(_SCHEMA)
            row = self._db.execute("SELECT id FROM journal").fetchone()
            self.is_new = row is None
            self._id = secrets.token_hex(4) if row is None else str(row[0])
            (oldest,) = self._db.execute("SELECT min(number) FROM record").fetchone()
            self._pruned = 0 if oldest is None else int(oldest) - 1
            unless_done.pop_all()

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def begin(self, tree: Iterable[Live]) -> None:
        """Remember a tree without telling anything, in a new journal.  Raises `StoreError`."""
        with _translated(), self._transaction():
            for live in tree:
                self._remember(live)
            # Who is killed before this begins again, instead of telling all that is there as new.
            self._db.execute("INSERT INTO journal VALUES (?)", (self._id,))

    def catch_up(self, tree: Iterable[Live], *, now: int) -> None:
        """Tell what has happened since the last record, given all live paths.  Raises `StoreError`."""
        with _translated():
            known = {_decode(path) for (path,) in self._db.execute("SELECT path FROM seen")}
            found = list(tree)
            gone = known - {live.path for live in found}
            # As it can be performed on a plain directory tree: removals from below, then the rest from above.
            removals = (Live(at, None, None) for at in sorted(gone, key=lambda at: (-len(at), at)))
            rest = sorted(found, key=lambda live: (len(live.path), live.path))
            self.add([*removals, *rest], now=now)

    def add(self, changed: Iterable[Live], *, now: int) -> None:
        """Take in what paths are now; what is no change is not told.  Raises `StoreError`."""
        with _translated(), self._transaction():
            for live in changed:
                before = self._seen(live.path)
                for type in events_between(before, live.shape):
                    shape = before if type is EventType.DELETE else live.shape
                    assert shape is not None
                    signed = (b"", b"") if live.entry is None else (live.entry.hash, live.entry.fingerprint)
                    row = (now, type.value, _encode(live.path), shape.kind.value, *signed)
                    self._db.execute(
                        "INSERT INTO record (time, type, path, kind, entry, key) VALUES (?, ?, ?, ?, ?, ?)", row
                    )
                if before != live.shape:
                    self._remember(live)
            last = self.last()
            if last - self._pruned > self._kept + _PRUNE_EVERY:
                self._pruned = last - self._kept
                self._db.execute("DELETE FROM record WHERE number <= ?", (self._pruned,))

    def _seen(self, path: Path) -> Shape | None:
        query = "SELECT kind, content, attributes FROM seen WHERE path = ?"
        row = self._db.execute(query, (_encode(path),)).fetchone()
        return None if row is None else Shape(Kind(row[0]), row[1], row[2])

    def _remember(self, live: Live) -> None:
        path, shape = _encode(live.path), live.shape
        if shape is None:
            self._db.execute("DELETE FROM seen WHERE path = ?", (path,))
        else:
            row = (path, shape.kind.value, shape.content, shape.attributes)
            self._db.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", row)

    def last(self) -> int:
        """The number of the last record, 0 before the first."""
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'record'").fetchone()
        return 0 if row is None else int(row[0])

    def read(self, after: int, limit: int) -> list[Record]:
        """The records after a number, at most `limit`, in order.

        Raises `UsageError` if some of them are no longer kept, `StoreError`.
        """
        with _translated():
            columns = "number, time, type, path, kind, entry, key"
            query = f"SELECT {columns} FROM record WHERE number > ? ORDER BY number LIMIT ?"
            rows = self._db.execute(query, (after, limit)).fetchall()
            if rows and rows[0][0] != after + 1:
                raise UsageError(
                    f"the changes after {self.token(after)} are no longer kept, only the last {self._kept}: watch "
                    "without --since, and look at the tree with 'basefs show'"
                )
        return [
            Record(number, time, EventType(type), _decode(path), Kind(kind), entry, key)
            for number, time, type, path, kind, entry, key in rows
        ]

    def token(self, number: int) -> str:
        """What stands for a place in this journal."""
        return f"{self._id}-{number}"

    def place(self, token: str) -> int:
        """The number that a token stands for.  Raises `UsageError` if it is not one of this journal."""
        id, dash, digits = token.partition("-")
        if not dash or not digits.isdecimal() or id != self._id or int(digits) > self.last():
            raise UsageError(
                f"{token!r} is not a token of this node's journal: 'basefs watch' prints one with each change; one of "
                "another node, or of a journal that was deleted, is not valid"
            )
        return int(digits)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"the journal {JOURNAL_FILE} cannot be used: {error}; it may be deleted") from error


def _encode(path: Path) -> bytes:
    return b"/" + b"/".join(path)


def _decode(path: bytes) -> Path:
    return tuple(path[1:].split(b"/")) if path != b"/" else ()
