"""Needs: the contents that any view can show, so that the others need not travel (docs/authority.md).

A write is needed if its key is valid at its path, if anything valid builds on it, or if a revert or link that counts
names it; and so is every write on whose content a needed one is a delta.  Whether contents are here has no say:
the question is asked in order to decide what to fetch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator

from basefs.errors import IncompleteContent
from basefs.log.contents import Contents
from basefs.log.entries import Action
from basefs.log.hashes import ZERO_HASH, EntryHash, Fingerprint
from basefs.log.placement import NEW_PATH, ROOT_PATH_ID, Placed
from basefs.log.remembered import Remembered
from basefs.log.store import Store
from basefs.path import Path
from basefs.view.history import removed
from basefs.view.resolution import Resolver
from basefs.view.tree import Tree
from basefs.view.walk import Forest, MergedDirectory, Outcome, Walk

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
    all writes of a key without a quota in a directory.
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
        if allowed and tree.resolver.authority_above(write).may_grant(write.entry.fingerprint):
            self._allowed.keep(place, None)
        self._left -= self._spent() - started
        return allowed


def _is_allowed_there(store: Store, tree: Tree, write: Placed) -> bool:
    above_id = write.above if write.path_id == NEW_PATH else store.paths.above(write.path_id)
    above = tree.loaded(store.paths.path_of(above_id))
    return (
        above is not None
        and write.directory in above.outcome.directories
        and tree.resolver.fits(write, above.authority)
    )


class Needs:
    """The needs of a log as it is now; for one look, since it remembers."""

    def __init__(self, store: Store, contents: Contents, tree: Tree) -> None:
        self._store = store
        self._lineages = contents.lineages
        self._tree = tree
        #: What there would be if all contents were here.
        self._whole = Resolver(store, contents, as_if_complete=True, quotas=tree.resolver.quotas)
        self._outcomes: dict[int, Outcome | None] = {}
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
                self._need(self._shown(path_id))
                todo.extend({link.path_id for link in self._store.links_to(path_id)})
        return [write for write in writes if write in self._needed]

    def _need(self, writes: Iterable[EntryHash]) -> None:
        """Note writes, and those on whose contents theirs are deltas."""
        todo = list(writes)
        while todo:
            hash = todo.pop()
            if hash in self._needed:
                continue
            self._needed.add(hash)
            placed = self._store.get(hash)
            if placed is not None and placed.entry.action is Action.WRITE:
                try:
                    base = self._lineages.base(placed)
                except IncompleteContent:
                    continue
                if base is not None:
                    todo.append(base)

    def _shown(self, path_id: int) -> set[EntryHash]:
        """The writes that the entries which count at a path show."""
        shown: set[EntryHash] = set()
        entries = self._store.entries_at(path_id)
        for directory in self._directories(path_id, entries):
            walk = Walk(self._whole, Forest.of(entries, directory.mkdirs), directory)
            for hash, branch in walk.branches.items():
                if branch is not None:
                    shown.update(
                        write for write in (walk.states[hash].content, self._source(hash)) if write is not None
                    )
        return shown

    def _source(self, hash: EntryHash) -> EntryHash | None:
        try:
            return self._lineages.source(hash)
        except IncompleteContent:
            return None

    def _directories(self, path_id: int, entries: Collection[Placed]) -> Iterator[MergedDirectory]:
        """The directories in which the path may be looked at.

        Each incarnation by itself; and the one that shows, or would if all contents
        were here, which may be merged of several, or was removed.
        """
        resolver = self._tree.resolver
        path = self._store.paths.path_of(path_id)
        for directory, placed in {placed.directory: placed for placed in entries}.items():
            if directory == ZERO_HASH:
                yield resolver.root_directory()
            else:
                yield MergedDirectory((directory,), resolver.authority_above(placed), len(path))
        if path:
            above = self._tree.find(path[:-1])
            outcomes = [self._outcome(path[:-1]), None if above is None else above.outcome]
            for outcome in outcomes:
                if outcome is not None and outcome.directories:
                    yield outcome.as_directory(len(path))
            if above is None and (gone := removed(self._store, self._tree, path[:-1])) is not None:
                yield gone

    def _outcome(self, path: Path) -> Outcome | None:
        """What would be at a path if all contents were here."""
        at = ROOT_PATH_ID
        outcome: Outcome | None = self._whole.root()
        for depth, name in enumerate(path, 1):
            row = self._store.paths.find(at, name)
            if outcome is None or row is None:
                return None
            at = row.id
            if at not in self._outcomes:
                above, entries = outcome, self._store.entries_at(at, outcome.directories)
                self._outcomes[at] = self._whole.path(entries, above.as_directory(depth))
            outcome = self._outcomes[at]
        return outcome
