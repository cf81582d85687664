"""A closed filesystem: strangers read nothing, members come and go with their keys.  Observers: test_capture.py."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

SYNC_PORT = 18375

#: Reads the filesystem as nodes did before there was TLS, and prints every byte that comes back.
PLAIN = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {SYNC_PORT}), timeout=60) as connection:
    connection.sendall(b"HASH 3 " + b"A" * 38 + b" " + b"A" * 38 + b" 0 0 0 0\\nPATH_REQ /\\n")
    while data := connection.recv(65536):
        sys.stdout.buffer.write(data)
"""

#: The same under TLS, with a key that nobody knows; prints how the session ended, and the plaintext that came.
UNDER_TLS = f"""
import asyncio, sys
from basefs.log.keys import SigningKey
from basefs.sync.net.connection import Connection
from basefs.sync.net.tls import Credentials
async def main():
    connection = await Connection.open(sys.argv[1], {SYNC_PORT}, Credentials(SigningKey.generate(), None))
    connection.write(b"HASH 3 " + b"A" * 38 + b" " + b"A" * 38 + b" 0 0 0 0\\n")
    while data := await connection.read(60.0):
        print("READ", data)
    print(connection.refused.reason.name)
asyncio.run(main())
"""


def as_stranger(node: Node, program: str, address: str | None) -> str:
    command = [*node.prefix(), sys.executable, "-c", program, str(address)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE).stdout


@pytest.fixture
def closed(network: Callable[[int], NamespaceNetwork]) -> Iterator[tuple[Cluster, Node]]:
    """Two members of a closed filesystem, and a node without a key."""
    whole = network(3)
    yield Cluster.start(whole, whole.nodes[:2], closed=True), whole.nodes[2]


@pytest.mark.logs("unknown key")
def test_a_closed_filesystem(closed: tuple[Cluster, Node]) -> None:
    cluster, other = closed
    first, second = cluster.nodes
    assert "closed: members only" in first.basefs("status", NAME)
    (first.mountpoint / "news").write_text("from the first")
    wait_until(lambda: (second.mountpoint / "news").exists(), DEADLINE, "members converge")
    # Strangers, in plain and under TLS.
    assert as_stranger(other, PLAIN, first.address).startswith("CLOSE NO tls ")
    assert as_stranger(other, UNDER_TLS, first.address) == "UNKNOWN_KEY\n"
    other.basefs("genkey")
    refused = other.spawn("get", NAME, first.endpoint)
    assert refused.returncode != 0 and "basefs invite" in refused.stderr
    assert refused.stderr.count("\n") == 1
    # A member fetches, and synchronises.
    first.basefs("grant", f"{NAME}:/", "third", other.home / "key.pub")
    other.basefs("get", NAME, first.endpoint)
    other.mount(NAME, "--owners")
    (other.mountpoint / "more").write_text("from the third")
    wait_until(lambda: (first.mountpoint / "more").exists(), DEADLINE, "the third node's change arrives")
    # A new gossip key by hand.  Sessions may be faster than gossip.
    for node in (second, other):
        wait_until(lambda node=node: gossip_sees(first, node), DEADLINE, "gossip knows it")  # type: ignore[misc]
    key = gossip_key(first)
    assert key == gossip_key(second) == gossip_key(other)
    assert first.basefs("rekey", NAME) == f"{NAME}: gossip has a new key\n"
    wait_until(
        lambda: key != gossip_key(first) == gossip_key(second) == gossip_key(other),
        DEADLINE,
        "all have the new gossip key",
    )
    for node in (second, other):
        wait_until(lambda node=node: gossip_sees(first, node), DEADLINE, "gossip goes on")  # type: ignore[misc]
    # Who is revoked is out, everywhere, while the others go on.
    members = [first, second]
    key = gossip_key(first)
    first.basefs("revoke", f"{NAME}:/", "third")
    wait_until(lambda: not any(standing_with(node, other) for node in members), DEADLINE, "its sessions end")
    wait_until(lambda: key != gossip_key(first) == gossip_key(second), DEADLINE, "members have a new gossip key")
    wait_until(
        lambda: gossip_key(first) == gossip_key(second) != gossip_key(other),
        DEADLINE,
        "a key of their own",
    )
    wait_until(lambda: gossip_sees(first, second), DEADLINE, "gossip goes on")
    wait_until(lambda: not gossip_sees(first, other), DEADLINE, "gossip loses the third node")
    (first.mountpoint / "secret").write_text("for members")
    wait_until(lambda: (second.mountpoint / "secret").exists(), DEADLINE, "members converge")
    wait_until(
        lambda: "not known there" in other.basefs("members", NAME), DEADLINE, "the third node sees why it is out"
    )
    wait_until(lambda: "turned away by " in other.basefs("status", NAME), DEADLINE, "its status says so")
    assert not (other.mountpoint / "secret").exists()
    with contextlib.suppress(OSError):
        other.basefs("unmount", NAME)


def gossip_key(node: Node) -> bytes:
    return node.gossip_key(NAME)


def gossip_sees(node: Node, other: Node) -> bool:
    found = {member["address"]: member["status"] for member in json.loads(node.basefs("members", NAME, "--json"))}
    return found.get(other.endpoint) in ("alive", "silent")


def standing_with(node: Node, other: Node) -> bool:
    return any(peer.startswith(f"{other.address}:") for peer in ask(node, "network")["standing"])


#: Seconds from the arrival of a revoke to the end of the sessions of its key.
_ENDED = 2.0


@pytest.mark.alone
@pytest.mark.logs("unknown key")
def test_who_is_expelled_is_out_within_seconds(network: Callable[[int], NamespaceNetwork]) -> None:
    cluster = Cluster.start(network(3), closed=True, profile="lan")
    took = [expel_and_let_in(cluster) for _ in range(3)]
    wait_until_all_are_in(cluster)
    assert min(took) <= _ENDED, f"seconds from the arrival of a revoke to the end of sessions: {took}"


def wait_until_all_are_in(cluster: Cluster) -> None:
    """Until the third node takes part in all that the second one does."""
    first, second, third = cluster.nodes
    wait_until(lambda: standing_with(second, third), DEADLINE, "sessions stand")
    wait_until(lambda: gossip_sees(second, third), DEADLINE, "gossip knows it")
    wait_until(lambda: gossip_key(first) == gossip_key(second) == gossip_key(third), DEADLINE, "one gossip key")


def expel_and_let_in(cluster: Cluster) -> float:
    """Have the first node expel the third and grant its key again.

    Returns the seconds from the arrival of the revoke at the second one to the end of its sessions with the third.
    """
    first, second, third = cluster.nodes
    wait_until_all_are_in(cluster)
    key, before = gossip_key(first), len(revokes(second))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(first.basefs, "expel", NAME, "node3")
        wait_until(
            lambda: not standing_with(second, third) and len(revokes(second)) > before, DEADLINE, "its sessions end"
        )
        took = time.time() - max(row["arrived"] for row in revokes(second))
        assert "is no member of cluster any more" in done.result()
    wait_until(
        lambda: key != gossip_key(first) == gossip_key(second) != gossip_key(third),
        DEADLINE,
        "a new gossip key",
    )
    wait_until(lambda: "turned away by " in third.basefs("status", NAME), DEADLINE, "its status says so")
    wait_until(lambda: "not known there" in third.basefs("members", NAME), DEADLINE, "and why")
    first.basefs("grant", f"{NAME}:/", "node3", third.home / "key.pub")
    return took


@pytest.mark.logs("unknown key")
def test_a_machine_that_was_expelled_counts_no_more_until_it_is_let_in_again(
    network: Callable[[int], NamespaceNetwork],
) -> None:
    cluster = Cluster.start(network(3), closed=True, profile="lan")
    first, second, third = cluster.nodes
    others = (first, second)
    for node in cluster.nodes:
        wait_until(lambda node=node: in_step(node) == "with 2 of 2", DEADLINE, "all are in step")  # type: ignore[misc]
    assert "its machine is forgotten once gossip has lost it" in first.basefs("expel", NAME, "node3")
    for node in others:
        wait_until(lambda node=node: in_step(node) == "with 1 of 1", DEADLINE, "it is forgotten")  # type: ignore[misc]
        assert third.endpoint not in {member["address"] for member in ask(node, "members")}
    # Also after a restart, when nobody has proved anything yet.
    first.basefs("unmount", NAME)
    first.mount(NAME, "--owners", "--profile", "lan")
    wait_until(lambda: in_step(first) == "with 1 of 1", DEADLINE, "it is not missed")
    # It has gone on, and its entries come when its key is valid again.
    first.basefs("grant", f"{NAME}:/", "node3", third.home / "key.pub")
    for node in cluster.nodes:
        wait_until(lambda node=node: in_step(node) == "with 2 of 2", DEADLINE, "it is back")  # type: ignore[misc]


def in_step(node: Node) -> str:
    """What its status says of the others."""
    return next(line for line in node.basefs("status", NAME).splitlines() if line.startswith("in step")).split("\t")[1]


def revokes(node: Node) -> list[dict[str, Any]]:
    """The revokes at `/` that have arrived at a node."""
    return [row for row in ask(node, "log", path="/") if row["action"] == "revoke"]
