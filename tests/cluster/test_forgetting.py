"""Members that are gone: who counts them, for how long, and how they are forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def status(node: Node) -> dict[str, str]:
    """What `basefs status` prints, by the name in front."""
    return dict(line.split("\t", 1) for line in node.basefs("status", NAME).splitlines())


def names(node: Node) -> set[str]:
    """The members that a node lists."""
    return {row["name"] for row in ask(node, "members")}


def test_a_member_counts_until_it_leaves_or_is_forgotten(network: Callable[[int], NamespaceNetwork]) -> None:
    cluster = Cluster.start(network(3), profile="lan")
    one, two, three = cluster.nodes
    cluster.wait_until_equal(DEADLINE)
    (gone,) = (row["name"] for row in ask(three, "members") if row["own"])
    assert "is alive: stop it there first" in one.spawn("members", NAME, "--forget", gone).stderr
    assert "there is no member nobody" in one.spawn("members", NAME, "--forget", "nobody").stderr

    cluster.network.unplug(three)
    wait_until(lambda: f"{gone} failed" in status(one)["members"], DEADLINE, "Serf has lost it")
    # A restart of the others changes nothing: it is missed all the same.
    for node in (one, two):
        node.basefs("unmount", NAME)
    for node in (one, two):
        node.mount(NAME, "--owners", "--profile", "lan")
        wait_until(lambda node=node: f"{gone} " in status(node)["in step"], DEADLINE, "it is missed")  # type: ignore[misc]
    wait_until(lambda: status(one)["in step"].startswith("with 1 of 2; "), DEADLINE, "the others are in step")
    wait_until(lambda: status(two)["in step"].startswith("with 1 of 2; "), DEADLINE, "both say so")

    # No agent lists it, so each of them has to be told.
    for node in (one, two):
        node.basefs("members", NAME, "--forget", gone)
        wait_until(lambda node=node: status(node)["in step"] == "with 1 of 1", DEADLINE, "it does not count")  # type: ignore[misc]
        assert gone not in names(node) and three.address not in node.spawn("doctor", NAME).stdout

    # It was never stopped, and comes back as if nothing had been.
    cluster.network.plug_in(three)
    for node in cluster.nodes:
        wait_until(lambda node=node: status(node)["in step"] == "with 2 of 2", 2 * DEADLINE, "it is back")  # type: ignore[misc]
        assert status(node)["members"] == "3 of 3 alive"

    # A mount that waits has what the others have.
    three.basefs("unmount", NAME)
    (one.mountpoint / "news").write_text("x")
    three.mount(NAME, "--owners", "--profile", "lan", "--wait")
    assert (three.mountpoint / "news").read_text() == "x"

    # A member that leaves is not missed.
    three.basefs("unmount", NAME)
    wait_until(lambda: status(one)["in step"] == "with 1 of 1", DEADLINE, "it has left")
    assert three.address not in one.spawn("doctor", NAME).stdout


def test_the_others_forget_as_well(network: Callable[[int], NamespaceNetwork]) -> None:
    cluster = Cluster.start(network(3), profile="lan")
    one, two, three = cluster.nodes
    (gone,) = (row["name"] for row in ask(three, "members") if row["own"])
    (kept,) = (row["name"] for row in ask(one, "members") if row["own"])
    three.kill(NAME)
    for node in (one, two):
        wait_until(lambda node=node: f"{gone} failed" in status(node)["members"], DEADLINE, "it is lost")  # type: ignore[misc]
    two.basefs("members", NAME, "--forget", gone)
    for node in (one, two):
        wait_until(lambda node=node: gone not in names(node), DEADLINE, "it is forgotten")  # type: ignore[misc]

    # It says whom it has not caught up with, and stays mounted.
    two.basefs("unmount", NAME)
    cluster.network.unplug(two)
    done = two.spawn("mount", NAME, two.mountpoint, "-b", two.endpoint, "--wait", "--timeout", "1")
    assert done.returncode == 1 and "is mounted, and has not caught up with any member: " in done.stderr
    assert f"{kept} has not answered" in done.stderr and "unknown" not in done.stderr
    assert two.query("list")[0]["state"] == "mounted"
