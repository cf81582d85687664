"""`basefs rekey`; what it does in a cluster is in tests/cluster/test_closed.py."""

from __future__ import annotations

import pytest

from tests.support.commands import Cli
from tests.support.node import Node
from tests.support.ports import free_port


def test_it_needs_a_running_filesystem(conf: Cli) -> None:
    assert "conf is not running" in conf.fails("rekey", "conf")


@pytest.mark.process
def test_it_needs_a_cluster(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert "it has no cluster" in conf.fails("rekey", "conf")


@pytest.mark.process
@pytest.mark.serf
def test_an_open_filesystem_has_no_key_of_its_own(node: Node, conf: Cli) -> None:
    conf("bootstrap", "public", "--open")
    node.basefs("run", "public", "-b", f"127.0.0.1:{free_port()}")
    assert "--encrypt-key-file" in conf.fails("rekey", "public", code=2)


@pytest.mark.process
@pytest.mark.serf
def test_alone_it_makes_a_key(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-b", f"127.0.0.1:{free_port()}")
    assert conf("rekey", "conf") == "conf: gossip has a new key, number 2; sent to 0 of 0 other members\n"
    assert conf("rekey", "conf") == "conf: gossip has a new key, number 3; sent to 0 of 0 other members\n"
