"""The contents of a revoked key do not travel, until they count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.helpers import noise
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

MB = 10**6
LARGE = noise(1, 30 * MB)


def received(node: Node) -> int:
    """Bytes that have come from others."""
    return sum(row["received"] for row in ask(node, "members") if not row["own"])


def test_a_revoked_keys_megabytes_do_not_travel(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(3)
    cluster = Cluster.start(net, grant_at="/web")
    one, two, three = cluster.nodes
    cluster.wait_until_equal(DEADLINE)
    net.split([two])
    (two.mountpoint / "web" / "large").write_bytes(LARGE)
    (two.mountpoint / "web" / "small").write_bytes(b"small")
    two.settle(NAME)
    one.basefs("revoke", f"{NAME}:/web", "node2", "--discard")
    before = [received(node) for node in (one, three)]
    net.join()
    for node in (one, three):
        wait_until(lambda node=node: "withheld" in node.basefs("blocks", NAME), DEADLINE, "the entries come")  # type: ignore[misc]
    cluster.wait_until_equal(DEADLINE)
    for node, then in zip((one, three), before, strict=True):
        assert received(node) - then < MB
        assert "withheld" in node.basefs("log", f"{NAME}:/web/large")
        assert not (node.mountpoint / "web" / "large").exists()
        assert "incomplete" not in node.basefs("status", NAME), "nothing is awaited"
    one.basefs("grant", f"{NAME}:/web", "node2", two.home / "key.pub")
    for node in (one, three):
        large = node.mountpoint / "web" / "large"
        wait_until(lambda large=large: large.exists() and large.read_bytes() == LARGE, DEADLINE, "it counts, and comes")  # type: ignore[misc]
        assert (node.mountpoint / "web" / "small").read_bytes() == b"small"
    cluster.wait_until_equal(DEADLINE)
