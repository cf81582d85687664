"""The stream of view changes: the changes of the live paths that were used.

A transaction of the log changes the tree once, regardless of its entries.  `DirtyPaths` keeps the loaded paths as they
were before it, and `Tree.settle` compares them with the paths afterwards.  No cache holds an unused path, so its
changes are not reported; a subscriber that needs all changes calls `Tree.observe` first.

Invariant: applying the changes to a model of the loaded paths gives the loaded paths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from basefs.log.entries import Entry
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.view.states import Kind, State


class Change(NamedTuple):
    """The change of one path in one transaction of the log.

    A rename is a removal and a creation.

    Attributes:
        path: the path.
        before: the former state; `None` for nothing.
        after: the present state; `None` for nothing.
        entry: the entry that the path ends with now (of a removed path its delete, if it has one of its own).
        attributes: whether `access` may differ although the states are equal: other keys are valid there.
    """

    path: Path
    before: State | None
    after: State | None
    entry: Entry | None
    attributes: bool = False

    @property
    def created(self) -> bool:
        """Whether nothing was there."""
        return self.before is None

    @property
    def removed(self) -> bool:
        """Whether nothing is there now."""
        return self.after is None


def visible(state: State) -> State:
    """A state without the parts that only the log shows: two that look alike are equal."""
    return state._replace(origin=None) if state.kind is Kind.DIRECTORY else state


def removed_contents(changes: Iterable[Change]) -> set[EntryHash]:
    """The writes whose contents files had that are not there any more, and that no other of these paths shows."""
    found = list(changes)
    before = {change.before.content for change in found if change.before is not None and change.removed}
    after = {change.after.content for change in found if change.after is not None}
    return {content for content in before - after if content is not None}


def in_order(changes: Iterable[Change]) -> list[Change]:
    """Changes as they can be performed on a plain directory tree: removals from below, then the rest from above."""
    found = list(changes)
    removals = sorted((c for c in found if c.removed), key=lambda c: len(c.path), reverse=True)
    return removals + sorted((c for c in found if not c.removed), key=lambda c: len(c.path))
