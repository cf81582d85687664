"""A node that keeps room on its disk: what others send waits, and all is fetched once there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.helpers import noise
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

MB = 10**6
LARGE = noise(1, 3 * MB)


def status(node: Node) -> dict[str, str]:
    """What `basefs status` prints, by the name in front."""
    return dict(line.split("\t", 1) for line in node.basefs("status", NAME).splitlines())


def has(node: Node, name: str, content: bytes) -> bool:
    """Whether a file has come to a node."""
    file = node.mountpoint / name
    return file.exists() and file.read_bytes() == content


@pytest.mark.logs("disk full|cannot store|cannot sync")
def test_what_others_send_waits_for_room_and_is_fetched_without_help(
    network: Callable[[int], NamespaceNetwork],
) -> None:
    net = network(2)
    one, two = net.nodes
    two.home.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "basefs-test", two.home], check=True)
    try:
        (two.home / "config").write_text("[basefs]\nmin_free = 30M\n")
        ballast = two.home / "ballast"
        cluster = Cluster.start(net)
        cluster.wait_until_equal(DEADLINE)
        ballast.write_bytes(bytes(40 * MB))
        (one.mountpoint / "large").write_bytes(LARGE)
        (one.mountpoint / "directory").mkdir()
        (one.mountpoint / "small").write_bytes(b"small")

        wait_until(lambda: "no room: its disk is full" in status(two)["state"], DEADLINE, "two takes nothing")
        assert "min_free is reached" in status(two)["contents"] and "is reached" not in status(one)["contents"]
        assert not (two.mountpoint / "directory").exists(), "nor entries"
        doctor = two.spawn("doctor", NAME).stdout
        assert "takes no contents of other nodes: min_free is reached" in doctor and f"{two.home}/config" in doctor
        # Nobody calls it in step.
        (name,) = (row["name"] for row in ask(one, "members") if not row["own"])
        wait_until(lambda: "(disk full there)" in status(one)["in step"], DEADLINE, "one knows why")
        assert status(one)["in step"].startswith("with 0 of 1; ") and " behind for " in status(one)["in step"]
        assert f"{name} has no room" in one.spawn("doctor", NAME).stdout
        assert "with 0 of 1" in status(two)["in step"] and " ahead for " in status(two)["in step"]
        # And the node itself can write, which the other one gets.
        (two.mountpoint / "own").write_bytes(b"own")
        wait_until(lambda: has(one, "own", b"own"), DEADLINE, "what it writes travels")
        before = sum(row["received"] for row in ask(two, "members") if not row["own"])
        assert before < MB, "the content was not fetched to be thrown away"

        ballast.unlink()
        wait_until(lambda: has(two, "large", LARGE) and has(two, "small", b"small"), DEADLINE, "they are fetched")
        cluster.wait_until_equal(DEADLINE)
        assert "incomplete" not in status(two)["contents"] and "is reached" not in status(two)["contents"]
        two.basefs("unmount", NAME)
    finally:
        subprocess.run(["umount", "-l", two.home], check=True)


def test_a_log_stops_at_its_size_with_a_content_on_its_way(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(2)
    one, two = net.nodes
    two.home.mkdir(parents=True)
    (two.home / "config").write_text("[basefs]\nmax_log_bytes = 2M\n")
    cluster = Cluster.start(net)
    cluster.wait_until_equal(DEADLINE)
    content = noise(2, 30 * MB)
    (one.mountpoint / "large").write_bytes(content)
    wait_until(lambda: "\tno room\t" in two.basefs("blocks", NAME), DEADLINE, "the content waits")
    (one.mountpoint / "later").mkdir()
    wait_until((two.mountpoint / "later").is_dir, DEADLINE, "entries go on")
    log = sum(file.stat().st_size for file in (two.home / "fs" / NAME).glob("log.db*"))
    assert log < 20 * MB, "by a few MB more, and not by all of it"
    assert "max_log_bytes is reached" in status(two)["contents"]
    # The content is nowhere else.
    (name,) = (row["name"] for row in ask(one, "members") if not row["own"])
    lacks = f"no other machine has confirmed that it has all of {NAME}: {name} lacks 1 content, for"
    assert lacks in one.spawn("unmount", NAME).stderr
    assert lacks in one.spawn("remove", NAME).stderr
    one.mount(NAME, "--owners", "--profile", "local")
    two.basefs("unmount", NAME)
    (two.home / "config").unlink()
    two.mount(NAME, "--owners", "--profile", "local", "--max-log-bytes", "1G", "--min-free", "1k")
    wait_until(lambda: has(two, "large", content), DEADLINE, "the rest is fetched")
    assert "is reached" not in status(two)["contents"]
