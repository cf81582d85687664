"""A stolen root key is replaced in a closed cluster: the machines go on, and what the thief signs is ignored."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def granted(node: Node) -> dict[str, str]:
    """The keys that may write, and who has granted them."""
    rows = json.loads(node.basefs("keys", NAME, "--json"))
    return {row["name"]: row["granted_by_name"] for row in rows if row["standing"] == "valid"}


def root_key(node: Node) -> str:
    """What a node says of the root key."""
    return next(line for line in node.basefs("keys", NAME).splitlines() if line.startswith("root key:"))


def files(node: Node) -> dict[str, str]:
    return {path.name: path.read_text() for path in node.mountpoint.iterdir() if path.name != ".cluster"}


def test_a_stolen_root_key_is_replaced(network: Callable[[int], NamespaceNetwork]) -> None:
    whole = network(4)
    *members, newcomer = whole.nodes
    first, second, third = members
    keys = first.home.parent / "keys"
    keys.mkdir(parents=True)
    for name in ("ann", "bob", "eve", "new", "evil"):
        first.basefs("genkey", keys / name)
    first.basefs("genkey")
    options = [word for name in ("ann", "bob", "eve") for word in ("--recovery", keys / f"{name}.pub")]
    first.basefs("bootstrap", NAME, "-i", first.endpoint, *options)
    stolen = keys / "stolen"
    first.home.joinpath(f"{NAME}.root.key").rename(stolen)
    cluster = Cluster(whole, members)
    first.mount(NAME)
    for number, node in enumerate((second, third), start=2):
        node.basefs("genkey")
        # By the root key, so that the grant falls with it unless it is made anew.
        first.basefs("grant", NAME, f"node{number}", node.home / "key.pub", "-k", stolen)
        node.basefs("get", NAME, first.endpoint)
        node.mount(NAME)
    cluster.wait_for_members()
    for node in members:
        (node.mountpoint / node.address).write_text(f"by {node.address}")
    cluster.wait_until_equal(DEADLINE)
    kept, gossip = files(first), first.gossip_key(NAME)
    # The thief sits on the third node, for a while without the others.
    whole.split([third])
    third.basefs("grant", NAME, "evil", keys / "evil.pub", "-k", stolen)
    third.basefs("revoke", NAME, "node2", "-k", stolen)
    (third.mountpoint / "of the third").write_text("by its own key")
    # One recovery key signs elsewhere.
    share = second.basefs("recover", NAME, keys / "new.pub", "--sign", "-k", keys / "ann").strip()
    done = first.basefs("recover", NAME, keys / "new", "--share", share, "-k", keys / "bob")
    assert "by recovery 1" in done and "granted again: node2 at /" in done
    wait_until(lambda: "by recovery 1" in root_key(second), DEADLINE, "the second node has a new root key")
    (second.mountpoint / second.address).write_text("goes on")
    whole.join()
    wait_until(lambda: "by recovery 1" in root_key(third), DEADLINE, "the third node has it")
    cluster.wait_until_equal(DEADLINE)
    for node in members:
        wait_until(lambda node=node: "of the third" in files(node), DEADLINE, "what its own key wrote is there")  # type: ignore[misc]
        assert granted(node).keys() == granted(first).keys() and "evil" not in granted(node)
        assert granted(node)["node2"] == granted(node)["node3"] == "root"
        assert root_key(node) == root_key(first)
        assert files(node) == {**kept, second.address: "goes on", "of the third": "by its own key"}
    # The former root key was a member, so gossip has another key.
    wait_until(
        lambda: gossip != first.gossip_key(NAME) and len({node.gossip_key(NAME) for node in members}) == 1,
        DEADLINE,
        "a new one",
    )
    # Also afterwards.
    refused = third.spawn("grant", NAME, "evil", keys / "evil.pub", "-k", stolen)
    assert refused.returncode != 0 and "may not write" in refused.stderr
    # A new node fetches a filesystem that has been recovered.
    newcomer.basefs("genkey")
    first.basefs("grant", NAME, "node4", newcomer.home / "key.pub", "-k", keys / "new")
    wait_until(lambda: newcomer.spawn("get", NAME, second.endpoint).returncode == 0, DEADLINE, "it is let in")
    newcomer.mount(NAME)
    assert root_key(newcomer) == root_key(first) and granted(newcomer) == granted(first)
    assert files(newcomer) == files(first)
    (newcomer.mountpoint / "new").write_text("by the newcomer")
    wait_until(lambda: "new" in files(third), DEADLINE, "its file arrives")
