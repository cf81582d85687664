"""Surveys: what is known of any path that was ever there, also in a directory that was removed."""

from __future__ import annotations

from collections.abc import Collection

from basefs.log.hashes import ZERO_HASH, EntryHash
from basefs.log.store import Store
from basefs.path import Path
from basefs.view.history import Survey
from basefs.view.permissions import Authority
from basefs.view.tree import Tree


def survey(store: Store, tree: Tree, path: Path) -> Survey | None:
    """All that is known of a path; `None` where no entry ever named it."""
    path_id = store.paths.id_of(path)
    if path_id is None:
        return None
    entries, resolver = store.entries_at(path_id), tree.resolver
    if not path:
        return Survey.of(resolver, entries, (EntryHash(ZERO_HASH),), resolver.root_authority(), 0)
    above = tree.find(path[:-1])
    if above is not None and above.is_directory:
        return Survey.of(resolver, entries, above.outcome.directories, above.authority, len(path))
    removed = _removed(store, tree, path[:-1])
    if removed is None:
        # Something else has won against the directory, and with it against everything in it.
        return Survey(entries, None, {}, {})
    return Survey.of(resolver, entries, *removed, len(path), is_removed=True)


def _removed(store: Store, tree: Tree, path: Path) -> tuple[Collection[EntryHash], Authority] | None:
    """The mkdir entries of a directory that is gone, and the keys valid in it; `None` if it was not removed."""
    live = next(depth for depth in range(len(path), -1, -1) if tree.find(path[:depth]) is not None)
    above = tree.find(path[:live])
    removed: tuple[Collection[EntryHash], Authority] | None = None
    if above is not None and above.is_directory:
        removed = above.outcome.directories, above.authority
    for depth in range(live + 1, len(path) + 1):
        path_id = store.paths.id_of(path[:depth])
        if path_id is None or removed is None:
            return None
        removed = tree.resolver.removed(store.entries_at(path_id), *removed, depth)
    return removed
