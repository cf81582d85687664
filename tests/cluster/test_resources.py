"""What `basefs resources` says of traffic, against what the kernel counts in each node's network namespace."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from basefs.management.control import call
from eval.cluster import NAME, PATIENCE, Cluster
from eval.namespaces import NamespaceNetwork
from eval.node import Node
from eval.traffic import Meter
from eval.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def told(node: Node) -> dict[str, int]:
    """The totals of a node's daemon."""
    found: dict[str, int] = call(node.home / "run" / f"{NAME}.sock", "resources", {})
    return found


def test_bytes_are_those_that_cross_the_network(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(2)
    meter = Meter(net.nodes)
    cluster = Cluster.start(net)
    for number in range(5):
        (net.nodes[0].mountpoint / f"file{number}").write_bytes(bytes(range(256)) * 400)
    cluster.wait_until_equal(PATIENCE)

    # A message is smaller than the packets that carry it; in long contents not much.
    def agrees(node: Node, index: int) -> bool:
        ours = told(node)
        kernel = meter.read()[index]
        return (
            kernel.serf_udp / 2 < ours["serf_udp_sent"] < kernel.serf_udp
            and kernel.sync / 3 < ours["sync_sent"] < kernel.sync
            and 0 < ours["serf_tcp_sent"] < kernel.serf_tcp
        )

    for index, node in enumerate(net.nodes):
        wait_until(lambda node=node, index=index: agrees(node, index), PATIENCE, "numbers that agree")  # type: ignore[misc]
    row = net.nodes[0].query("resources", NAME, "--once")
    assert row["serf_memory"] > 1_000_000 and row["serf_threads"] > 1 and row["serf_files"] > 3
    assert row["entries"] == told(net.nodes[0])["entries"]
