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
    clones=[],
    status="alive",
    own=False,
    same_filesystem=True,
    sync_port=18375,
    push=True,
    lag=PeerLag(in_step=True, behind=0, ahead=0, apart=None),
    disk_full=False,
    heard=65.0,
    sent=10,
    received=20,
    banned=None,
    trouble="",
    refuses=False,
)
COLUMNS = ("name", "address", "status", "when", "lag", "push", "sent", "received", "note")


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({}, {"when": "1 min ago", "lag": "in step", "note": ""}),
        ({"heard": None, "lag": None}, {"when": None, "lag": "unknown"}),
        ({"lag": PeerLag(in_step=False, behind=0, ahead=0, apart=None)}, {"lag": "unknown"}),
        ({"lag": PeerLag(in_step=False, behind=0, ahead=0, apart=3.0)}, {"lag": "differs for 3 s"}),
        ({"lag": PeerLag(in_step=False, behind=3, ahead=0, apart=70.0)}, {"lag": "3 behind for 1 min"}),
        (
            {"status": "silent", "lag": PeerLag(in_step=False, behind=3, ahead=0, apart=70.0)},
            {"status": "silent", "lag": "3 not confirmed for 1 min"},
        ),
        (
            {"lag": PeerLag(in_step=False, behind=0, ahead=0, apart=3.0, contents_waiting=2)},
            {"lag": "2 contents missing there for 3 s", "note": "limit reached there"},
        ),
        (
            {"lag": PeerLag(in_step=False, behind=3, ahead=0, apart=3.0, contents_waiting=1)},
            {"lag": "3 behind and 1 content missing there for 3 s", "note": "limit reached there"},
        ),
        (
            {"lag": PeerLag(in_step=False, behind=0, ahead=0, apart=None, contents_missing=True)},
            {"lag": "contents missing here"},
        ),
        ({"lag": PeerLag(in_step=False, behind=0, ahead=4, apart=0.5)}, {"lag": "4 ahead for 0 s"}),
        (
            {"refuses": True, "trouble": "why", "lag": PeerLag(in_step=False, behind=1, ahead=0, apart=26.0)},
            {"status": "alive", "lag": "1 not confirmed for 26 s", "note": "why"},
        ),
        ({"trouble": "no answer"}, {"note": "no answer"}),
        ({"status": "left", "trouble": "no answer", "lag": None}, {"status": "left", "lag": None, "note": ""}),
        ({"banned": 4.2, "trouble": "rubbish: why"}, {"note": "banned for 5 s: rubbish: why"}),
        ({"disk_full": True, "trouble": "any"}, {"note": "disk full there"}),
        ({"disk_full": True, "own": True}, {"note": "this node: its disk is full"}),
        ({"banned": 4.2}, {"note": "banned for 5 s"}),
        ({"clones": ["10.0.0.3:18374"], "own": True}, {"note": "this node: same key as 10.0.0.3:18374"}),
        ({"clones": ["10.0.0.3:18374"]}, {"note": "same key as 10.0.0.3:18374"}),
        ({"same_filesystem": False}, {"when": None, "lag": None, "sent": None, "note": "another filesystem"}),
        ({"own": True}, {"when": None, "lag": None, "sent": None, "note": "this node"}),
    ],
)
def test_a_member_in_words(change: dict[str, Any], shown: dict[str, Any]) -> None:
    found = dict(zip(COLUMNS, cells(replace(MEMBER, **change)), strict=True))
    assert {key: found[key] for key in shown} == shown
    assert found["name"] == "beta" and found["address"] == "10.0.0.2:18374"
