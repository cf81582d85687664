"""Two or three nodes that exchange entries, and are killed between any two steps, end equal and lose nothing."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.fs.worktree.cluster import ACTIONS, Cluster
from tests.support.examples import part
from tests.support.mounts import temporary_directory

pytestmark = pytest.mark.logs("which never leaves this node")

#: Few, so that operations meet on them.
PATHS = st.sampled_from(["/a", "/b", "/d", "/d/a", "/d/b", "/d/e", "/d/e/a", "/c", "/c/a", "/c/e", "/c/e/a"])
OPERATIONS = st.sampled_from([*(3 * ["save", "rename"]), *(2 * ["replace", "remove", "mkdir"]), *ACTIONS])
NODES = st.integers(0, 2)
#: Steps after which a process is killed; none for most of them.
FUSES = st.one_of(st.just(0), st.just(0), st.integers(1, 12))


class Nodes(RuleBasedStateMachine):
    """What applications and nodes may do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.directory = self.stack.enter_context(temporary_directory())
        self.cluster: Cluster | None = None

    @initialize(count=st.sampled_from([2, 3]))
    def begin(self, count: int) -> None:
        self.cluster = Cluster(self.directory, count)

    def node(self, number: int) -> int:
        assert self.cluster is not None
        return number % len(self.cluster.nodes)

    @rule(number=NODES, what=OPERATIONS, one=PATHS, other=PATHS)
    def act(self, number: int, what: str, one: str, other: str) -> None:
        assert self.cluster is not None
        self.cluster.act(self.node(number), what, one, other)

    @rule(number=NODES, fuse=FUSES)
    def publish(self, number: int, fuse: int) -> None:
        assert self.cluster is not None
        self.cluster.fuses[self.node(number)].left = fuse
        self.cluster.publish(self.node(number))

    @rule(number=NODES, fuse=FUSES)
    def settle(self, number: int, fuse: int) -> None:
        assert self.cluster is not None
        self.cluster.fuses[self.node(number)].left = fuse
        self.cluster.settle(self.node(number))

    @rule(number=NODES)
    def restart(self, number: int) -> None:
        assert self.cluster is not None
        self.cluster.restart(self.node(number))

    @precondition(lambda self: self.cluster is not None)
    @rule(one=NODES, other=NODES)
    def exchange(self, one: int, other: int) -> None:
        assert self.cluster is not None
        if self.node(one) != self.node(other):
            self.cluster.exchange(self.node(one), self.node(other))

    def teardown(self) -> None:
        with self.stack:
            if self.cluster is not None:
                self.cluster.check()
                for local in self.cluster.nodes:
                    local.close()


TestNodes = Nodes.TestCase
TestNodes.settings = part(10, stateful_step_count=40)
