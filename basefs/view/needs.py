"""Needs: the contents that any view can show, so that the others need not travel (docs/authority.md).

An entry counts for this by its key alone: if that is valid at the path of the entry, by the entry's own ancestors or
now, or if such an entry builds on it.  The content that a path has at such an entry is needed, whether it was written
there or is that of a revert or a link; and so is every content on which a needed one is a delta.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator

from basefs.errors import IncompleteContent
from basefs.log.contents import Contents
from basefs.log.entries import Action
from basefs.log.hashes import ZERO_HASH, EntryHash, Fingerprint
from basefs.log.placement import NEW_PATH, EntryKind, Placed
from basefs.log.remembered import Remembered
from basefs.log.store import Store
from basefs.view.tree import Tree
from basefs.view.walk import Forest, MergedDirectory, Walk

#: Directories and keys of which a quick look is remembered, some 250 bytes each.
_REMEMBERED = 4096
#: Seconds that quick looks may take together after a pause, and their share of the time.
_LOOKS_AT_ONCE = 0.25
_LOOKS_SHARE = 0.2


class QuickLook:
    """A quick look at whether a content is needed, while its entry is taken in under the lock; `Needs` looks again.

    Each grant changes the keys that are valid, and to collect them costs all grants of a directory; so whoever signs
    very many decides how long a look takes, valid or not.  Looks take a fifth of the time at the most, after a start;
    beyond that a content is taken for one that is not needed.  Until the next grant or revoke one look is enough for
    all writes of a key in a directory.
    """

    def __init__(self, steady: Callable[[], float], spent: Callable[[], float] = time.thread_time) -> None:
        """`steady`: seconds of any steady clock; `spent`: seconds of work, by default of this thread's own."""
        self._steady = steady
        self._spent = spent
        self._left = _LOOKS_AT_ONCE
        self._seen = steady()
        #: The directories, by their mkdirs, in which keys are valid, and the version of the keys of the log.
        self._allowed: Remembered[tuple[EntryHash, Fingerprint], None] = Remembered(_REMEMBERED)
        self._version: tuple[int, int] | None = None

    def is_needed(self, store: Store, tree: Tree, write: Placed) -> bool:
        """Whether the key of a write is valid above its path, as far as there is time to find that out.

        By its own ancestors, or in the directory that shows, which may be merged of several.
        """
        if self._version != store.keys_version:
            self._version = store.keys_version
            self._allowed.clear()
        place = write.directory, write.entry.fingerprint
        if place in self._allowed:
            return True
        now = self._steady()
        self._left = min(_LOOKS_AT_ONCE, self._left + _LOOKS_SHARE * (now - self._seen))
        self._seen = now
        if self._left <= 0:
            return False
        started = self._spent()
        allowed = tree.resolver.is_allowed(write) or _is_allowed_there(store, tree, write)
        if allowed:
            self._allowed.keep(place, None)
        self._left -= self._spent() - started
        return allowed


def _is_allowed_there(store: Store, tree: Tree, write: Placed) -> bool:
    above_id = write.above if write.path_id == NEW_PATH else store.paths.above(write.path_id)
    above = tree.loaded(store.paths.path_of(above_id))
    return (
        above is not None
        and write.directory in above.outcome.directories
        and above.authority.allows(write.entry.fingerprint)
    )


class Needs:
    """The needs of a log as it is now; for one look, since it remembers."""

    def __init__(self, store: Store, contents: Contents, tree: Tree) -> None:
        self._store = store
        self._lineages = contents.lineages
        self._tree = tree
        #: The paths whose entries were looked at, and all that these need, wherever that stands.
        self._examined: set[int] = set()
        self._needed: set[EntryHash] = set()

    def of(self, path_id: int, writes: Iterable[EntryHash]) -> list[EntryHash]:
        """Those of these writes at a path whose content is needed."""
        # A link elsewhere may name them, and another one may name that.
        todo = [path_id]
        while todo:
            path_id = todo.pop()
            if path_id not in self._examined:
                self._examined.add(path_id)
                self._need(map(self._source, self._counting(path_id)))
                todo.extend({link.path_id for link in self._store.links_to(path_id)})
        return [write for write in writes if write in self._needed]

    def _need(self, writes: Iterable[EntryHash | None]) -> None:
        """Note writes, and those on whose contents theirs are deltas."""
        todo = list(writes)
        while todo:
            hash = todo.pop()
            if hash is None or hash in self._needed:
                continue
            self._needed.add(hash)
            placed = self._store.get(hash)
            if placed is not None and placed.entry.action is Action.WRITE:
                with contextlib.suppress(IncompleteContent):
                    todo.append(self._lineages.base(placed))

    def _counting(self, path_id: int) -> set[EntryHash]:
        """The entries of a path whose keys are valid there, and those before them."""
        entries = self._store.entries_at(path_id)
        counting: set[EntryHash] = set()
        for directory in self._directories(path_id, entries):
            walk = Walk(self._tree.resolver, Forest.of(entries, directory.mkdirs), directory)
            for placed in reversed(entries):
                authority = walk.authorities.get(placed.entry.hash)
                if authority is not None:
                    signers = (placed.entry, *walk.forest.hanging.get(placed.entry.hash, ()))
                    if any(authority.allows(entry.fingerprint) for entry in signers):
                        counting.add(placed.entry.hash)
        for placed in reversed(entries):
            # Parents come first.
            if placed.entry.hash in counting and placed.kind is EntryKind.SUCCESSOR:
                counting.add(placed.entry.parent)
        return counting

    def _source(self, hash: EntryHash) -> EntryHash | None:
        try:
            return self._lineages.source(hash)
        except IncompleteContent:
            return None

    def _directories(self, path_id: int, entries: Collection[Placed]) -> Iterator[MergedDirectory]:
        """The directories in which the path is looked at.

        Each incarnation by itself, and with the keys of others that were made at the same time, since it may be shown
        only because of what is in it; and the one that shows, which may be merged of several.
        """
        resolver = self._tree.resolver
        path = self._store.paths.path_of(path_id)
        for directory, placed in {placed.directory: placed for placed in entries}.items():
            made = self._store.get(directory)
            if directory == ZERO_HASH:
                yield resolver.root_directory()
            else:
                yield MergedDirectory((directory,), resolver.authority_above(placed), len(path))
            if made is not None:
                yield MergedDirectory((directory,), resolver.lasting_authority(made), len(path))
        above = self._tree.find(path[:-1]) if path else None
        if above is not None and above.outcome.directories:
            yield above.outcome.as_directory(len(path))
