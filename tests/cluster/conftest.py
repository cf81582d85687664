"""Clusters of real nodes: network namespaces, Serf agents and FUSE mounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.namespaces import NamespaceNetwork

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Callable[[int], NamespaceNetwork]]:
    """Makes a network of nodes on which nothing runs yet."""
    made: list[NamespaceNetwork] = []

    def make(count: int) -> NamespaceNetwork:
        network = NamespaceNetwork(tmp_path, count)
        made.append(network)
        return network.__enter__()

    yield make
    for network in made:
        network.__exit__()


@pytest.fixture
def cluster(network: Callable[[int], NamespaceNetwork]) -> Cluster:
    """Three nodes that have the filesystem mounted, with a key on `/` each."""
    return Cluster.start(network(3))
