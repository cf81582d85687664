"""Granted keys: the keys against which signatures are checked (docs/formats.md, section 4).

Invariant: `granted` holds a key for a path exactly if an accepted grant of it hangs there, in force or not.  All of it
is in memory as well, since every entry that arrives asks for it.
"""

from __future__ import annotations

import sqlite3

from basefs.log.hashes import Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.log.paths import Paths
from basefs.log.placement import NEW_PATH, ROOT_PATH_ID, Placed


class Granted:
    """The table `granted`."""

    def __init__(self, db: sqlite3.Connection, paths: Paths) -> None:
        self._db = db
        self._paths = paths
        #: fingerprint -> path id -> raw public key
        self._keys: dict[Fingerprint, dict[int, bytes]] = {}

    def load(self) -> None:
        """Read the table."""
        self._keys.clear()
        for path_id, fingerprint, public in self._db.execute("SELECT path, fingerprint, public FROM granted"):
            self._keys.setdefault(Fingerprint(fingerprint), {})[path_id] = public

    def add(self, path_id: int, public: bytes) -> None:
        """Note a grant, inside a transaction."""
        fingerprint = fingerprint_of(public)
        # Finding two keys with one fingerprint would take the holder of a key 2**64 work; the first one stays.
        self._keys.setdefault(fingerprint, {}).setdefault(path_id, public)
        self._db.execute("INSERT OR IGNORE INTO granted VALUES (?, ?, ?)", (path_id, fingerprint, public))

    def public_key(self, placed: Placed) -> bytes | None:
        """The raw public key that an entry names, if it was ever granted on the entry's path or above it."""
        places = self._keys.get(placed.entry.fingerprint)
        if places is None:
            return None
        if ROOT_PATH_ID in places:
            return places[ROOT_PATH_ID]
        path_id = placed.above if placed.path_id == NEW_PATH else placed.path_id
        while path_id:
            if path_id in places:
                return places[path_id]
            path_id = self._paths.above(path_id)
        return None

    def only_key(self, fingerprint: Fingerprint) -> bytes | None:
        """The raw public key of a fingerprint; `None` if it was granted nowhere, or there are several of that name."""
        publics = set(self._keys.get(fingerprint, {}).values())
        return publics.pop() if len(publics) == 1 else None

    def paths(self) -> set[int]:
        """The ids of the paths on which any key was ever granted."""
        return {path_id for places in self._keys.values() for path_id in places}
