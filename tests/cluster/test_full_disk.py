"""A disk that is full is called that, where it is and elsewhere, and nothing is sent there until it has room."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.namespaces import NamespaceNetwork, in_namespace
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.scrape import scrape, value
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

METRICS = 9464
#: Bytes that asking for the members costs, session and greeting included.
QUESTION = 500


def status(node: Node) -> dict[str, str]:
    """What `basefs status` prints, by the name in front."""
    return dict(line.split("\t", 1) for line in node.basefs("status", NAME).splitlines())


def is_full(node: Node) -> bool:
    """What the metrics of a node say of its disk."""
    assert node.namespace is not None
    with in_namespace(node.namespace):
        return value(scrape(METRICS), "basefs_disk_full") == 1


def sent(node: Node) -> int:
    """Bytes that a node has sent to the only other one."""
    return sum(row["sent"] for row in ask(node, "members") if not row["own"])


@pytest.mark.logs("full|no room|cannot publish|cannot store|cannot sync")
def test_a_full_disk_shows_on_both_sides_and_is_sent_nothing(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(2)
    one, two = net.nodes
    two.home.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "basefs-test", two.home], check=True)
    try:
        cluster = Cluster.start(net, options=("--metrics", f"127.0.0.1:{METRICS}"))
        (one.mountpoint / "before").write_text("x")
        cluster.wait_until_equal(DEADLINE)
        (name,) = (row["name"] for row in ask(one, "members") if not row["own"])
        ballast = two.home / "ballast"
        with pytest.raises(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        for number in range(3):
            (one.mountpoint / f"file{number}").write_bytes(random.Random(number).randbytes(27_000))

        wait_until(lambda: f"{name} 3 behind for " in status(one)["in step"], DEADLINE, "one says what two lacks")
        wait_until(lambda: "(disk full there)" in status(one)["in step"], DEADLINE, "and why")
        assert "no room: its disk is full, and what does not fit waits until there is room" in status(two)["state"]
        assert status(two)["in step"].startswith("with 0 of 1; ") and "3 ahead for" in status(two)["in step"]
        assert "\tdisk full there\n" in one.basefs("members", NAME)
        assert "\tthis node: its disk is full\n" in two.basefs("members", NAME)
        assert (is_full(one), is_full(two)) == (False, True)
        # What is here is still read, and still fetched by one that has nothing yet.
        assert (two.mountpoint / "before").read_text() == "x"
        three = Node(two.base / "3", two.address, two.port + 10, two.namespace)
        three.basefs("get", NAME, two.endpoint)
        three.mount(NAME, "--single-node")
        assert (three.mountpoint / "before").read_text() == "x"
        three.basefs("unmount", NAME)
        doctor = one.spawn("doctor", NAME).stdout
        assert f"{name} has no room: its disk is full" in doctor
        there = two.spawn("doctor", NAME).stdout
        assert f"the disk of {two.home} is full" in there and there.count("\tdisk\t") == 1
        assert "internal error" not in doctor + there

        wait_until(lambda: not ask(one, "network")["standing"], DEADLINE, "no session stands")
        before = sent(one)
        for question in range(1, 16):
            assert sent(one) - before < question * QUESTION

        ballast.unlink()
        cluster.wait_until_equal(DEADLINE)
        for node in net.nodes:
            wait_until(lambda node=node: status(node)["in step"] == "with 1 of 1", DEADLINE, "in step again")  # type: ignore[misc]
        assert "no room" not in status(two)["state"]
        wait_until(lambda: not is_full(two), DEADLINE, "the metrics say so")
        two.basefs("unmount", NAME)
    finally:
        subprocess.run(["umount", "-l", two.home], check=True)
