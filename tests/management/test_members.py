"""`basefs members`, as far as it needs no cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from basefs.daemon.api.messages import ClusterMember, PeerLag
from basefs.management.members import cells
from tests.support.commands import Cli
from tests.support.node import Node


def test_of_what_does_not_run(conf: Cli) -> None:
    assert "conf is not running" in conf.fails("members", "conf")
    assert "there is no filesystem other" in conf.fails("members", "other")


def test_of_a_single_node(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert "it has no cluster" in conf.fails("members", "conf")


MEMBER = ClusterMember(
    name="beta",
    address="10.0.0.2:18374",
    status="alive",
    own=False,
    same_filesystem=True,
    sync_port="18375",
    standing=True,
    compared=65.0,
    equal=True,
    equal_since=65.0,
    lag=PeerLag(0, 0, differs=False),
    differs=False,
    sent=10,
    received=20,
    reachable=True,
    banned=None,
    trouble="",
)
COLUMNS = ("name", "address", "status", "when", "lag", "push", "sent", "received", "note")


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({}, {"when": "1 min ago", "lag": "0", "note": ""}),
        ({"compared": None, "equal": None, "lag": None}, {"when": None, "lag": None}),
        (
            {"equal": False, "lag": PeerLag(0, 0, differs=True)},
            {"when": "1 min ago, differed", "lag": "differs"},
        ),
        ({"lag": PeerLag(3, 0, differs=True)}, {"lag": "3 behind"}),
        ({"lag": PeerLag(0, 4, differs=True), "status": "failed"}, {"lag": "4 ahead"}),
        ({"reachable": False, "trouble": "no answer"}, {"lag": "unknown", "note": "no answer"}),
        ({"status": "failed"}, {"lag": "unknown"}),
        ({"banned": 4.2, "trouble": "rubbish: why"}, {"note": "banned for 5 s: rubbish: why"}),
        ({"banned": 4.2}, {"note": "banned for 5 s"}),
        ({"same_filesystem": False}, {"when": None, "lag": None, "sent": None, "note": "another filesystem"}),
        ({"own": True}, {"when": None, "lag": None, "sent": None, "note": "this node"}),
    ],
)
def test_a_member_in_words(change: dict[str, Any], shown: dict[str, Any]) -> None:
    found = dict(zip(COLUMNS, cells(replace(MEMBER, **change)), strict=True))
    assert {key: found[key] for key in shown} == shown
    assert found["name"] == "beta" and found["address"] == "10.0.0.2:18374"
