"""The past: every path that ever was, every grant that was ever made, and how far the log had come at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from basefs.errors import NotFound
from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.log.store import Store
from basefs.path import Path, display
from basefs.view.grants import placed_grants
from basefs.view.signer import Signer
from basefs.view.states import State
from basefs.view.supposing import subtree
from basefs.view.tree import Tree


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """A grant or admit that was ever made.

    Attributes:
        path: the path on which it hangs.
        entry: the grant or admit; its name is the key's name.
        fingerprint: the key.
        depth: depth of the key's authority at that path, 0 being the root and the highest; `None` if it is not valid,
            and of an admit.
        standing: "valid"; "reads", because the path is gone and the key a member still; "revoked"; "fallen", because
            the granter lost its own grant; "gone" with the path.
    """

    path: Path
    entry: Entry
    fingerprint: Fingerprint
    depth: int | None
    standing: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """The number of an entry in the order of arrival, and when it came to this node (UNIX seconds)."""

    sequence: int
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
            raise NotFound(f"the log has nothing at {display(path)}")
        found = []
        todo = [(path, top)]
        while todo:
            path, path_id = todo.pop()
            found.append(path)
            todo.extend(((*path, row.name), row.id) for row in self._store.paths.below(path_id))
        return sorted(found)

    def live(self, path: Path, sequence: int | None) -> dict[Path, tuple[State, Entry]]:
        """The live paths at and below one, with their states and last entries.

        `sequence`: when the entry of this number in the order of arrival had just arrived; `None` is now.
        """
        if sequence is None:
            return _states(self._tree, path)
        with self._store.as_of(sequence):
            return _states(Tree(self._store, self._tree.resolver), path)

    def before_last_change(self, path: Path) -> int:
        """The number of the last entry that had arrived before the last change at or below a path.

        Raises `NotFound`.
        """
        ids = (self._store.paths.id_of(at) for at in self.paths(path))
        ends = (self._store.entries_at(path_id)[-1:] for path_id in ids if path_id is not None)
        sequence, entry = max(
            ((self.sequence(placed.entry.hash), placed.entry) for end in ends for placed in end), key=lambda end: end[0]
        )
        # The mode of a file that was just written belongs to the same change.
        is_whole = entry.action is not Action.MODE or self._store.arrivals.is_end(sequence - 1)
        return sequence - (1 if is_whole or self._store.sequence(entry.parent) != sequence - 1 else 2)

    def latest(self) -> tuple[Path, Entry, float] | None:
        """The entry that came last, with its path and when it came to this node, UNIX seconds.

        `None` in an empty log, or if its row is damaged.
        """
        placed, when = self._store.latest(), self._store.arrivals.last()
        if placed is None or when is None:
            return None
        return self._store.paths.path_of(placed.path_id), placed.entry, when

    def path_of(self, entry: EntryHash) -> Path:
        """The path that an entry belongs to.  Raises `NotFound` for an unknown one."""
        placed = self._store.get(entry)
        if placed is None:
            raise NotFound(f"there is no entry {entry.hex()[:12]}: 'basefs log' lists the entries of a path")
        return self._store.paths.path_of(placed.path_id)

    def sources(self, links: Iterable[Entry]) -> list[Path | None]:
        """The paths of the entries that links name, `None` where the row of one is damaged."""
        named = (self._store.get(EntryHash(link.content)) for link in links)
        return [None if one is None else self._store.paths.path_of(one.path_id) for one in named]

    def arrivals(self, entries: Iterable[EntryHash]) -> list[Arrival]:
        """Where entries stand in the order of arrival.  Raises `NotFound` for an unknown one."""
        sequences = map(self.sequence, entries)
        return [Arrival(sequence, self._store.arrivals.time_of(sequence) or 0.0) for sequence in sequences]

    def arrived(self, entry: Entry) -> float:
        """When an entry came to this node, in UNIX seconds; now, if that is damaged.  Raises `NotFound`."""
        found = self._store.arrivals.time_of(self.sequence(entry.hash))
        return self._signer.clock() if found is None else found

    def sequence(self, entry: EntryHash) -> int:
        """The number of an entry in the order of arrival on this node.  Raises `NotFound` for an unknown one."""
        sequence = self._store.sequence(entry)
        if sequence is None:
            raise NotFound(f"there is no entry {entry.hex()[:12]}: 'basefs log' lists the entries of a path")
        return sequence

    def sequence_at(self, when: float) -> int:
        """The number of the last entry that had arrived here at a time, in UNIX seconds.

        Raises `NotFound` for a time before this node knew anything.
        """
        sequence = self._store.arrivals.sequence_at(when, self._signer.clock())
        if sequence is None:
            first = self._store.arrivals.first()
            since = "" if first is None else time.strftime(" before %Y-%m-%d %H:%M:%S", time.localtime(first))
            raise NotFound(f"this node has no history{since}: give a later time, or the hash of an entry")
        return sequence

    def grants(self) -> list[GrantRecord]:
        """Every grant and admit that was ever made, by path and in order of arrival."""
        found = []
        counting = {one.grant.entry.hash: one for one in placed_grants(self._store, self._tree)}
        for path_id in self._store.key_paths():
            path = self._store.paths.path_of(path_id)
            otherwise = "gone" if self._tree.find(path) is None else "fallen"
            entries = [one.entry for one in self._store.keys_at(path_id)]
            revoked = {entry.content for entry in entries if entry.action is Action.REVOKE}
            for entry in entries:
                if entry.action is Action.REVOKE or entry.extensions.recovery is not None:
                    # A recovery is followed by a plain grant of its key.
                    continue
                key, depth = fingerprint_of(entry.content), None
                one = counting.get(entry.hash)
                if one is None:
                    standing = "revoked" if key in revoked else otherwise
                else:
                    standing = "valid" if one.in_force else "reads"
                    if one.in_force and entry.action is Action.GRANT:
                        depth = one.authority.depths.get(key)
                found.append(GrantRecord(path, entry, key, depth, standing))
        return sorted(found, key=lambda granted: granted.path)


def _states(tree: Tree, path: Path) -> dict[Path, tuple[State, Entry]]:
    return {at: (node.state, node.outcome.tips[0]) for at, node in subtree(tree, path).items()}
