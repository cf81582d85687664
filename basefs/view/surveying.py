"""Surveys: what is known of any path that was ever there, also in a directory that was removed."""

from __future__ import annotations

from collections.abc import Collection

from basefs.log.hashes import ZERO_HASH, EntryHash
from basefs.log.store import Store
from basefs.path import Names
from basefs.view.history import Survey
from basefs.view.permissions import Authority
from basefs.view.tree import Tree


def survey(store: Store, tree: Tree, names: Names) -> Survey | None:
    """All that is known of a path; `None` where no entry ever named it."""
    path = store.paths.find_names(names)
    if path is None:
        return None
    entries, resolver = store.entries_at(path), tree.resolver
    if not names:
        return Survey.of(resolver, entries, (EntryHash(ZERO_HASH),), resolver.root_authority(), 0)
    above = tree.find(names[:-1])
    if above is not None and above.is_directory:
        return Survey.of(resolver, entries, above.outcome.directories, above.authority, len(names))
    removed = _removed(store, tree, names[:-1])
    if removed is None:
        # Something else has won against the directory, and with it against everything in it.
        return Survey(entries, None, {}, {})
    return Survey.of(resolver, entries, *removed, len(names), is_removed=True)


def _removed(store: Store, tree: Tree, names: Names) -> tuple[Collection[EntryHash], Authority] | None:
    """The mkdir entries of a directory that is gone, and the keys valid in it; `None` if it was not removed."""
    live = next(depth for depth in range(len(names), -1, -1) if tree.find(names[:depth]) is not None)
    above = tree.find(names[:live])
    removed: tuple[Collection[EntryHash], Authority] | None = None
    if above is not None and above.is_directory:
        removed = above.outcome.directories, above.authority
    for depth in range(live + 1, len(names) + 1):
        path = store.paths.find_names(names[:depth])
        if path is None or removed is None:
            return None
        removed = tree.resolver.removed(store.entries_at(path), *removed, depth)
    return removed
