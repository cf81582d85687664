"""Two halves of a cluster that go on by themselves, and become one again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eval.cluster import PATIENCE, Cluster, snapshot
from eval.namespaces import NamespaceNetwork

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Changes on each side.
CHANGES = 30


@pytest.mark.parametrize("options", [(), ("--no-push",)], ids=["push", "gossip"])
def test_two_halves_go_on_by_themselves_and_agree_when_joined(
    network: Callable[[int], NamespaceNetwork], options: tuple[str, ...]
) -> None:
    cluster = Cluster.start(network(4), options=options)
    cluster.wait_until_equal(PATIENCE)
    halves = [Cluster(cluster.network, cluster.nodes[:2]), Cluster(cluster.network, cluster.nodes[2:])]
    cluster.network.split(halves[1].nodes)
    for number in range(CHANGES):
        for side, half in enumerate(halves):
            (half.nodes[number % 2].mountpoint / f"side{side}-{number}").write_text(f"{side} {number}")
            # By one node of each side: two would write at once, so that the last one need not win.
            (half.nodes[0].mountpoint / "both").write_text(f"{side} {number}")
    for half in halves:
        half.wait_until_equal(PATIENCE)
    assert len(cluster.root_hashes()) == 2
    cluster.network.join()
    cluster.wait_until_equal(PATIENCE)
    trees = [snapshot(node.mountpoint) for node in cluster.nodes]
    assert all(tree == trees[0] for tree in trees)
    assert {f"side{side}-{number}".encode() for side in (0, 1) for number in range(CHANGES)} < set(trees[0])
    assert trees[0][b"both"][2] in {f"{side} {CHANGES - 1}".encode() for side in (0, 1)}
