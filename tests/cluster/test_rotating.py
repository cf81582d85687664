"""A new gossip key while members are cut off: they get it from the others when they are back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eval.net.rotating import Losses, measure
from tests.support.cluster import Cluster
from tests.support.namespaces import NamespaceNetwork
from tests.support.patience import DEADLINE

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def test_members_that_were_away_have_the_new_key(network: Callable[[int], NamespaceNetwork]) -> None:
    cluster = Cluster.start(network(6), closed=True)
    cluster.wait_for_sessions()
    with Losses(cluster.nodes, away=2) as losses:
        found = measure(cluster, away=2, seconds=0, losses=losses)
    assert found["all alive s"] > 0 and found["gossip among those there s"] < DEADLINE
    for number, node in enumerate(cluster.nodes):
        (node.mountpoint / f"from{number}").write_text("back\n")
    cluster.wait_until_equal(DEADLINE)
