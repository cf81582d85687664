"""Nodes in network namespaces reach each other however many they are, and only while they are joined."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.namespaces import NamespaceNetwork, in_namespace
from tests.support.node import Node

pytestmark = pytest.mark.cluster


def reaches(one: Node, other: Node, seconds: float = 10) -> bool:
    """Whether a node hears from another one, if only that nobody listens there."""
    with in_namespace(str(one.namespace)):
        attempt = socket.socket()
    with attempt:
        attempt.settimeout(seconds)
        try:
            attempt.connect((other.address, 9))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    raise AssertionError("somebody listens on the port of discard")


def neighbours(node: Node) -> list[dict[str, object]]:
    """What the kernel knows of the others' hardware addresses."""
    shown = subprocess.run([*node.prefix(), "ip", "-j", "neigh"], capture_output=True, text=True, check=True)
    rows: list[dict[str, object]] = json.loads(shown.stdout)
    return rows


def test_a_node_takes_no_room_in_the_table_of_neighbours_that_all_namespaces_share(tmp_path: Path) -> None:
    with NamespaceNetwork(tmp_path, 4, behind_nat=1) as network:
        assert all(reaches(one, other) for one in network.nodes for other in network.nodes[:3] if one is not other)
        for node in network.nodes[:3]:
            assert [row["state"] for row in neighbours(node)] == [["PERMANENT"]] * 3
        assert not reaches(network.nodes[0], network.nodes[3]), "nobody reaches who is behind a router"


def test_who_was_split_off_or_unplugged_is_reached_again(tmp_path: Path) -> None:
    with NamespaceNetwork(tmp_path, 3) as network:
        one, other, apart = network.nodes
        network.split([apart])
        assert reaches(one, other) and not reaches(one, apart, 1)
        network.join()
        assert reaches(one, apart)
        network.unplug(one)
        assert not reaches(one, other)
        network.plug_in(one)
        assert reaches(one, other) and reaches(other, one)
