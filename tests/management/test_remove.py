"""`basefs remove`."""

from __future__ import annotations

import json
import os

import pytest

from basefs.log.keys import SigningKey
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.node import Node


def test_nothing_is_left_but_the_key(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert "conf is running: 'basefs unmount conf' first" in conf.fails("remove", "-y", "conf")
    conf("unmount", "conf")
    conf("bootstrap", "other")
    key = conf.home.default_key.read_bytes()
    code, out, err = conf.run("remove", "-y", "conf")
    assert (code, out) == (0, "")
    assert "its 4 entries may be nowhere else" in err
    assert f"nobody else may write everywhere in conf: keep {conf.home.default_key}, which cannot be replaced" in err
    assert [row["name"] for row in json.loads(conf("list", "--json"))] == ["other"]
    assert os.listdir(conf.home.path / "fs") == ["other"] and os.listdir(conf.home.path / "logs") == []
    assert conf.home.default_key.read_bytes() == key
    assert "there is no filesystem conf" in conf.fails("remove", "conf")


def test_a_root_key_that_cannot_be_read_keeps_nothing_from_being_removed(cli: Cli) -> None:
    cli("bootstrap", "conf")
    cli.home.root_key("conf").write_text("not a key")
    code, _, err = cli.run("remove", "-y", "conf")
    assert code == 0 and "not published" not in err
    assert cli.home.names() == []


def test_without_a_terminal_it_needs_consent(node: Node, conf: Cli) -> None:
    done = node.spawn("remove", "conf")
    assert done.returncode == 2 and "conf was not removed: -y removes it" in done.stderr
    assert conf.home.names() == ["conf"]


def test_on_a_terminal_it_asks(node: Node, conf: Cli) -> None:
    shown = on_a_terminal(node, "remove", "conf", typed="n\n", code=3)
    assert "Remove conf from this machine?" in shown and conf.home.names() == ["conf"]
    on_a_terminal(node, "remove", "conf", typed="y\n")
    assert conf.home.names() == []


def test_another_key_that_may_write_is_enough(conf: Cli) -> None:
    conf("grant", "conf:/", "colleague", SigningKey.generate().public.hex())
    assert "only the key" not in conf.run("remove", "-y", "conf")[2]


@pytest.mark.fuse
def test_changes_that_are_not_published_are_told_of(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    (point / "news").write_text("x")
    node.kill("conf")
    told = conf.run("unmount", "conf")[2]
    err = conf.run("remove", "conf")[2]
    left = "1 changed name of conf is not published"
    was_told = f"basefs: {left}; no other machine has them" in told and f"{left}: mount it once more" in err
    assert was_told or "/news" in conf("show", "-l", "conf")
