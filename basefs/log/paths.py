"""Paths: every path that an entry ever named, and the Merkle tree over them (docs/formats.md, section 7).

Invariant: after a transaction the sum of a path is that of the contributions at and below it, and its hash follows from
the sum.  Each entry contributes its hash.

Most paths are files with a single entry: instead of the sum, their row has that one contribution.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from basefs.errors import DamagedLog
from basefs.log.hashes import HASH_SIZE, SUM_MASK, SUM_SIZE, ZERO_HASH, addend, sum_hash
from basefs.log.placement import ROOT_PATH_ID
from basefs.log.remembered import Remembered
from basefs.path import Path

#: Places kept in memory, about 200 bytes each, and sums, up to 400 bytes each.
_REMEMBERED_PLACES = 16384
_REMEMBERED_SUMS = 4096


class PathRow(NamedTuple):
    """A node of the Merkle tree: path id, id of the path above (0 for the root), name, and 28-byte hash."""

    id: int
    parent: int
    name: bytes
    hash: bytes


class Paths:
    """The table `paths`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        #: Path id -> change of its sum.
        self._pending: dict[int, int] = {}
        #: Path id -> path above and name, which never change, of recently used paths.
        self._places: Remembered[int, tuple[int, bytes]] = Remembered(_REMEMBERED_PLACES)
        #: Path id -> sum by its row, of recently changed paths; only this object changes sums.
        self._sums: Remembered[int, int] = Remembered(_REMEMBERED_SUMS)

    def row(self, path_id: int) -> PathRow:
        """The path with this id.  Raises `DamagedLog` where there is none: entries name only paths that are here."""
        row = self._db.execute("SELECT id, parent, name, hash FROM paths WHERE id = ?", (path_id,)).fetchone()
        if row is None:
            raise _no_path(path_id)
        return PathRow(*row)

    def find(self, parent: int, name: bytes) -> PathRow | None:
        """The path `name` below `parent`, or `None` where no entry ever named it."""
        row = self._db.execute(
            "SELECT id, parent, name, hash FROM paths WHERE parent = ? AND name = ?", (parent, name)
        ).fetchone()
        return None if row is None else PathRow(*row)

    def id_of(self, path: Sequence[bytes]) -> int | None:
        """The id of the path with these components from the root down, or `None` where no entry ever named it."""
        path_id = ROOT_PATH_ID
        for name in path:
            row = self.find(path_id, name)
            if row is None:
                return None
            path_id = row.id
        return path_id

    def below(self, parent: int) -> list[PathRow]:
        """The paths directly below one, sorted by name."""
        rows = self._db.execute("SELECT id, parent, name, hash FROM paths WHERE parent = ? ORDER BY name", (parent,))
        return [PathRow(*row) for row in rows]

    def children(self, parent: int) -> list[tuple[bytes, bytes]]:
        """Names and hashes of the paths directly below one, sorted by name."""
        # As they come, without an object for each: a peer that compares has all of a large directory listed.
        return self._db.execute("SELECT name, hash FROM paths WHERE parent = ? ORDER BY name", (parent,)).fetchall()

    def path_of(self, path_id: int) -> Path:
        """The components of a path, from the root down; empty for the root."""
        names: list[bytes] = []
        while path_id != ROOT_PATH_ID:
            path_id, name = self._place(path_id)
            names.append(name)
        return tuple(reversed(names))

    def above(self, path_id: int) -> int:
        """The id of the path that holds this one; 0 for the root."""
        return self._place(path_id)[0]

    def _place(self, path_id: int) -> tuple[int, bytes]:
        place = self._places.get(path_id)
        if place is None:
            row = self.row(path_id)
            place = row.parent, row.name
            self._places.keep(path_id, place)
        return place

    def root_hash(self) -> bytes:
        """The hash of everything in the Merkle tree; `ZERO_HASH` for an empty log."""
        row = self._db.execute("SELECT hash FROM paths WHERE id = ?", (ROOT_PATH_ID,)).fetchone()
        return ZERO_HASH if row is None else row[0]

    def add_root(self, hash: bytes) -> None:
        """Make the root's path, inside a transaction; `hash`: its first contribution."""
        values = ROOT_PATH_ID, b"", sum_hash(addend(hash)), hash
        self._db.execute("INSERT INTO paths VALUES (?, 0, ?, ?, ?)", values)

    def make(self, parent: int, name: bytes, hash: bytes) -> int:
        """Make the path `name` below `parent`, which must not be there, inside a transaction; returns its id.

        `hash`: its first contribution.
        """
        change = addend(hash)
        cursor = self._db.execute(
            "INSERT INTO paths (parent, name, hash, sum) VALUES (?, ?, ?, ?)", (parent, name, sum_hash(change), hash)
        )
        path_id = cursor.lastrowid
        assert path_id is not None
        self._places.keep(path_id, (parent, name))
        self._sums.keep(path_id, change)
        self._pending[parent] = self._pending.get(parent, 0) + change
        return path_id

    def contribute(self, path_id: int, hash: bytes) -> None:
        """Add a hash to a path.  Collected until `flush`: a batch updates each ancestor once."""
        self._pending[path_id] = self._pending.get(path_id, 0) + addend(hash)

    def flush(self) -> None:
        """Write the pending changes, at the end of a transaction."""
        pending, self._pending = self._pending, {}
        while pending:
            above: dict[int, int] = {}
            rows: list[tuple[bytes, bytes, int]] = []
            for path_id, change in pending.items():
                total = (self._sum(path_id) + change) & SUM_MASK
                self._sums.keep(path_id, total)
                rows.append((sum_hash(total), total.to_bytes(SUM_SIZE, "big") if total else b"", path_id))
                parent = self.above(path_id)
                if parent:
                    above[parent] = above.get(parent, 0) + change
            self._db.executemany("UPDATE paths SET hash = ?, sum = ? WHERE id = ?", rows)
            pending = above

    def _sum(self, path_id: int) -> int:
        """The sum of a path by its row."""
        known = self._sums.get(path_id)
        if known is None:
            row = self._db.execute("SELECT sum FROM paths WHERE id = ?", (path_id,)).fetchone()
            if row is None:
                raise _no_path(path_id)
            known = sum_of(row[0])
        return known

    def take_pending(self) -> dict[int, int]:
        """Take and drop the pending changes; for `restore`."""
        pending, self._pending = self._pending, {}
        return pending

    def restore(self, pending: dict[int, int]) -> None:
        """Make the taken changes pending again, and only these."""
        self._pending = pending
        self._places.clear()
        self._sums.clear()

    def forget(self) -> None:
        """Drop the pending changes: the transaction has failed."""
        self._pending.clear()
        self._places.clear()
        self._sums.clear()


def sum_of(stored: bytes) -> int:
    """The sum of a path by the column `sum`: none, that of a single contribution, or all of it."""
    if len(stored) == HASH_SIZE:
        return addend(stored)
    return int.from_bytes(stored, "big")


def _no_path(path_id: int) -> DamagedLog:
    return DamagedLog(f"the log has no path {path_id}, which an entry names: see 'basefs check'")
