"""Where the others find a node: a machine with several addresses, and with another one than a minute ago."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import NAME
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def ip(node: Node, *arguments: str) -> None:
    """Change a node's network."""
    subprocess.run(["ip", "-n", str(node.namespace), *arguments], check=True, capture_output=True)


def told(node: Node) -> set[str]:
    """Where a node believes that those are who are alive."""
    return {str(row["address"]) for row in node.query("members", NAME) if row["status"] == "alive"}


def test_containers_and_a_new_address(network: Callable[[int], NamespaceNetwork]) -> None:
    one, two = network(2).nodes
    for node in (one, two):
        node.mountpoint.mkdir(parents=True)
        # The bridge of its containers, the same on each machine, and smaller than the address for others.
        ip(node, "link", "add", "docker0", "type", "bridge")
        ip(node, "address", "add", "10.0.0.1/24", "dev", "docker0")
        ip(node, "link", "set", "docker0", "up")
    one.basefs("genkey")
    one.basefs("bootstrap", NAME, "-i", one.address, "--open")
    one.basefs("mount", NAME, one.mountpoint)
    two.basefs("get", NAME, str(one.address))
    two.basefs("mount", NAME, two.mountpoint)
    for node in (one, two):
        wait_until(lambda node=node: told(node) == {one.endpoint, two.endpoint}, DEADLINE, "addresses")  # type: ignore[misc]
    log = two.home / "logs" / f"{NAME}.log"

    # What a DHCP client does: the old one goes, and a moment later a new one comes.
    ip(two, "address", "del", f"{two.address}/16", "dev", "eth0")
    wait_until(lambda: "unreachable" in log.read_text(), DEADLINE, "a time without an address")
    ip(two, "address", "add", "10.77.3.3/16", "dev", "eth0")
    moved = two.endpoint.replace(str(two.address), "10.77.3.3")
    for node in (one, two):
        wait_until(lambda node=node: told(node) == {one.endpoint, moved}, DEADLINE, "the new address")  # type: ignore[misc]
    (one.mountpoint / "hosts").write_text("10.77.3.3 two\n")
    wait_until((two.mountpoint / "hosts").exists, DEADLINE, "what was written after that")
    wait_until(lambda: not any(row["trouble"] for row in one.query("members", NAME)), DEADLINE, "no trouble")
    assert "10.0.0.1" not in log.read_text()


def test_nodes_that_listen_on_the_addresses_of_both_families(network: Callable[[int], NamespaceNetwork]) -> None:
    """One is named by its IPv6 address, the other has no IPv4 address at all."""
    one, two = network(2).nodes
    for node, address in ((one, "fd00::1"), (two, "fd00::2")):
        node.mountpoint.mkdir(parents=True)
        ip(node, "address", "add", f"{address}/64", "dev", "eth0", "nodad")
    ip(two, "address", "del", f"{two.address}/16", "dev", "eth0")
    one.basefs("genkey")
    one.basefs("bootstrap", NAME, "-i", "[fd00::1]", "--open")
    one.basefs("mount", NAME, one.mountpoint)
    two.basefs("get", NAME, "[fd00::1]")
    two.basefs("mount", NAME, two.mountpoint)
    expected = {"[fd00::1]:18374", "[fd00::2]:18374"}
    for node in (one, two):
        wait_until(lambda node=node: told(node) == expected, DEADLINE, "addresses")  # type: ignore[misc]
    # More than gossip brings.
    content = os.urandom(100_000)
    (one.mountpoint / "image").write_bytes(content)
    wait_until(lambda: is_equal(two.mountpoint / "image", content), DEADLINE, "a file")
    wait_until(lambda: any(row["push"] for row in two.query("members", NAME)), DEADLINE, "a session that stays")


def is_equal(path: Path, content: bytes) -> bool:
    return path.exists() and path.read_bytes() == content
