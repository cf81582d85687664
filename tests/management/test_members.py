"""`basefs members`, as far as it needs no cluster."""

from __future__ import annotations

from typing import Any

import pytest

from basefs.management.members import _told
from tests.support.commands import Cli
from tests.support.node import Node


def test_of_what_does_not_run(conf: Cli) -> None:
    assert "conf is not running" in conf.fails("members", "conf")
    assert "there is no filesystem other" in conf.fails("members", "other")


def test_of_a_single_node(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert "it has no cluster" in conf.fails("members", "conf")


ROW: dict[str, Any] = {
    "name": "beta",
    "address": "10.0.0.2:18374",
    "status": "alive",
    "own": False,
    "same_filesystem": True,
    "standing": True,
    "compared": 65.0,
    "equal": True,
    "lag": {"behind": 0, "ahead": 0, "differs": False},
    "sent": 10,
    "received": 20,
    "reachable": True,
    "banned": None,
    "trouble": "",
}


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({}, {"when": "1 min ago", "lag": "0", "note": ""}),
        ({"compared": None, "equal": None, "lag": None}, {"when": None, "lag": None}),
        (
            {"equal": False, "lag": {"behind": 0, "ahead": 0, "differs": True}},
            {"when": "1 min ago, differed", "lag": "differs"},
        ),
        ({"lag": {"behind": 3, "ahead": 0, "differs": True}}, {"lag": "3 behind"}),
        ({"lag": {"behind": 0, "ahead": 4, "differs": True}, "status": "failed"}, {"lag": "4 ahead"}),
        ({"reachable": False, "trouble": "no answer"}, {"lag": "unknown", "note": "no answer"}),
        ({"status": "failed"}, {"lag": "unknown"}),
        ({"banned": 4.2, "trouble": "rubbish: why"}, {"note": "banned for 5 s: rubbish: why"}),
        ({"banned": 4.2}, {"note": "banned for 5 s"}),
        ({"same_filesystem": False}, {"when": None, "lag": None, "sent": None, "note": "another filesystem"}),
        ({"own": True}, {"when": None, "lag": None, "sent": None, "note": "this node"}),
    ],
)
def test_a_member_in_words(change: dict[str, Any], shown: dict[str, Any]) -> None:
    told = _told({**ROW, **change})
    assert {key: told.get(key) for key in shown} == shown
    assert told["name"] == "beta" and told["address"] == "10.0.0.2:18374"
