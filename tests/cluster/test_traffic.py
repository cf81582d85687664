"""Bytes by protocol, and networks that are split and joined: what the benchmarks measure with."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from eval.traffic import Meter, Traffic
from tests.support.namespaces import NamespaceNetwork, in_namespace

pytestmark = [pytest.mark.cluster]

#: Bytes of the headers of a UDP packet: IPv4 without options (RFC 791) and UDP (RFC 768).
HEADERS = 20 + 8
SIZE = 1000


def _send(network: NamespaceNetwork, sender: int, receiver: int, count: int, port: int) -> None:
    with in_namespace(str(network.nodes[sender].namespace)):
        sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sending:
        for _ in range(count):
            sending.sendto(bytes(SIZE), (network.nodes[receiver].address, port))


def test_counts_what_is_sent_over_the_ports_of_a_node(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(2)
    meter = Meter(net.nodes)
    assert meter.total() == Traffic()
    _send(net, 0, 1, 7, net.nodes[1].port)
    # Not a port of ours.
    _send(net, 0, 1, 7, net.nodes[1].port + 100)
    first, second = meter.read()
    assert first == Traffic(serf_udp=7 * (SIZE + HEADERS))
    assert second == Traffic()


def test_a_split_network_joins_again(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(4)
    assert _reaches(net, 0, 2)
    net.split(net.nodes[2:])
    assert _reaches(net, 0, 1)
    assert _reaches(net, 2, 3)
    assert not _reaches(net, 0, 2)
    net.join()
    assert _reaches(net, 0, 2)


def _reaches(network: NamespaceNetwork, sender: int, receiver: int) -> bool:
    """Whether a node can open a connection to another one."""
    with in_namespace(str(network.nodes[receiver].namespace)):
        listening = socket.create_server((str(network.nodes[receiver].address), 0))
    with in_namespace(str(network.nodes[sender].namespace)):
        calling = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listening, calling:
        # A node that is cut off does not even refuse.
        calling.settimeout(2)
        try:
            calling.connect(listening.getsockname())
        except TimeoutError:
            return False
        return True
