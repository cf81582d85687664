"""Clusters of real nodes: network namespaces, Serf agents and FUSE mounts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from basefs.errors import BaseFSError
from tests.support.cluster import Cluster
from tests.support.logs import check_daemons
from tests.support.namespaces import NamespaceNetwork

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


@pytest.fixture
def network(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[int], NamespaceNetwork]]:
    """Makes a network of nodes on which nothing runs yet."""
    made: list[NamespaceNetwork] = []

    def make(count: int) -> NamespaceNetwork:
        network = NamespaceNetwork(tmp_path, count)
        made.append(network)
        return network.__enter__()

    yield make
    for network in made:
        network.__exit__()
    check_daemons(request, [node for network in made for node in network.nodes])


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Cluster]]:
    """Gives a cluster of so many nodes that the tests of a module share, all running and connected, without a file.

    What a test has broken is made anew, so that no other one fails for it.
    """
    nodes = []
    with contextlib.ExitStack() as stack:
        made: dict[int, Cluster] = {}

        def empty(count: int, *, strangers: int = 0) -> Cluster:
            """`strangers`: machines in its network on which nothing runs."""
            if count in made:
                try:
                    made[count].empty()
                    return made[count]
                except (OSError, BaseFSError):
                    made[count].network.__exit__()
            directory = tmp_path_factory.mktemp("shared")
            network = stack.enter_context(NamespaceNetwork(directory, count + strangers))
            nodes.extend(network.nodes)
            made[count] = Cluster.start(network, network.nodes[:count])
            return made[count]

        yield empty
    check_daemons(request, nodes)


@pytest.fixture
def cluster(network: Callable[[int], NamespaceNetwork]) -> Cluster:
    """Three nodes that have the filesystem mounted, with a key on `/` each."""
    return Cluster.start(network(3))
