"""What a user has seen: a change follows the version that it was made on, whatever has arrived since.

A change is signed some tenths of a second after it was made.  An entry that has come to its path by then begins a
branch of its own, so that the rules decide between the two and the loser is listed as a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash
from basefs.log.placement import EntryKind, Placed
from basefs.log.store import Store
from basefs.path import Path
from basefs.view.tree import Node, Tree
from basefs.view.walk import MergedDirectory, Outcome

#: The entries that made a path what it was: those with which its merged branches ended, and of a hard link behind its
#: own the one with which the file ended that it names.  Nothing where nothing was.
Version = tuple[EntryHash, ...]


def follow(version: Version, placed: Placed, *, is_here: bool) -> Version:
    """A version after an entry of one's own; `is_here`: whether that belongs to the path."""
    entry = placed.entry
    if not is_here and entry.action is Action.DELETE:
        # The path no longer names the file, and the other one still does.
        return version
    if placed.kind is EntryKind.SUCCESSOR and entry.parent in version:
        return tuple(entry.hash if hash == entry.parent else hash for hash in version)
    return (entry.hash,) if is_here else version


class ObservedVersions:
    """The versions on which the changes were made that are drafted now.

    A series of changes is drafted one after the other.  All of them were made by the user before the first one was
    drafted, so a version that one of them was based on is replaced by what an earlier one of the series made of it.
    Otherwise the deletion of a file's first name would fork from what was just written under another name.
    """

    def __init__(self, store: Store, tree: Tree) -> None:
        self._store = store
        self._tree = tree
        #: By the id of the path.
        self._versions: dict[int, Version] = {}
        #: The entries of this series by the ones that they follow on the same path.
        self._successors: dict[EntryHash, EntryHash] = {}

    def _newest(self, hash: EntryHash) -> EntryHash:
        while (successor := self._successors.get(hash)) is not None:
            hash = successor
        return hash

    def begin(self, versions: Mapping[Path, Version | None]) -> None:
        """From now on changes of these paths follow these versions; `None`: what is shown now."""
        self._versions = {}
        for path, based_on in versions.items():
            version = based_on and tuple(map(self._newest, based_on))
            node = self._tree.find(path)
            if version is None or node is None or version == tuple(tip.hash for tip in node.outcome.tips):
                # Where nothing is shown nothing can be taken from anybody.
                continue
            if not version:
                self._versions[node.path_id] = ()
            placed = [self._store.get(hash) for hash in version]
            if None in placed:
                # A power cut has taken what this node had published.
                continue
            for one in filter(None, placed):
                known = self._versions.get(one.path_id, ())
                # Another name of the file may have had the same one.
                self._versions[one.path_id] = known if one.entry.hash in known else (*known, one.entry.hash)

    def end(self) -> None:
        """Changes follow what is shown."""
        self._versions = {}

    def follow(self, entries: Iterable[Entry]) -> None:
        """The drafted entries are in the log: the next change follows them."""
        for entry in entries:
            placed = self._store.get(entry.hash)
            if placed is None:
                continue
            if placed.kind is EntryKind.SUCCESSOR:
                self._successors[entry.parent] = entry.hash
            if placed.path_id in self._versions:
                self._versions[placed.path_id] = follow(self._versions[placed.path_id], placed, is_here=True)

    def is_other(self, node: Node) -> bool:
        """Whether what is shown at a path is not what was seen there."""
        version = self._versions.get(node.path_id)
        return version is not None and set(version) != {tip.hash for tip in node.outcome.tips}

    def outcome(self, path: Path, node: Node) -> Outcome | None:
        """What was seen at a path where something else is shown, a state without anything in it if that was deleted.

        `None` where nothing had ever been.
        """
        above = self._tree.find(path[:-1])
        assert above is not None, "what is shown is in a directory"
        version = self._versions[node.path_id]
        placed = [one for hash in version or (node.outcome.tips[0].hash,) if (one := self._store.get(hash)) is not None]
        resolver, entries = self._tree.resolver, self._store.entries_at(node.path_id)
        directory = MergedDirectory(tuple({one.directory for one in placed}), above.authority, len(path))
        return resolver.past(entries, directory, version or None)
