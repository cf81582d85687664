"""The stream of view changes: what became of the live paths that anybody has looked at.

A transaction of the log changes the tree once, whatever happened in between.  `Ledger` keeps what loaded paths were
before it, `Tree.settle` compares that with what they are afterwards.  What nobody looked at was never cached by
anybody, so nothing is said about it; whoever wants to hear everything calls `Tree.observe` first.

Invariant: who applies the changes to a model of the loaded paths has the loaded paths again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from basefs.log.entries import Entry
from basefs.path import Path
from basefs.view.node import Node
from basefs.view.outcome import Outcome
from basefs.view.states import Kind, State


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one path in one transaction of the log.

    A rename is a removal and a creation whose states have the same `origin`; of a directory, those of the files in it.
    A directory in which names appeared or disappeared has another modification time, without a change of its own.

    Attributes:
        path: the path.
        before: what was there; `None` for nothing.
        after: what is there now; `None` for nothing.
        entry: the entry that the path ends with now (of a removed path its delete, if it has one of its own).
        attributes: whether `stat` may tell something else though the states are equal: who may write there has changed,
            or the number of a file's names.
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


class Seen(NamedTuple):
    """A loaded path as it was before the transaction."""

    path_id: int
    outcome: Outcome
    touched: int


class Ledger:
    """What loaded paths were before the transaction under way.

    Attributes:
        before: path -> what it was; `None` for nothing.
        reload: directories that were loaded, and are to be loaded again.
        late: ids of the directories that were first looked at in the transaction.
        deletes: removed path -> the delete.
    """

    def __init__(self) -> None:
        self.before: dict[Path, Seen | None] = {}
        self.reload: dict[Path, None] = {}
        self.late: set[int] = set()
        self.deletes: dict[Path, Entry] = {}

    def note(self, path: Path, node: Node | None, directory: Node | None) -> None:
        """A path is about to change.

        Args:
            path: the path.
            node: what is there; `None` for nothing.
            directory: the directory that holds it; `None` for the root.
        """
        if path not in self.before:
            # Of a directory that was loaded before the transaction, and forgotten in it, all names have been noted.
            is_new = node is None or (directory is not None and directory.path_id in self.late)
            self.before[path] = None if node is None or is_new else Seen(node.path_id, node.outcome, node.touched)

    def note_below(self, path: Path, node: Node) -> None:
        """All loaded paths below a directory are about to change."""
        todo = [(path, node)]
        while todo:
            path, node = todo.pop()
            if node.children is not None:
                for name, child in node.children.items():
                    self.note((*path, name), child, node)
                    todo.append(((*path, name), child))
                self.reload[path] = None


def visible(state: State) -> State:
    """A state without what only the log can tell: two that look alike are equal."""
    return replace(state, link=None, origin=None if state.kind is Kind.DIRECTORY else state.origin)


def compare(path: Path, seen: Seen | None, node: Node | None, delete: Entry | None) -> Change | None:
    """What has changed at a path; `None` if nothing."""
    if seen is None:
        return None if node is None else Change(path, None, node.state, node.outcome.tips[0])
    if node is None:
        return Change(path, seen.outcome.state, None, delete)
    before, after = seen.outcome, node.outcome
    rights = before.authority.depths.keys() != after.authority.depths.keys()
    if visible(before.state) == visible(after.state) and not rights:
        return None
    return Change(path, before.state, after.state, after.tips[0], attributes=rights)


def in_order(changes: Iterable[Change]) -> list[Change]:
    """Changes as they can be performed on a plain directory tree: removals from below, then the rest from above."""
    found = list(changes)
    removals = sorted((c for c in found if c.removed), key=lambda c: len(c.path), reverse=True)
    return removals + sorted((c for c in found if not c.removed), key=lambda c: len(c.path))
