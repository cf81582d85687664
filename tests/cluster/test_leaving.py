"""Unmounting where there are others: it is quick, polite, and loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Seconds that the unmount of an idle node may take, beyond the start of a command.
PROMPT = 1.0
ROUNDS = 3


def took(node: Node, *arguments: str) -> float:
    """Seconds of a command."""
    began = time.monotonic()
    node.spawn(*arguments)
    return time.monotonic() - began


def unmount_seconds(node: Node) -> float:
    """Seconds to unmount, without what this machine needs now to start a command that finds nothing to do."""
    start = took(node, "unmount", "nothing")
    return took(node, "unmount", NAME) - start


def is_in_step_with_all(node: Node) -> bool:
    """Whether all others have told a node that they have the same."""
    return all(row["own"] or row["lag"]["in_step"] for row in ask(node, "members"))


def statuses_until_left(node: Node, name: str) -> set[str]:
    """What a node calls another one, until it has left."""
    seen = set()

    def has_left() -> bool:
        (status,) = (row["status"] for row in ask(node, "members") if row["name"] == name)
        seen.add(status)
        return bool(status == "left")

    wait_until(has_left, DEADLINE, f"{name} has left")
    return seen


def test_an_idle_node_unmounts_at_once_and_is_shown_as_left(
    network: Callable[[int], NamespaceNetwork], record_property: Callable[[str, object], None]
) -> None:
    cluster = Cluster.start(network(3))
    one, two, three = cluster.nodes
    (name,) = (row["name"] for row in ask(three, "members") if row["own"])
    seconds = []
    for number in range(ROUNDS):
        cluster.wait_until_equal(DEADLINE)
        cluster.wait_for_sessions()
        wait_until(lambda: all(map(is_in_step_with_all, cluster.nodes)), DEADLINE, "all have told that they have all")
        seconds.append(unmount_seconds(three))
        assert three.query("list")[0]["state"] != "mounted"
        seen: set[str] = set()
        for node in (one, two):
            seen |= statuses_until_left(node, name)
        assert "failed" not in seen, f"round {number}"
        three.mount(NAME, "--owners")
        cluster.wait_for_members()
    record_property("unmount_seconds", [round(each, 2) for each in seconds])
    assert min(seconds) < PROMPT, seconds
    # The next daemon has waited for the agent of the last one, whose ports it needs.
    assert "Serf agent failed" not in three.log(NAME)


def test_what_was_saved_a_moment_before_is_elsewhere(network: Callable[[int], NamespaceNetwork]) -> None:
    cluster = Cluster.start(network(2))
    one, two = cluster.nodes
    cluster.wait_for_sessions()
    content = bytes(range(256)) * 4096
    for size in (10, len(content)):
        (two.mountpoint / f"last{size}").write_bytes(content[:size])
        two.basefs("unmount", NAME)
        assert (one.mountpoint / f"last{size}").read_bytes() == content[:size], "it was there before unmount returned"
        # At once: the node of before has not left yet.
        two.mount(NAME, "--owners")
        cluster.wait_for_members()
    assert "Serf agent failed" not in two.log(NAME)

    assert two.spawn("unmount", NAME).stderr == ""
    assert two.spawn("remove", NAME, "--yes").stderr == "", "another machine has all of it"
    assert not list((two.home / "fs").iterdir())


def test_what_only_a_node_alone_has(network: Callable[[int], NamespaceNetwork]) -> None:
    """Serf knows nothing of a member that was away when it began; one that has left does not get what is new."""
    cluster = Cluster.start(network(2))
    one, two = cluster.nodes
    nobody = f"no other machine has confirmed that it has all of {NAME}"
    cluster.wait_until_equal(DEADLINE)
    wait_until(lambda: is_in_step_with_all(one), DEADLINE, "the other one has told that it has all")
    (name,) = (row["name"] for row in ask(one, "members") if not row["own"])
    two.kill(NAME)
    assert nobody not in one.spawn("unmount", NAME).stderr
    one.mount(NAME, "--owners")
    assert nobody not in one.spawn("unmount", NAME).stderr, "nothing was added"
    one.mount(NAME, "--owners")
    (one.mountpoint / "alone").write_bytes(b"1")
    for command in ("unmount", "remove"):
        assert f"{nobody}: {name} does not answer\n" in one.spawn(command, NAME).stderr

    one.mount(NAME, "--owners")
    two.mount(NAME, "--owners")
    cluster.wait_until_equal(DEADLINE)
    two.basefs("unmount", NAME)
    statuses_until_left(one, name)
    (one.mountpoint / "again").write_bytes(b"2")
    for command in ("unmount", "remove"):
        assert nobody in one.spawn(command, NAME).stderr

    two.mount(NAME, "--owners")
    one.mount(NAME, "--owners")
    cluster.wait_until_equal(DEADLINE)
    wait_until(lambda: is_in_step_with_all(one), DEADLINE, "the other one has told that it has all")
    assert nobody not in one.spawn("unmount", NAME).stderr
    one.basefs("mount", NAME, one.mountpoint, "--single-node")
    (one.mountpoint / "without a network").write_bytes(b"3")
    for command in ("unmount", "remove"):
        assert nobody in one.spawn(command, NAME).stderr
