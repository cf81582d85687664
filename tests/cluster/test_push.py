"""Sessions that stay open: news arrives before gossip would have brought it, and also where no session brings it."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def _standing(node: Node) -> list[str]:
    return list(ask(node, "network")["standing"])


def _sessions_shown(node: Node) -> list[str]:
    """The members with which a session stands, as listed."""
    return [row["address"] for row in ask(node, "members") if row["push"]]


def _sent(node: Node) -> int:
    """Gossip events that a node has handed to Serf."""
    return int(ask(node, "network")["sent"])


def test_news_arrives_before_anything_is_gossiped(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(3)
    writer, *others = cluster.nodes
    wait_until(lambda: all(map(_standing, cluster.nodes)), DEADLINE, "sessions stand")
    pushed = 0
    # Serf's own timing, or a periodic session, may be quicker once; not every time.
    for number in range(10):
        before = _sent(writer)
        (writer.mountpoint / f"file{number}").write_text(f"news {number}")
        for node in others:
            wait_until((node.mountpoint / f"file{number}").exists, DEADLINE, f"{node.address} has file{number}")
        pushed += _sent(writer) == before
    assert pushed >= 5
    for node in others:
        assert (node.mountpoint / "file9").read_text() == "news 9"


def test_a_large_file_is_fetched_where_the_session_tells_of_it(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(3)
    writer, *others = cluster.nodes
    wait_until(lambda: all(map(_standing, cluster.nodes)), DEADLINE, "sessions stand")
    content = bytes(range(256)) * 4096
    (writer.mountpoint / "large").write_bytes(content)
    for node in others:
        path = node.mountpoint / "large"
        wait_until(lambda path=path: path.exists() and path.read_bytes() == content, DEADLINE, "it is there")  # type: ignore[misc]


def test_without_push_it_is_gossip_that_brings_news(network: Callable[[int], NamespaceNetwork], tmp_path: Path) -> None:
    net = network(2)
    cluster = Cluster.start(net, options=("--no-push",))
    one, two = cluster.nodes
    before = _sent(one)
    (one.mountpoint / "file").write_text("news")
    wait_until((two.mountpoint / "file").exists, DEADLINE, "it arrived")
    wait_until(lambda: _sent(one) > before, DEADLINE, "it was gossiped")
    assert not _standing(one) and not _standing(two)


def test_without_push_and_gossip_a_periodic_sync_brings_news(network: Callable[[int], NamespaceNetwork]) -> None:
    net = network(2)
    for node in net.nodes:
        node.home.mkdir(parents=True)
        (node.home / "config").write_text("[basefs]\ngossip = no\nfull_sync_interval = 1\n")
    cluster = Cluster.start(net, options=("--no-push",))
    one, two = cluster.nodes
    before = _sent(one)
    (one.mountpoint / "file").write_text("news")
    wait_until((two.mountpoint / "file").exists, DEADLINE, "it arrived")
    assert _sent(one) == before


def test_a_session_that_breaks_is_made_again(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(3)
    one, two, three = cluster.nodes
    wait_until(lambda: all(map(_standing, cluster.nodes)), DEADLINE, "sessions stand")
    two.basefs("unmount", NAME)
    wait_until(lambda: len(_standing(one)) == 1 and len(_standing(three)) == 1, DEADLINE, "its sessions ended")
    two.mount(NAME, "--owners")
    wait_until(lambda: two.endpoint in _sessions_shown(one), DEADLINE, "it has sessions again")
    # Serf may still believe that it has left.
    (row,) = (row for row in ask(one, "members") if row["address"] == two.endpoint)
    assert row["status"] == "alive" and row["lag"]["in_step"]
    wait_until(lambda: len(_standing(two)) == 2, DEADLINE, "it has sessions with all")


def test_members_tell_of_the_sessions_with_them(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(3)
    one, *_ = cluster.nodes
    wait_until(lambda: len(_standing(one)) == 2, DEADLINE, "sessions stand")
    others = [row for row in one.query("members", NAME) if not row["own"]]
    assert len(others) == 2
    assert all(row["push"] and row["status"] == "alive" and row["same_filesystem"] for row in others)
    wait_until(
        lambda: all(
            row["lag"] and row["lag"]["in_step"] and row["sent"] and row["received"]
            for row in ask(one, "members")
            if not row["own"]
        ),
        DEADLINE,
        "they were compared",
    )
    printed = one.basefs("members", NAME)
    assert printed.count(" s ago\tin step\tyes\t") == 2 and printed.count("\tthis node") == 1


def test_what_no_peer_acknowledges_is_gossiped(shared: Callable[[int], Cluster]) -> None:
    """The last test of this module, since it cuts off the sessions of a node for good."""
    cluster = shared(3)
    writer, *others = cluster.nodes
    wait_until(lambda: all(map(_standing, cluster.nodes)), DEADLINE, "sessions stand")
    # Nothing goes over sessions any more, neither those that stand nor new ones; Serf's packets do.
    drop = ("-p", "tcp", "-m", "multiport", "--ports", str(writer.port + 1), "-j", "DROP")
    for chain in ("INPUT", "OUTPUT"):
        subprocess.run([*writer.prefix(), "iptables", "-A", chain, *drop], check=True)
    assert _standing(writer)
    (writer.mountpoint / "small").write_text("news")
    for node in others:
        wait_until((node.mountpoint / "small").exists, DEADLINE, f"{node.address} has it")
        assert (node.mountpoint / "small").read_text() == "news"
    # More than is gossiped without a need; not so much that Serf could not carry it.
    content = random.Random(1).randbytes(14 * 480)
    (writer.mountpoint / "larger").write_bytes(content)
    for node in others:
        path = node.mountpoint / "larger"
        wait_until(lambda path=path: path.exists() and path.read_bytes() == content, DEADLINE, f"{node.address} has it")  # type: ignore[misc]
