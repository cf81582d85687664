"""Ancestry: which keys hold above an entry by the entries' own ancestors, whatever became of their paths."""

from __future__ import annotations

from dataclasses import dataclass

from basefs.log.hashes import ZERO_HASH, EntryHash
from basefs.log.placement import Placed
from basefs.log.store import Store
from basefs.view.permissions import Authority
from basefs.view.walk import Forest

#: Directories that are remembered, some 200 bytes each.
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Above:
    """A directory by its mkdir: its depth, and the mkdirs from the root to it on whose paths a key was ever granted.

    Directories with the same ones share the tuple.
    """

    depth: int
    granted: tuple[tuple[int, Placed], ...]


class Ancestry:
    """The directories above the entries of one log.

    Which they are never changes, so a directory is looked up once for all that is in it or below it; what hangs on them
    is read each time, but only where a key was ever granted, which is the root and few others.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[EntryHash, _Above] = {}
        self._granted = store.granted.paths()

    def authority(self, placed: Placed, root: Authority) -> tuple[Authority, int]:
        """The keys valid above the path of an entry, and the path's depth; `root`: what holds before any grant."""
        granted = self._store.granted.paths()
        if granted != self._granted or len(self._known) > _REMEMBERED:
            self._known.clear()
            self._granted = granted
        above = self._above(placed.directory)
        authority = root
        for depth, ancestor in above.granted:
            forest = Forest.of(self._store.keys_at(ancestor.path_id), (ancestor.directory,))
            authority = authority.extended(forest.hanging.get(ancestor.entry.hash, ()), depth)
        return authority, above.depth + 1

    def _above(self, directory: EntryHash) -> _Above:
        unknown: list[Placed] = []
        found = _Above(-1, ())
        is_whole = True
        while directory != ZERO_HASH:
            known = self._known.get(directory)
            if known is not None:
                found = known
                break
            ancestor = self._store.get(directory)
            if ancestor is None:
                # Damaged: what is below may be looked at, and remembered once it is repaired.
                is_whole = False
                break
            unknown.append(ancestor)
            directory = ancestor.directory
        for ancestor in reversed(unknown):
            depth = found.depth + 1
            here = ((depth, ancestor),) if ancestor.path_id in self._granted else ()
            found = _Above(depth, found.granted + here)
            if is_whole:
                self._known[ancestor.entry.hash] = found
        return found
