"""Receipts: what a transaction of the log took from a staging area (docs/fs.md).

The staging area keeps a journal of changes that are not in the log yet.  A transaction that brings some of them into
the log says so in a receipt, so the two cannot disagree: whatever a crash leaves of either file, what a receipt lists
is in the log, and everything else in the journal is not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from basefs.log.hashes import HASH_SIZE, EntryHash


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one transaction publishes.

    Attributes:
        journal: the number of the journal that the record is about.
        record: what it says, for the staging area alone.
        is_only: whether receipts for other journals can go: no crash brings those journals back.
    """

    journal: int
    record: bytes
    is_only: bool


class Receipts:
    """The table `published`.  Every method belongs inside of a transaction or behind the replica's lock."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._added: int | None = None
        self._committed: tuple[int, int] = 0, 0

    def add(self, receipt: Receipt, entries: Sequence[EntryHash]) -> None:
        """Record that this transaction, with these entries, has published something."""
        if receipt.is_only:
            self._db.execute("DELETE FROM published WHERE journal != ?", (receipt.journal,))
        self.copy([(receipt.journal, receipt.record, b"".join(entries))])
        self._added = receipt.journal

    def end(self, *, committed: bool) -> None:
        """The transaction has ended, one way or the other."""
        if committed and self._added is not None:
            self._committed = self._added, self.count(self._added) + 1
        self._added = None

    def count(self, journal: int) -> int:
        """How many transactions of this process are committed that published something of a journal; needs no lock."""
        last, count = self._committed
        return count if last == journal else 0

    def copy(self, rows: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Add rows of another log: number of the journal, record, and hashes of the entries."""
        self._db.executemany("INSERT INTO published (journal, record, entries) VALUES (?, ?, ?)", rows)

    def of(self, journal: int) -> list[tuple[bytes, list[EntryHash]]]:
        """The records for a journal, oldest first, each with the entries of its transaction."""
        rows = self._db.execute("SELECT record, entries FROM published WHERE journal = ? ORDER BY seq", (journal,))
        return [
            (record, [EntryHash(hashes[at : at + HASH_SIZE]) for at in range(0, len(hashes), HASH_SIZE)])
            for record, hashes in rows
        ]
