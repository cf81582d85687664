"""Granted keys: the keys against which signatures are checked (docs/formats.md, section 4).

Invariant: `granted` holds a key for a path exactly if an accepted grant of it hangs there, in force or not.  All of it
is in memory as well, since every entry that arrives asks for it.
"""

from __future__ import annotations

import sqlite3

from basefs.log.hashes import Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.log.paths import Paths
from basefs.log.placement import ROOT_PATH_ID, Placed


class Granted:
    """The table `granted`."""

    def __init__(self, db: sqlite3.Connection, paths: Paths) -> None:
        self._db = db
        self._paths = paths
        self._keys: dict[Fingerprint, bytes] = {}
        #: fingerprint -> ids of the paths on which the key was granted
        self._places: dict[Fingerprint, set[int]] = {}
        self._paths_granted: set[int] = set()

    def load(self) -> None:
        """Read the table."""
        self._keys.clear()
        self._places.clear()
        self._paths_granted = set()
        for path_id, fingerprint, public in self._db.execute("SELECT path, fingerprint, public FROM granted"):
            self._note(path_id, Fingerprint(fingerprint), public)

    def _note(self, path_id: int, fingerprint: Fingerprint, public: bytes) -> None:
        self._keys[fingerprint] = public
        self._places.setdefault(fingerprint, set()).add(path_id)
        self._paths_granted.add(path_id)

    def add(self, path_id: int, public: bytes) -> None:
        """Note a grant, inside a transaction."""
        fingerprint = fingerprint_of(public)
        self._note(path_id, fingerprint, public)
        self._db.execute("INSERT OR IGNORE INTO granted VALUES (?, ?, ?)", (path_id, fingerprint, public))

    def public_key(self, placed: Placed) -> bytes | None:
        """The raw public key that an entry names, if it was ever granted on the entry's path or above it."""
        fingerprint = placed.entry.fingerprint
        places = self._places.get(fingerprint)
        if places is None:
            return None
        if ROOT_PATH_ID in places:
            return self._keys[fingerprint]
        path_id = placed.known_path
        while path_id and path_id not in places:
            path_id = self._paths.above(path_id)
        return self._keys[fingerprint] if path_id else None

    def key(self, fingerprint: Fingerprint) -> bytes | None:
        """The raw public key of a fingerprint; `None` if it was granted nowhere."""
        return self._keys.get(fingerprint)

    def paths(self) -> set[int]:
        """The ids of the paths on which any key was ever granted.  Callers must not change it."""
        return self._paths_granted
