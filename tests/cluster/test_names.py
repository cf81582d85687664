"""Names and addresses that collide: two machines of one name, and a machine that returns at another address."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.namespaces import NamespaceNetwork, in_namespace
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.scrape import scrape, value
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

_METRICS = 9464
#: Seconds that Serf takes to notice a node that crashed, or to let another address have its name.
SERF_NOTICES = 30.0


def told(node: Node) -> dict[str, str]:
    """What `basefs status` prints, by the name in front."""
    return dict(line.split("\t", 1) for line in node.basefs("status", NAME).splitlines())


def row_of(node: Node, address: str) -> dict[str, Any]:
    """The member at an address, as a node lists it."""
    (row,) = (row for row in node.query("members", NAME) if row["address"] == address)
    return dict(row)


def findings(node: Node, subject: str = "keys") -> list[dict[str, str]]:
    """What `basefs doctor` says of a subject."""
    rows: list[dict[str, str]] = json.loads(node.spawn("doctor", NAME, "--json").stdout)
    return [row for row in rows if row["subject"] == subject]


def test_two_machines_of_one_name(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(3)
    one, two, three = net.nodes
    Cluster.start(net, [one])
    for node in (two, three):
        node.basefs("get", NAME, one.endpoint)
        node.mount(NAME, "--hostname", "same")
    for node in net.nodes:
        wait_until(lambda node=node: told(node)["in step"] == "with 2 of 2", DEADLINE, "it sees both")  # type: ignore[misc]
        for address in (two.endpoint, three.endpoint):
            assert row_of(node, address)["name"] == f"same@{address}"
    (one.mountpoint / "news").write_text("x")
    for node in (two, three):
        wait_until((node.mountpoint / "news").exists, DEADLINE, "the news")


def test_two_machines_with_one_key(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(3)
    one, two, three = net.nodes
    cluster = Cluster.start(net, [one, two], options=("--metrics", f"127.0.0.1:{_METRICS}"))
    three.basefs("genkey")
    for name in ("key", "key.pub"):
        shutil.copy(two.home / name, three.home / name)
    three.basefs("get", NAME, one.endpoint)
    three.mount(NAME)
    both = f"2 members use one key ({two.endpoint}, {three.endpoint})"
    for node in net.nodes:
        wait_until(lambda node=node: told(node)["in step"] == "with 2 of 2", DEADLINE, "it sees both")  # type: ignore[misc]
        assert told(node)["members"] == f"3 of 3 alive; {both}: 'basefs doctor {NAME}'"
        assert row_of(node, two.endpoint)["clones"] == [three.endpoint]
        assert row_of(node, one.endpoint)["clones"] == []
        (found,) = findings(node)
        assert (found["severity"], found["what"]) == ("problem", both) and "basefs genkey -f" in found["remedy"]
        logged = f": {two.endpoint}, {three.endpoint}"
        wait_until(lambda node=node: "members are using the key" in node.log(NAME), DEADLINE, "it is logged")  # type: ignore[misc]
        assert logged in node.log(NAME)
    assert one.namespace is not None
    with in_namespace(one.namespace):
        assert value(scrape(_METRICS), "basefs_clones") == 2

    # The copy gets a key of its own.
    three.basefs("genkey", "-f")
    one.basefs("grant", f"{NAME}:/", "three", three.home / "key.pub")
    three.basefs("unmount", NAME)
    three.mount(NAME)
    for node in net.nodes:
        wait_until(lambda node=node: told(node)["in step"] == "with 2 of 2", DEADLINE, "it is back")  # type: ignore[misc]
        assert told(node)["members"] == "3 of 3 alive" and findings(node) == []
    cluster.wait_until_equal(DEADLINE)


def move(node: Node, address: str) -> None:
    """Give a machine another address."""
    for change in (("del", f"{node.address}/16"), ("add", f"{address}/16")):
        command = ["ip", "-n", str(node.namespace), "address", change[0], change[1], "dev", "eth0"]
        subprocess.run(command, check=True, capture_output=True)
    node.address = address


def test_a_node_that_was_off_while_another_one_moved(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(3)
    cluster = Cluster.start(net)
    one, off, moved = cluster.nodes
    cluster.wait_until_equal(DEADLINE)
    before = moved.endpoint
    off.basefs("unmount", NAME)
    moved.kill(NAME)
    move(moved, "10.77.3.3")
    moved.mount(NAME, "--owners")
    off.mount(NAME, "--owners")
    for node in (off, one, moved):
        wait_until(lambda node=node: told(node)["in step"] == "with 2 of 2", DEADLINE, "no phantom")  # type: ignore[misc]
        assert told(node)["members"] == "3 of 3 alive"
        assert before not in {row["address"] for row in ask(node, "members")}


def test_a_crashed_machine_that_returns_at_another_address(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(3)
    cluster = Cluster.start(net)
    three = cluster.nodes[2]
    cluster.wait_until_equal(DEADLINE)
    (name,) = (row["name"] for row in ask(three, "members") if row["own"])
    before = three.endpoint
    three.kill(NAME)
    move(three, "10.77.3.3")
    three.mount(NAME, "--owners")

    def is_back(node: Node) -> bool:
        # A session from the new address may stand before Serf has told of that.
        is_listed = three.endpoint in [row["address"] for row in ask(node, "members")]
        return is_listed and told(node)["in step"] == "with 2 of 2"

    for node in cluster.nodes:
        seconds = wait_until(partial(is_back, node), DEADLINE, "all members, and none of them twice")
        assert seconds < SERF_NOTICES / 2
        assert told(node)["members"] == "3 of 3 alive"
        assert row_of(node, three.endpoint)["name"] == name
        assert not [row for row in ask(node, "members") if row["address"] == before]
        assert findings(node) == []
