"""Metrics where there are others: lag, convergence, traffic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import NamespaceNetwork, in_namespace
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.scrape import Samples, value
from tests.support.scrape import scrape as ask
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

_PORT = 9464


def scrape(node: Node) -> Samples:
    """What a node tells on its own loopback."""
    assert node.namespace is not None
    with in_namespace(node.namespace):
        return ask(_PORT)


def test_lag_convergence_and_traffic(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(2)
    cluster = Cluster.start(net, options=("--metrics", f"127.0.0.1:{_PORT}"))
    one, two = cluster.nodes
    (name,) = (member["name"] for member in one.query("members", NAME) if not member["own"])

    def is_in_step(samples: Samples) -> bool:
        lags = [samples.get(("basefs_peer_lag_seconds", (("peer", name),)))]
        for side in ("behind", "ahead"):
            lags.append(samples.get(("basefs_peer_lag_entries", (("peer", name), ("side", side)))))
        return lags == [0, 0, 0] and value(samples, "basefs_members", status="alive") == 2

    before = value(scrape(one), "basefs_convergence_seconds_count")
    (two.mountpoint / "news").write_text("x")
    wait_until(lambda: value(scrape(one), "basefs_convergence_seconds_count") > before, DEADLINE, "the news")
    wait_until(lambda: is_in_step(scrape(one)), DEADLINE, "no lag")
    samples = scrape(one)
    for direction in ("sent", "received"):
        assert value(samples, "basefs_sync_bytes_total", direction=direction) > 0
    wait_until(lambda: value(scrape(one), "basefs_serf_udp_bytes_total", direction="received") > 0, DEADLINE, "Serf")
    assert value(samples, "basefs_rejected_total", source="sync") == 0
