"""Detached entries: whole ones whose parent or grant was lost to damage, kept on disk until that comes back.

They belong to no path and no view, and are not sent to peers.  When their parent or grant arrives, they pass through
`intake` as if they arrived then.  Only `basefs check --repair` puts entries here.
"""

from __future__ import annotations

import sqlite3

from basefs.errors import InvalidEntry
from basefs.log.entries import Entry
from basefs.log.hashes import EntryHash


class Detached:
    """The table `detached`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._count = 0

    def load(self) -> None:
        """Read how many there are."""
        (self._count,) = self._db.execute("SELECT count(*) FROM detached").fetchone()

    def __len__(self) -> int:
        return self._count

    def hold(self, entry: Entry, needs: bytes) -> None:
        """Keep an entry until `needs`, the hash of its parent or the fingerprint of its key, is known."""
        cursor = self._db.execute(
            "INSERT OR IGNORE INTO detached VALUES (?, ?, ?)", (entry.hash, needs, entry.encode())
        )
        self._count += cursor.rowcount

    def release(self, known: bytes) -> list[Entry]:
        """The entries that waited for `known`, no longer kept, inside a transaction."""
        if not self._count:
            return []
        rows = self._db.execute("SELECT data FROM detached WHERE needs = ?", (known,)).fetchall()
        self._db.execute("DELETE FROM detached WHERE needs = ?", (known,))
        self._count -= len(rows)
        released = []
        for (data,) in rows:
            try:
                released.append(Entry.decode(data))
            except (InvalidEntry, TypeError):
                # Damaged again; a peer that has it will send it.
                continue
        return released

    def needs(self) -> dict[EntryHash, bytes]:
        """The hash or fingerprint that each of them waits for."""
        return {EntryHash(hash): needs for hash, needs in self._db.execute("SELECT hash, needs FROM detached")}
