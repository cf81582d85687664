"""`basefs doctor` and `basefs status` where there are others: blocked ports, wrong clocks, nodes that differ."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Run by the interpreter of each process of a node: its clock is ahead.
_AHEAD = """import time
_now, _now_ns = time.time, time.time_ns
time.time = lambda: _now() + {seconds}
time.time_ns = lambda: _now_ns() + {seconds} * 10**9
"""


def doctor(node: Node) -> list[tuple[str, str, str]]:
    """Severity, subject and words of what it finds, but for what the machine's clock says of itself."""
    done = node.spawn("doctor", NAME, "--json")
    assert "Traceback" not in done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.returncode == any(row["severity"] == "problem" for row in rows)
    found = [(row["severity"], row["subject"], f"{row['what']} | {row['remedy']}") for row in rows]
    return [row for row in found if "the kernel says" not in row[2]]


def block(node: Node, *rule: str) -> None:
    """Have a node's firewall drop what comes in."""
    command = [*node.prefix(), "iptables", "-A", "INPUT", "-i", "eth0", *rule, "-j", "DROP"]
    subprocess.run(command, check=True, capture_output=True)


def test_a_cluster_that_is_well_and_what_a_firewall_does(cluster: Cluster) -> None:
    one, two, three = cluster.nodes
    cluster.wait_until_equal(DEADLINE)

    def wait_to_find(what: str, found: Callable[[list[tuple[str, str, str]]], bool]) -> None:
        # On a busy machine an answer may come too late, so that more is found than there is.
        wait_until(lambda: found(doctor(one)), DEADLINE, what)

    def is_one_port(rows: list[tuple[str, str, str]]) -> bool:
        of_two = [row for row in rows if two.endpoint in row[2]]
        return [row[:2] for row in of_two] == [("problem", "peers")] and f"not on {two.port + 1}/tcp |" in of_two[0][2]

    wait_to_find("that all is well", lambda rows: rows == [])
    block(two, "-p", "tcp", "--dport", str(two.port + 1))
    wait_to_find("one port of one node", is_one_port)
    block(three, "-p", "udp")
    wait_to_find(
        "a port of Serf",
        lambda rows: any(f"{three.endpoint}, a known peer" in said and "/udp" in said for _, _, said in rows),
    )
    # A node of which nothing is heard is a note; all of them are a problem.
    block(two)
    wait_to_find("a node", lambda rows: any(row[0] == "note" and two.endpoint in row[2] for row in rows))
    block(one)
    wait_to_find("all nodes", lambda rows: any("none of the 2 known peers" in row[2] for row in rows))


def test_status_tells_who_is_there_and_with_whom_it_is_in_step(network: Callable[[int], NamespaceNetwork]) -> None:
    cluster = Cluster.start(network(3), profile="lan")
    one, two, three = cluster.nodes

    def told(node: Node) -> dict[str, str]:
        return dict(line.split("\t", 1) for line in node.basefs("status", NAME).splitlines())

    wait_until(lambda: told(one)["in step"] == "with 2 of 2", DEADLINE, "all in step")
    assert told(one)["members"] == "3 of 3 alive"
    (one.mountpoint / "news").write_text("x")
    wait_until(lambda: told(two)["last change"].startswith("write of /news by "), DEADLINE, "the news")
    wait_until(lambda: told(one)["in step"] == "with 2 of 2", DEADLINE, "all in step again")
    # News that is on its way for less than a second does not show in these words.
    cluster.wait_until_equal(DEADLINE)
    equal = time.monotonic()

    def has_told() -> bool:
        since = time.monotonic() - equal
        (heard,) = (row["heard"] for row in ask(one, "members") if row["address"] == three.endpoint)
        return heard < since

    wait_until(has_told, DEADLINE, "the third one's word that it has the news")
    cluster.network.unplug(three)
    wait_until(lambda: told(one)["members"].startswith("2 of 3 alive; "), DEADLINE, "one that failed")
    # It counts until it is forgotten, and nobody knows what it has written since.
    (gone,) = (row["name"] for row in ask(one, "members") if row["address"] == three.endpoint)
    wait_until(lambda: told(one)["in step"] == f"with 1 of 2; {gone} unknown", DEADLINE, "the other one in step")
    failed = f"2 of 3 alive; {gone} failed (heard "
    wait_until(lambda: told(one)["members"].startswith(failed), DEADLINE, "Serf has lost it")
    one.basefs("members", NAME, "--forget", gone)
    wait_until(lambda: told(one)["in step"] == "with 1 of 1", DEADLINE, "without the forgotten one")
    assert told(one)["members"] == "2 of 2 alive"


def test_clocks_that_are_far_off(network: Callable[[int], NamespaceNetwork], monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(3)
    wrong = net.nodes[2]
    cluster = Cluster.start(net)
    wait_until(lambda: "clock" not in {row[1] for row in doctor(cluster.nodes[0])}, DEADLINE, "clocks that agree")
    # The third one again, with another clock.
    site = wrong.base / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_AHEAD.format(seconds=3600))
    wrong.basefs("unmount", NAME)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site), prepend=":")
        wrong.mount(NAME, "--owners")
    cluster.wait_for_members()
    name = next(member["name"] for member in ask(wrong, "members") if member["own"])

    def clocks(node: Node) -> list[str]:
        return [said for severity, subject, said in doctor(node) if (severity, subject) == ("problem", "clock")]

    def tells(node: Node, pattern: str) -> bool:
        found = clocks(node)
        return len(found) == 1 and re.search(pattern, found[0]) is not None

    # Any of them may answer too late now and then.
    wait_until(lambda: tells(cluster.nodes[0], f"^the clock of {name} is 3[56]"), DEADLINE, "the wrong clock")
    own = "this machine's clock is .* ahead of 2 of 2 other nodes"
    wait_until(lambda: tells(wrong, own), DEADLINE, "its own clock")


@pytest.mark.parametrize("seconds", [20 * 365 * 86_400, -20 * 365 * 86_400], ids=["ahead", "behind"])
def test_a_member_of_a_closed_filesystem_whose_clock_is_decades_off(
    network: Callable[[int], NamespaceNetwork], monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    cluster = Cluster.start(network(2), closed=True)
    right, wrong = cluster.nodes
    site = wrong.base / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_AHEAD.format(seconds=seconds))
    wrong.basefs("unmount", NAME)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site), prepend=":")
        wrong.mount(NAME, "--owners")
        cluster.wait_for_members()
        for node, other in ((right, wrong), (wrong, right)):
            name = f"of {node.address}"
            (node.mountpoint / name).write_text(name)
            wait_until((other.mountpoint / name).exists, DEADLINE, f"what is written at {node.address} arrives")
        # By the clock of a command that greets the other member as well.
        found = doctor(wrong)
    assert {subject for _, subject, _ in found} == {"clock"}
    assert {subject for _, subject, _ in doctor(right)} == {"clock"}
