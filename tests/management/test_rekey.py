"""`basefs rekey`; what it does in a cluster is in tests/cluster/test_closed.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Cli
from tests.support.node import Node


def test_it_makes_a_key_whether_the_filesystem_runs_or_not(conf: Cli) -> None:
    assert conf("rekey", "conf") == "conf: gossip has a new key\n"


@pytest.mark.process
def test_with_a_daemon(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    before = node.entries("conf")
    assert conf("rekey", "conf") == "conf: gossip has a new key\n"
    assert node.entries("conf") == before + 1


def test_an_open_filesystem_has_no_key_of_its_own(conf: Cli) -> None:
    conf("bootstrap", "public", "--open")
    assert "--encrypt-key-file" in conf.fails("rekey", "public", code=2)


def test_it_needs_a_key_for_the_root(conf: Cli, tmp_path: Path) -> None:
    conf("genkey", tmp_path / "web.key")
    assert "valid at /" in conf.fails("rekey", "conf", "-k", tmp_path / "web.key")
