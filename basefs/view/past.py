"""The past: every path that ever was, every grant that was ever made, and how far the log had come at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from basefs.errors import NotFound
from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.log.placement import EntryKind
from basefs.log.store import Store
from basefs.path import Path, display
from basefs.view.signer import Signer
from basefs.view.tree import Tree


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """A grant that was ever made.

    Attributes:
        path: the path on which it hangs.
        entry: the grant; its name is the key's name.
        fingerprint: the key.
        depth: depth of the key's authority at that path, 0 being the root and the highest; `None` if it is not valid.
        standing: "valid"; "revoked"; "fallen", because the granter lost its own grant; "gone" with the path.
    """

    path: Path
    entry: Entry
    fingerprint: Fingerprint
    depth: int | None
    standing: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """An entry, its path, and when it came to this node (UNIX seconds)."""

    path: Path
    entry: Entry
    time: float


class Past:
    """Reads the history of one log."""

    def __init__(self, store: Store, tree: Tree, signer: Signer) -> None:
        self._store = store
        self._signer = signer
        self._tree = tree

    def paths(self, path: Path) -> list[Path]:
        """Every path at and below one that any entry ever named, sorted.  Raises `NotFound` where none ever did."""
        top = self._store.paths.id_of(path)
        if top is None:
            raise NotFound(f"nothing was ever at {display(path)}")
        found = []
        todo = [(path, top)]
        while todo:
            path, path_id = todo.pop()
            found.append(path)
            todo.extend(((*path, row.name), row.id) for row in self._store.paths.below(path_id))
        return sorted(found)

    def latest(self) -> Arrival | None:
        """The last arrival; `None` in an empty log, or if its row is damaged."""
        placed, when = self._store.latest(), self._store.arrivals.last()
        if placed is None or when is None:
            return None
        return Arrival(self._store.paths.path_of(placed.path_id), placed.entry, when)

    def path_of(self, entry: EntryHash) -> Path:
        """The path that an entry belongs to.  Raises `NotFound` for an unknown one."""
        placed = self._store.get(entry)
        if placed is None:
            raise NotFound(f"there is no entry {entry.hex()[:12]}: 'basefs log' lists those of a path")
        return self._store.paths.path_of(placed.path_id)

    def sequence(self, entry: EntryHash) -> int:
        """The number of an entry in the order of arrival on this node.  Raises `NotFound` for an unknown one."""
        sequence = self._store.sequence(entry)
        if sequence is None:
            raise NotFound(f"there is no entry {entry.hex()[:12]}: 'basefs log' lists those of a path")
        return sequence

    def sequence_at(self, when: float) -> int:
        """The number of the last entry that had arrived here at a time, in UNIX seconds.

        Raises `NotFound` for a time before this node knew anything.
        """
        sequence = self._store.arrivals.sequence_at(when, self._signer.clock())
        if sequence is None:
            first = self._store.arrivals.first()
            since = "" if first is None else time.strftime(" before %Y-%m-%d %H:%M:%S", time.localtime(first))
            raise NotFound(f"this node knew nothing{since}: give a later time, or the hash of an entry")
        return sequence

    def grants(self) -> list[GrantRecord]:
        """Every grant that was ever made, by path and in order of arrival."""
        found = []
        for path_id in self._store.granted.paths():
            path = self._store.paths.path_of(path_id)
            node = self._tree.find(path)
            placed = [one.entry for one in self._store.entries_at(path_id) if one.kind is EntryKind.KEY]
            in_force = set() if node is None else {grant.entry.hash for grant in node.authority.grants}
            revoked = {entry.content for entry in placed if entry.action is Action.REVOKE}
            for entry in placed:
                if entry.action is Action.GRANT:
                    key = fingerprint_of(entry.content)
                    standing = "gone" if node is None else "revoked" if key in revoked else "fallen"
                    depth = None
                    if node is not None and entry.hash in in_force:
                        standing, depth = "valid", node.authority.depths.get(key)
                    found.append(GrantRecord(path, entry, key, depth, standing))
        return sorted(found, key=lambda granted: granted.path)
