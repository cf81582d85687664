"""`basefs members`, as far as it needs no cluster."""

from __future__ import annotations

from eval.node import Node
from tests.management.conftest import Cli


def test_of_what_does_not_run(conf: Cli) -> None:
    assert "conf is not running" in conf.fails("members", "conf")
    assert "there is no filesystem other" in conf.fails("members", "other")


def test_of_a_single_node(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert "it has no cluster" in conf.fails("members", "conf")
