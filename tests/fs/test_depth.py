"""What an operation costs at the bottom of a deep tree: a step for each directory above, and not one for each pair."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from basefs.path import Path
from basefs.view.tree import Tree
from tests.fs.local import Local

SHALLOW, DEEP = 10, 200
#: How much more it may cost so much deeper; for each pair of directories above it would be the square.
FACTOR = 2 * DEEP // SHALLOW


class Counted(bytes):
    """A name that counts how often it is looked up."""

    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return bytes.__hash__(self)


def deep(local: Local, depth: int, *, published: bool) -> Path:
    """Make directories inside each other; something else is not published yet."""
    names: Path = ()
    for number in range(depth):
        names = (*names, Counted(b"%d-%d" % (depth, number)))
        local.fs.namespace.make_directory(names, 0o755)
    if published:
        local.publish()
    local.fs.namespace.make_directory((Counted(b"%d-pending" % depth),), 0o755)
    return names


OPERATIONS: dict[str, Callable[[Local, Path], object]] = {
    "mkdir": lambda local, names: local.fs.namespace.make_directory((*names, Counted(b"new")), 0o755),
    "stat": lambda local, names: local.fs.metadata.stat(names),
    "stat of nothing": lambda local, names: local.fs.working.exists((*names, Counted(b"none"))),
    "list": lambda local, names: local.fs.metadata.list(names),
    "rmdir": lambda local, names: local.fs.namespace.remove_directory(names),
}


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_costs_a_step_for_each_directory_above(local: Local, operation: str, published: bool) -> None:
    costs = []
    for depth in (SHALLOW, DEEP):
        names = deep(local, depth, published=published)
        Counted.lookups = 0
        OPERATIONS[operation](local, names)
        costs.append(Counted.lookups)
    assert 0 < costs[1] <= FACTOR * costs[0]


def test_publishing_looks_at_as_many_paths_wherever_they_are(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []
    node = Tree.node

    def counted(self: Tree, names: Path) -> object:
        looked.append(names)
        return node(self, names)

    costs = []
    for depth in (SHALLOW, DEEP):
        names = deep(local, depth, published=True)
        local.publish()
        local.fs.namespace.make_directory((*names, b"new"), 0o755)
        local.fs.namespace.make_symlink((*names, b"link"), b"target")
        with monkeypatch.context() as patch:
            patch.setattr(Tree, "node", counted)
            looked.clear()
            local.publish()
            costs.append(len(looked))
    assert 0 < costs[0] == costs[1]
