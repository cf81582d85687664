"""`basefs serf`: Serf's own commands on the agent of a node."""

from __future__ import annotations

import pytest

from tests.support.commands import Cli
from tests.support.node import Node
from tests.support.ports import free_port

pytestmark = [pytest.mark.serf]


def test_of_what_does_not_run(conf: Cli) -> None:
    assert "conf is not running" in conf.fails("serf", "conf", "members")
    assert "there is no filesystem other" in conf.fails("serf", "other", "members")


def test_of_a_single_node(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert "it has no cluster" in conf.fails("serf", "conf", "members")


def test_a_command_reaches_the_agent(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-b", f"127.0.0.1:{free_port()}", "-n", "alone")
    assert "alone" in node.basefs("serf", "conf", "members")
    assert '"name"' in node.basefs("serf", "conf", "members", "-format", "json")
    done = node.spawn("serf", "conf", "member")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "basefs: Serf has no command member (did you mean members?): 'basefs serf conf help' lists its commands\n"
    )
    done = node.spawn("serf", "conf", "help")
    assert "members" in done.stdout + done.stderr
    done = node.spawn("serf", "conf")
    assert done.returncode == 2 and "ARGS" in done.stderr
