"""Two halves of a cluster that go on by themselves, and become one again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cluster import NAME, Cluster, ask, snapshot
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Changes on each side.
CHANGES = 30


@pytest.mark.parametrize("options", [(), ("--no-push",)], ids=["push", "gossip"])
def test_two_halves_go_on_by_themselves_and_agree_when_joined(
    network: Callable[[int], NamespaceNetwork], options: tuple[str, ...]
) -> None:
    cluster = Cluster.start(network(4), options=options)
    cluster.wait_until_equal(DEADLINE)
    halves = [Cluster(cluster.network, cluster.nodes[:2]), Cluster(cluster.network, cluster.nodes[2:])]
    cluster.network.split(halves[1].nodes)
    for number in range(CHANGES):
        for side, half in enumerate(halves):
            (half.nodes[number % 2].mountpoint / f"side{side}-{number}").write_text(f"{side} {number}")
            # By one node of each side: two would write at once, so that the last one need not win.
            (half.nodes[0].mountpoint / "both").write_text(f"{side} {number}")
    for half in halves:
        half.wait_until_equal(DEADLINE)
    assert len(cluster.root_hashes()) == 2
    cluster.network.join()
    cluster.wait_until_equal(DEADLINE)
    trees = [snapshot(node.mountpoint) for node in cluster.nodes]
    assert all(tree == trees[0] for tree in trees)
    assert {f"side{side}-{number}".encode() for side in (0, 1) for number in range(CHANGES)} < set(trees[0])
    assert trees[0][b"both"][2] in {f"{side} {CHANGES - 1}".encode() for side in (0, 1)}


def test_what_is_changed_in_a_short_cut_is_shown_or_listed(shared: Callable[[int], Cluster]) -> None:
    """One node removes a directory while the other one writes in it; it arrives when the removal may not be signed."""
    cluster = shared(2)
    one, other = cluster.nodes
    files = [f"d/{number}" for number in range(4)]
    for file in files:
        path = one.mountpoint / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("first")
        cluster.wait_until_equal(DEADLINE)
        cluster.network.split([other])
        shutil.rmtree(path.parent)
        (other.mountpoint / file).write_text("second")
        cluster.network.join()
        wait_until(lambda: one.entries(NAME) == other.entries(NAME), DEADLINE, "both have all")
        cluster.wait_until_equal(DEADLINE)
        shown = path.read_text() if path.exists() else ""
        lost = {row["path"]: row for row in one.query("conflicts", NAME)}
        assert shown == "second" or f"/{file}" in lost, (file, shown, lost)


def test_a_session_that_a_cut_broke_is_left(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(2)
    cluster.wait_for_sessions()
    cluster.network.split(cluster.nodes[1:])
    for number, node in enumerate(cluster.nodes):
        (node.mountpoint / f"side{number}").write_text("written in the cut")
    for node in cluster.nodes:
        # Without a limit of our own, the kernel tries for a quarter of an hour.
        wait_until(lambda node=node: not _standing(node), 2 * DEADLINE, f"{node.address} has left it")  # type: ignore[misc]
    cluster.network.join()
    cluster.wait_until_equal(DEADLINE)
    cluster.wait_for_sessions()
    trees = [snapshot(node.mountpoint) for node in cluster.nodes]
    assert trees[0] == trees[1] and set(trees[0]) >= {b"side0", b"side1"}


def test_members_tell_how_far_a_node_is_behind(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(2)
    one, two = cluster.nodes
    cluster.wait_for_sessions()
    cluster.wait_until_equal(DEADLINE)
    in_step = {
        "in_step": True,
        "behind": 0,
        "ahead": 0,
        "apart": None,
        "contents_missing": False,
        "contents_waiting": 0,
    }
    for node in cluster.nodes:
        wait_until(lambda node=node: _lag(node) == in_step, DEADLINE, "in step")  # type: ignore[misc]
    cluster.network.unplug(two)
    for number in range(20):
        (one.mountpoint / f"file{number}").write_text("x")

    def is_behind() -> bool:
        lag = _lag(one)
        return lag is not None and lag["behind"] >= 20 and lag["ahead"] == 0 and not lag["in_step"]

    wait_until(is_behind, DEADLINE, "the other one is behind")
    # Some of it might have arrived before the cut.
    wait_until(lambda: " not confirmed for " in one.basefs("members", NAME), DEADLINE, "it does not answer")
    cluster.network.plug_in(two)
    cluster.wait_until_equal(DEADLINE)
    for node in cluster.nodes:
        wait_until(lambda node=node: _lag(node) == in_step, DEADLINE, "in step again")  # type: ignore[misc]


def _lag(node: Node) -> dict[str, Any] | None:
    """How far the only other member is behind or ahead."""
    (found,) = (row["lag"] for row in ask(node, "members") if not row["own"])
    return None if found is None else dict(found)


def _standing(node: Node) -> list[str]:
    return list(ask(node, "network")["standing"])
