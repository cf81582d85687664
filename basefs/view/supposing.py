"""Supposing, that is a what-if: the tree as it would be if some entries were in the log.

The entries are inserted into the store, a tree is resolved from it, and the store is rolled back: the code that
resolves the tree also resolves the supposed one.  Grants and revokes plan their acks with it, and previews list it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from basefs.log.entries import Entry
from basefs.log.store import Store
from basefs.path import Path
from basefs.view.changes import visible
from basefs.view.resolution import Resolver
from basefs.view.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Difference:
    """A path that is something else in another tree: the nodes in both, `None` where nothing is."""

    path: Path
    before: Node | None
    after: Node | None


@contextmanager
def supposed(store: Store, resolver: Resolver, entries: Sequence[Entry]) -> Iterator[Tree]:
    """The tree as if these entries, parents first, were in the log; writers of the log wait meanwhile.

    Raises `InvalidEntry` for entries that have no place.
    """
    with store.rehearsal():
        for entry in entries:
            placed = store.place(entry)
            assert placed is not None, "a supposed entry has its parent in the log"
            store.insert(placed, now=0)
        yield Tree(store, resolver)


def subtree(tree: Tree, top: Path) -> dict[Path, Node]:
    """The live paths at and below a path."""
    return dict(tree.walk(top))


def affected(tree: Tree, path: Path) -> Path:
    """The highest path that a change of this one may change: a directory above, or the path itself."""
    node = tree.root
    for depth, name in enumerate(path):
        below = tree.children(node).get(name) if node.is_directory else None
        if node.outcome.from_below or below is None:
            # A directory that is gone may come back with what is in it.
            return path[: depth if node.outcome.from_below else depth + 1]
        node = below
    return path


def differences(before: dict[Path, Node], after: dict[Path, Node]) -> list[Difference]:
    """The paths whose visible state differs, or that are other merged directories; those above come first."""
    found = []
    for path in before.keys() | after.keys():
        old, new = before.get(path), after.get(path)
        if old is not None and new is not None:
            same_directories = set(old.outcome.directories) == set(new.outcome.directories)
            if same_directories and visible(old.state) == visible(new.state):
                continue
        found.append(Difference(path, old, new))
    return sorted(found, key=lambda difference: (len(difference.path), difference.path))
