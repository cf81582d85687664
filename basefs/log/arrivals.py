"""Arrivals: the times at which entries came to this node.

Timestamps in entries are claims of their authors, often the time of the file itself.  The tree of an earlier time
follows from the order of arrival here; this table maps times to that order.  It has one row per transaction that
brought entries.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping


class Arrivals:
    """The table `arrivals`.

    Attributes:
        pending: number of the last entry of the transaction under way, and its time, UNIX seconds; until `flush`.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.pending: tuple[int, float] | None = None

    def flush(self) -> None:
        """Write the pending row, at the end of a transaction."""
        if self.pending is not None:
            self._db.execute("INSERT OR REPLACE INTO arrivals VALUES (?, ?)", self.pending)
            self.pending = None

    def replace(self, times: Mapping[int, float]) -> None:
        """Put other rows in the place of all, inside a transaction: number of an entry -> UNIX seconds."""
        self.pending = None
        self._db.execute("DELETE FROM arrivals")
        self._db.executemany("INSERT INTO arrivals VALUES (?, ?)", list(times.items()))

    def sequence_at(self, time: float, now: float) -> int | None:
        """The number of the last entry that had arrived at a time, in UNIX seconds; `None` if none had.

        These are the entries before the first arrival with a later time, whatever their own times: a machine without a
        battery for its clock restarts in 1970.  A time later than `now` is ignored, because the clock was wrong then.
        """
        later = "SELECT min(seq) FROM arrivals WHERE time > ? AND time <= ?"
        row = self._db.execute(
            f"SELECT max(seq) FROM arrivals WHERE seq < coalesce(({later}), 9223372036854775807)", (time, now)
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def is_end(self, sequence: int) -> bool:
        """Whether the entry with this number was the last one of its transaction."""
        return self._db.execute("SELECT 1 FROM arrivals WHERE seq = ?", (sequence,)).fetchone() is not None

    def time_of(self, sequence: int) -> float | None:
        """When the entry with this number arrived, in UNIX seconds; `None` if its row is damaged."""
        row = self._db.execute("SELECT time FROM arrivals WHERE seq >= ? ORDER BY seq LIMIT 1", (sequence,)).fetchone()
        return None if row is None else float(row[0])

    def first(self) -> float | None:
        """When the first entries arrived, in UNIX seconds; `None` for an empty log."""
        row = self._db.execute("SELECT min(time) FROM arrivals").fetchone()
        return None if row[0] is None else float(row[0])

    def last(self) -> float | None:
        """When the last entries arrived, in UNIX seconds; `None` for an empty log."""
        row = self._db.execute("SELECT time FROM arrivals ORDER BY seq DESC LIMIT 1").fetchone()
        return None if row is None else float(row[0])
