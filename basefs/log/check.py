"""Check: whether a log is whole, row by row, and what is wrong where (docs/formats.md, section 8).

A log is compared with a second one that admits each of its rows as if a stranger had sent it (`rebuild`): every
encoding, hash, signature, parent and grant, the order, and every derived table.  Two things cannot be checked: the
numbers of the rows as long as parents stay before children, and the times of arrival of entries and last blocks.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from basefs.errors import StoreError
from basefs.log.database import require_format
from basefs.log.missing import WriteState
from basefs.log.paths import sum_of
from basefs.log.placement import ROOT_PATH_ID
from basefs.log.rebuild import Damage, Rebuild, Rebuilt
from basefs.log.store import Store

#: Findings of SQLite's own that are reported.
_MAX_SQLITE_FINDINGS = 20


def open_log(path: Path) -> sqlite3.Connection:
    """A log for reading, as it is at this moment, also while a daemon writes to it.  Raises `StoreError`."""
    if not path.exists():
        raise StoreError(f"there is no log at {path}")
    source = sqlite3.connect(path, isolation_level=None, timeout=30)
    # Damage may turn text into anything.
    source.text_factory = bytes
    source.execute("PRAGMA query_only = ON")
    # One state of the log for all that follows, however much is written meanwhile.
    source.execute("BEGIN")
    return source


def count_rows(source: sqlite3.Connection) -> int | None:
    """The number of rows to check, `None` if SQLite cannot count them."""
    try:
        counts = [source.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("entries", "blocks")]
    except sqlite3.DatabaseError:
        return None
    return int(sum(counts))


def check(path: Path, progress: Callable[[int], None] = lambda rows: None) -> list[Damage]:
    """Everything that is wrong with the log at `path`; nothing if it is whole.

    `progress` is called with how many rows were done since the last call.  Needs room for a copy of the entries in the
    log's directory.  Raises `StoreError` if there is no log or no room.
    """
    with tempfile.TemporaryDirectory(prefix=".check-", dir=path.parent) as scratch:
        store = Store(Path(scratch) / "log.db", create=True)
        try:
            return examine(path, store, keep_blocks=False, progress=progress)
        finally:
            store.close()


def examine(path: Path, store: Store, *, keep_blocks: bool, progress: Callable[[int], None]) -> list[Damage]:
    """`check`, with the intact rows in the empty log `store`; arguments and errors as for `Rebuild` and `check`."""
    source = open_log(path)
    try:
        findings = check_file(path, source)
        if findings and findings[0].lost:
            return findings
        rebuilt = Rebuild(source, store, keep_blocks=keep_blocks, progress=progress).run()
        return findings + rebuilt.findings + compare(source, rebuilt)
    finally:
        source.close()


def check_file(path: Path, source: sqlite3.Connection) -> list[Damage]:
    """What SQLite itself finds; a first finding that is `lost` says that nothing can be read.

    Raises `StoreError` for a log of another format.
    """
    try:
        (version,) = source.execute("PRAGMA user_version").fetchone()
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        return [Damage("file", "all", f"SQLite cannot read it: {error}", lost=True)]
    if version:
        # The log of another version is not damaged, and this version must not replace it.
        require_format(path, version)
    found = [] if version else [Damage("file", "user_version", "it has none")]
    try:
        rows = source.execute(f"PRAGMA integrity_check({_MAX_SQLITE_FINDINGS})").fetchall()
        lines = [_text(line) for (text,) in rows for line in text.split(b"\n") if line != b"ok"]
    except sqlite3.DatabaseError as error:
        lines = [str(error)]
    return found + [Damage("file", "SQLite", line) for line in lines]


def compare(source: sqlite3.Connection, rebuilt: Rebuilt) -> list[Damage]:
    """The errors in the derived tables and columns."""
    return _Comparison(source, rebuilt).run()


class _Comparison:
    """A log beside the one that its rows make."""

    def __init__(self, source: sqlite3.Connection, rebuilt: Rebuilt) -> None:
        self._source = source
        self._rebuilt = rebuilt
        self._ours = rebuilt.store.database.main
        self._findings: list[Damage] = []

    def run(self) -> list[Damage]:
        """All comparisons; one that SQLite cannot read is a finding, and the others go on."""
        for table, look in (
            ("schema", self._schema),
            ("meta", self._meta),
            ("entries", self._entries),
            ("waiting", self._waiting),
            ("paths", self._paths),
            ("granted", self._granted),
            ("links", self._links),
        ):
            try:
                look()
            except (sqlite3.DatabaseError, TypeError, ValueError) as error:
                self._findings.append(Damage(table, "all", f"it cannot be read: {error}"))
        return self._findings

    def _differ(self, table: str, theirs: Mapping[object, object], ours: Mapping[object, object]) -> None:
        for key in theirs.keys() | ours.keys():
            row = _text(key)
            if key not in ours:
                self._findings.append(Damage(table, row, "nothing in the log makes this row"))
            elif key not in theirs:
                self._findings.append(Damage(table, row, "the row is missing"))
            elif theirs[key] != ours[key]:
                self._findings.append(Damage(table, row, "it says something else than the log"))

    def _both(self, query: str) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
        return self._source.execute(query).fetchall(), self._ours.execute(query).fetchall()

    def _schema(self) -> None:
        theirs, ours = self._both("SELECT CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_master")
        mine = {name: sql for name, sql in ours if not str(name).startswith("b'sqlite_")}
        self._differ("schema", {n: s for n, s in theirs if not str(n).startswith("b'sqlite_")}, mine)

    def _meta(self) -> None:
        theirs, ours = self._both("SELECT CAST(key AS BLOB), value FROM meta")
        self._differ("meta", dict(theirs), dict(ours))  # type: ignore[arg-type]

    def _entries(self) -> None:
        """The columns that repeat the fields or the position of an entry, and the order."""
        store = self._rebuilt.store
        names = self._names()
        seen: set[object] = set()
        for hash, (seq, parent, kind, path_id, directory) in self._rebuilt.rows.items():
            placed = store.get(hash)
            if hash in self._rebuilt.left:
                needs = self._rebuilt.left[hash].hex()[:12]
                what = f"entry {hash.hex()[:12]} builds on {needs}, which is missing or damaged"
                self._findings.append(Damage("entries", str(seq), what, lost=True))
                continue
            if placed is None:
                continue
            entry = placed.entry
            if not entry.is_root and entry.parent not in seen:
                self._findings.append(Damage("entries", str(seq), "it comes before its parent"))
            seen.add(hash)
            wanted = (entry.parent, placed.kind.value, placed.directory, store.paths.path_of(placed.path_id))
            if (parent, kind, directory, names.get(path_id)) != wanted:
                self._findings.append(Damage("entries", str(seq), "its row contradicts the entry"))

    def _names(self) -> dict[object, tuple[bytes, ...]]:
        """The paths of the log by their number there."""
        rows = {id: (parent, name) for id, parent, name in self._source.execute("SELECT id, parent, name FROM paths")}
        found: dict[object, tuple[bytes, ...]] = {}
        for id in rows:
            names: list[bytes] = []
            at = id
            while at in rows and at != ROOT_PATH_ID and len(names) <= len(rows):
                at, name = rows[at]
                names.append(name)
            if at == ROOT_PATH_ID:
                found[id] = tuple(reversed(names))
        return found

    def _paths(self) -> None:
        theirs = self._names()
        rows = self._source.execute("SELECT id, parent, hash, sum FROM paths").fetchall()
        store = self._rebuilt.store
        mine = self._ours.execute("SELECT id, hash, sum FROM paths").fetchall()
        ours = {store.paths.path_of(id): (hash, sum_of(total)) for id, hash, total in mine}
        lost = [id for id, *_ in rows if id not in theirs]
        self._findings.extend(Damage("paths", str(id), "it hangs on no path") for id in lost)
        query = f"SELECT parent, name FROM paths WHERE id = {ROOT_PATH_ID}"
        if self._source.execute(query).fetchone() != self._ours.execute(query).fetchone():
            self._findings.append(Damage("paths", str(ROOT_PATH_ID), "the root hangs on another path, or has a name"))
        if len({theirs[id] for id, *_ in rows if id in theirs}) != len(rows) - len(lost):
            self._findings.append(Damage("paths", "all", "a path is there twice"))
        said = {theirs[id]: (hash, sum_of(total)) for id, _, hash, total in rows if id in theirs}
        self._differ("paths", said, ours)  # type: ignore[arg-type]

    def _waiting(self) -> None:
        """Whether a write is withheld does not follow from the rows; it is copied, and `missing` follows from it."""
        rows = self._source.execute("SELECT entry, root, length, state, typeof(since) FROM waiting").fetchall()
        for entry, *_, state, kind in rows:
            if state not in tuple(WriteState) or kind != b"real":
                self._findings.append(Damage("waiting", _text(entry), "it says something else than the log"))
        withheld = {row[0] for row in rows if row[3] == WriteState.WITHHELD}
        store = self._rebuilt.store
        with store.transaction():
            store.blocks.set_needed(dict.fromkeys(withheld, False))
        ours = self._ours.execute("SELECT entry, root, length, state FROM waiting").fetchall()
        # Nobody looks what has come of a content that is withheld.
        theirs = {entry: row for entry, *row, _ in rows if entry not in withheld}
        self._differ("waiting", theirs, {entry: row for entry, *row in ours if entry not in withheld})
        lacked, lacking = self._both("SELECT block, role, above, size, exact, here FROM missing")
        self._differ("missing", {row[:3]: row[3:] for row in lacked}, {row[:3]: row[3:] for row in lacking})

    def _granted(self) -> None:
        names, store = self._names(), self._rebuilt.store
        theirs, ours = self._both("SELECT path, fingerprint, public FROM granted")
        mine = {(store.paths.path_of(int(str(path_id))), key): public for path_id, key, public in ours}
        self._differ("granted", {(names.get(path_id), key): public for path_id, key, public in theirs}, mine)  # type: ignore[arg-type]

    def _links(self) -> None:
        names, store = self._names(), self._rebuilt.store
        theirs, ours = self._both("SELECT entry, path FROM links")
        mine = {entry: store.paths.path_of(int(str(path_id))) for entry, path_id in ours}
        self._differ("links", {entry: names.get(path_id, "?") for entry, path_id in theirs}, mine)


def _text(value: object) -> str:
    """A row's key as people read it."""
    if isinstance(value, tuple):
        if all(isinstance(part, bytes) and len(part) < 256 for part in value) and not _is_hash(value[:1]):
            return "/" + "/".join(_text(part) for part in value)
        return " ".join(_text(part) for part in value)
    if isinstance(value, bytes):
        if _is_hash((value,)):
            return value.hex()
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def _is_hash(value: tuple[object, ...]) -> bool:
    return any(isinstance(part, bytes) and len(part) in (16, 28) and not part.isascii() for part in value)
