"""The first minute: no option and no network on the first machine; the second one knows the first one's address."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

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


def test_without_options_and_without_a_network(network: Callable[[int], NamespaceNetwork]) -> None:
    one, two = network(2).nodes
    for node in (one, two):
        node.mountpoint.mkdir(parents=True)
    ip(one, "address", "flush", "dev", "eth0")

    one.basefs("genkey")
    one.basefs("bootstrap", NAME, "--open")
    one.basefs("mount", NAME, one.mountpoint)
    (one.mountpoint / "hosts").write_text("10.0.0.1 one\n")
    assert "problem" not in one.basefs("doctor", NAME)

    # The network comes while it is mounted.
    ip(one, "address", "add", f"{one.address}/16", "dev", "eth0")
    wait_until(lambda: one.query("members", NAME)[0]["address"] == one.endpoint, DEADLINE, "an address for others")

    two.basefs("get", NAME, str(one.address))
    two.basefs("mount", NAME, two.mountpoint)
    assert (two.mountpoint / "hosts").read_text() == "10.0.0.1 one\n"
    for node in (one, two):
        wait_until(lambda node=node: node.alive(NAME) == 2, DEADLINE, "both see each other")  # type: ignore[misc]
    (one.mountpoint / "hosts").write_text("10.0.0.1 one\n10.0.0.2 two\n")
    wait_until(lambda: "two" in (two.mountpoint / "hosts").read_text(), DEADLINE, "the change")

    # It has a key of its own, which needs to be granted, and need not mount again.
    with pytest.raises(PermissionError):
        (two.mountpoint / "here").touch()
    public = two.query("keys")[0]["public"]
    one.basefs("grant", f"{NAME}:/", "two", public)
    wait_until(lambda: two.query("status", NAME)["may_write"] == ["/"], DEADLINE, "the grant")
    (two.mountpoint / "here").write_text("x")
    wait_until((one.mountpoint / "here").exists, DEADLINE, "what the second one wrote")
    one.basefs("unmount", NAME)
    one.basefs("mount", NAME, one.mountpoint)
    for node in (one, two):
        wait_until(lambda node=node: node.alive(NAME) == 2, DEADLINE, "both again")  # type: ignore[misc]
