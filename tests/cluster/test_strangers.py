"""Strangers, peers of another filesystem, and rubbish: they change nothing and break nothing, and the log tells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from basefs.log.entries import Action
from basefs.log.keys import SigningKey
from basefs.log.store import Store
from tests.support.cluster import NAME, Cluster, ask
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

SYNC_PORT = 18375

#: Sends 10 MB of random bytes to the sync port of the address given, in several connections, until it is turned away.
RUBBISH = f"""
import os, socket, sys
left = 10_000_000
while left > 0:
    try:
        with socket.create_connection((sys.argv[1], {SYNC_PORT}), timeout=60) as connection:
            while left > 0:
                left -= connection.send(os.urandom(65536))
    except OSError:
        left -= 65536
"""


#: Of the tests of this module, each of which has a stranger of its own.
STRANGERS = 3


@pytest.fixture
def honest(shared: Callable[..., Cluster]) -> Iterator[tuple[Cluster, Node]]:
    """Two honest nodes that no test changes, and a machine that they have never met."""
    cluster = shared(2, strangers=STRANGERS)
    stranger = next(node for node in cluster.network.nodes[2:] if not node.base.exists())
    stranger.base.mkdir()
    yield cluster, stranger
    stranger.clean_up()


def _facts(cluster: Cluster) -> list[tuple[str, int]]:
    return [(row["root_hash"], row["entries"]) for row in (ask(node, "summary") for node in cluster.nodes)]


def _rows_of(node: Node, other: Node) -> list[dict[str, Any]]:
    """The members at the address of another node."""
    return [row for row in ask(node, "members") if row["address"] == other.endpoint]


def _still_works(cluster: Cluster, text: str) -> None:
    (cluster.nodes[0].mountpoint / "honest").write_text(text)
    path = cluster.nodes[1].mountpoint / "honest"
    wait_until(lambda: path.read_text() == text, DEADLINE, "honest nodes converge")


def test_a_stranger_without_a_granted_key_changes_nothing(honest: tuple[Cluster, Node]) -> None:
    cluster, stranger = honest
    _still_works(cluster, "before")
    cluster.wait_until_equal(DEADLINE)
    first = cluster.nodes[0]
    # The stranger has everything, and its own program that does not ask for permission.
    stranger.basefs("get", NAME, first.endpoint)
    key = SigningKey.load(stranger.home / "key")
    _forge(stranger.home / "fs" / NAME / "log.db", key)
    before = _facts(cluster)
    assert stranger.summary(NAME)["entries"] == before[0][1] + 1

    stranger.mount(NAME, "-j", first.endpoint)
    reason = f"key {key.fingerprint.hex()[:12]} is granted nowhere"
    wait_until(
        lambda: any(reason in node.log(NAME) and stranger.address in node.log(NAME) for node in cluster.nodes),
        DEADLINE,
        "an honest node's log says who was turned away and why",
    )
    assert _facts(cluster) == before
    assert not (first.mountpoint / "forged").exists()
    with pytest.raises(PermissionError):
        (stranger.mountpoint / "written").write_text("by a stranger")
    _still_works(cluster, "after")


def _forge(log: Path, key: SigningKey) -> None:
    """Append a file by a key that nobody granted, which `Replica` would refuse."""
    store = Store(log)
    root = store.database.meta("identity")
    assert root is not None
    placed = store.place(key.sign(root, 0, Action.WRITE, b"forged"))
    assert placed is not None
    with store.transaction():
        store.insert(placed, now=0.0)
    store.close()


def test_a_peer_of_another_filesystem_is_told_so(honest: tuple[Cluster, Node]) -> None:
    cluster, other = honest
    _still_works(cluster, "before")
    cluster.wait_until_equal(DEADLINE)
    before = _facts(cluster)
    first = cluster.nodes[0]
    other.basefs("genkey")
    other.basefs("bootstrap", "other", "--open")
    other.mount("other", "-j", first.endpoint)
    (other.mountpoint / "foreign").write_text("file")
    identity = next(row["identity"] for row in other.query("list"))
    # As a member of the same Serf cluster it is left alone ...
    wait_until(lambda: bool(_rows_of(first, other)), DEADLINE, "the stranger is in the Serf cluster")
    assert [row["same_filesystem"] for row in _rows_of(first, other)] == [False]
    # ... and over the sync protocol it is told why.
    done = _sync_with(other, other.home / "fs" / "other", first.address)
    assert "WRONG_FILESYSTEM" in done.stdout
    wait_until(
        lambda: other.address in first.log(NAME) and "wrong filesystem" in first.log(NAME),
        DEADLINE,
        "the log says who was turned away and why",
    )
    refused = other.spawn("get", "copy", first.endpoint, "--id", identity)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert not (other.home / "fs" / "copy").exists()
    assert _facts(cluster) == before
    assert not (first.mountpoint / "foreign").exists()
    _still_works(cluster, "after")


def _sync_with(node: Node, log: Path, address: str) -> subprocess.CompletedProcess[str]:
    """Run the sync protocol from a copy of a log, on a node, with an address; prints how the session ended."""
    copy = log.with_name("copy-of-the-log")
    shutil.copytree(log, copy)
    program = (
        "import asyncio, pathlib, sys; from basefs.replica.replica import Replica; "
        "from basefs.sync.net.transport import sync_with; "
        "replica = Replica(pathlib.Path(sys.argv[1])); "
        f"print(asyncio.run(sync_with(replica, sys.argv[2], {SYNC_PORT})).reason.name)"
    )
    command = [*node.prefix(), sys.executable, "-c", program, str(copy), address]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE)
    shutil.rmtree(copy)
    return done


def test_random_bytes_on_the_sync_port_break_nothing(honest: tuple[Cluster, Node]) -> None:
    cluster, vandal = honest
    _still_works(cluster, "before")
    cluster.wait_until_equal(DEADLINE)
    before = _facts(cluster)
    first = cluster.nodes[0]
    daemon = first.daemon(NAME)
    command = [*vandal.prefix(), sys.executable, "-c", RUBBISH, first.address]
    subprocess.run(command, check=True, timeout=2 * DEADLINE)
    assert first.daemon(NAME) == daemon
    os.kill(daemon, 0)
    assert _facts(cluster) == before
    wait_until(
        lambda: vandal.address in first.log(NAME) and "rubbish" in first.log(NAME),
        DEADLINE,
        "the log says who was turned away and why",
    )
    assert "Traceback" not in first.log(NAME)
    _still_works(cluster, "after")
