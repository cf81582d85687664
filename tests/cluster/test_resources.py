"""What `basefs resources` says of traffic, against what the kernel counts in each node's network namespace."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from basefs.daemon.api.control import call
from eval.traffic import Meter
from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

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
        # Noise, so that it is contents that cross the network and not acknowledgements.
        (net.nodes[0].mountpoint / f"file{number}").write_bytes(os.urandom(100_000))
    cluster.wait_until_equal(DEADLINE)

    # A message is smaller than the packets that carry it.
    def agrees() -> bool:
        ours, kernel = [told(node) for node in net.nodes], meter.read()
        return all(
            seen.serf_udp / 2 < own["serf_udp_sent"] < seen.serf_udp
            and 0 < own["serf_tcp_sent"] < seen.serf_tcp
            and 0 < own["sync_sent"] < seen.sync
            for own, seen in zip(ours, kernel, strict=True)
        )

    wait_until(agrees, DEADLINE, "numbers that agree")
    # The first node has sent contents, which differ from their packets by little; the other one acknowledgements.
    assert meter.read()[0].sync * 0.8 < told(net.nodes[0])["sync_sent"]
    row = net.nodes[0].query("resources", NAME, "--once")
    assert row["serf_memory"] > 1_000_000 and row["serf_threads"] > 1 and row["serf_files"] > 3
    assert row["entries"] == told(net.nodes[0])["entries"]
