"""What `basefs members`, `status` and `doctor` tell where something is wrong with a node."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Seconds in which a status tells of a member that does not answer.
ANSWER = 2.0
#: Two keys for Serf, as `serf keygen` prints them.
KEYS = ("cg8StVXbQJ0gPvMd9o7yrg==", "HvY8ubRZMgafUOWvrOadwOckVa1wN3QWAo46FVKbVN8=")


def row_of(node: Node, other: Node) -> dict[str, Any]:
    """What a node tells of another one."""
    (row,) = (row for row in ask(node, "members") if row["address"] == other.endpoint)
    return dict(row)


def in_step(node: Node) -> str:
    """The line of `basefs status` that says so."""
    return next(line for line in node.basefs("status", NAME).splitlines() if line.startswith("in step"))


def test_what_is_told_of_a_node_during_a_cut_and_of_an_agent_that_dies(cluster: Cluster) -> None:
    one, two, three = cluster.nodes
    cluster.wait_until_equal(DEADLINE)
    wait_until(lambda: "with 2 of 2" in in_step(one), DEADLINE, "all in step")

    # Serf does not notice on the node that is cut off: its own packets do not leave.
    cluster.network.unplug(three)
    wait_until(lambda: "with 0 of 2; " in in_step(three), 2 * ANSWER, "nobody answers it")
    wait_until(lambda: "1 of 3 alive; " in three.basefs("status", NAME), 2 * ANSWER, "nor is anybody alive for it")
    told = three.basefs("members", NAME)
    assert told.count("\tunknown\t") == 2 and told.count("\tsilent\t") == 2
    assert "with 1 of 2; " in in_step(one), "the others notice as soon"
    assert not row_of(one, three)["lag"]["in_step"]
    wait_until(lambda: row_of(one, two)["lag"]["in_step"], DEADLINE, "the two that reach each other are in step")
    name = row_of(one, three)["name"]
    (one.mountpoint / "news").write_text("x")
    wait_until(lambda: f"{name} 1 not confirmed for " in in_step(one), DEADLINE, "it lacks the news")
    assert "with 1 of 2; " in in_step(one), "a member that does not answer counts"
    cluster.network.plug_in(three)
    wait_until(lambda: "with 2 of 2" in in_step(three), DEADLINE, "all in step again")

    pid = ask(one, "network")["serf_pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ask(one, "network")["serf_pid"] not in (None, pid), DEADLINE, "another agent")
    wait_until(lambda: ask(one, "network")["serf_connected"], DEADLINE, "that answers")
    wait_until(lambda: cluster.alive(one) == 3, DEADLINE, "all members")
    assert one.spawn("members", NAME).stderr == ""
    assert "was restarted 1 time\t" in one.spawn("doctor", NAME).stdout


@pytest.mark.parametrize("keys", [(None, KEYS[1]), KEYS], ids=["no key", "another key"])
def test_a_node_with_the_wrong_key_is_told_so(
    network: Callable[[int], NamespaceNetwork], keys: tuple[str | None, str]
) -> None:
    one, two = network(2).nodes
    options = []
    for node, key in zip((one, two), keys, strict=True):
        node.home.mkdir(parents=True)
        (node.home / "secret").write_text(key or "")
        options.append(("--encrypt-key-file", str(node.home / "secret")) if key else ())
    one.basefs("genkey")
    one.basefs("bootstrap", NAME, "-i", one.endpoint, "--open")
    one.mount(NAME, *options[0])
    two.basefs("get", NAME, one.endpoint)
    two.mount(NAME, *options[1])
    wait_until(lambda: ask(two, "network")["serf_trouble"], DEADLINE, "the first try to join")
    said = two.spawn("members", NAME)
    assert said.stderr.startswith("nobody else has joined: ") and said.stdout.count("\n") == 1
    assert "--encrypt-key-file" in two.spawn("doctor", NAME).stdout
    assert ask(one, "members")[0]["own"] and len(ask(one, "members")) == 1
