"""Strangers and local users do not take what belongs to members: places, addresses, what only members read."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from basefs.gossip.members import PEERS_FILE
from basefs.log.hashes import ZERO_HASH, sha224
from basefs.log.interface import Digest
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import VERSION
from basefs.sync.wire.messages import Hash, PathReq
from tests.support.cluster import NAME, Cluster, ask
from tests.support.logs import check_daemons
from tests.support.namespaces import NamespaceNetwork, run_ip
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

SYNC_PORT = 18375
#: Changes of which the median is taken, and seconds by which idle connections must not hold one up: a node that has
#: no place asks again after seconds only.
CHANGES = 7
HELD_UP = 2.0
#: A user that owns nothing, and a Python that it may run.
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
#: The first line of somebody who has another log, and does not say of which filesystem it is.
GREETING = encode(Hash(VERSION, ZERO_HASH, Digest(sha224(b"another log"), 1), 0))

#: Asks the port at an address, and prints every byte that comes back, decoded where it is base64.
READ = f"""
import base64, socket, sys
with socket.create_connection((sys.argv[1], {SYNC_PORT}), timeout=60) as connection:
    connection.sendall(bytes.fromhex(sys.argv[2]))
    for line in connection.makefile("rb"):
        for token in line.split():
            try:
                print(base64.b64decode(token + b"=" * (-len(token) % 4)))
            except ValueError:
                print(token)
        if line.startswith((b"EOF", b"CLOSE")):
            break
"""

#: Breaks a rule in eight connections to an address at once.
RUBBISH = f"""
import socket, sys
lines = [socket.create_connection((sys.argv[1], {SYNC_PORT}), timeout=60) for _ in range(8)]
for line in lines:
    line.sendall(b"x\\n")
for line in lines:
    while line.recv(1000):
        pass
"""

#: Holds ten connections from each of some addresses to each of others: each is begun, and goes on a byte at a time.
IDLE = f"""
import socket, sys, time
sources, targets = sys.argv[1].split(","), sys.argv[2].split(",")
wanted, lines = [(source, target) for source in sources for target in targets for _ in range(10)], {{}}
while True:
    for number, (source, target) in enumerate(wanted):
        try:
            if number not in lines:
                lines[number] = socket.create_connection((target, {SYNC_PORT}), 10, (source, 0))
                lines[number].sendall(bytes.fromhex(sys.argv[3]))
                lines[number].setblocking(False)
            lines[number].send(b"P")
            while lines[number].recv(65536):
                pass
            lines.pop(number).close()
        except BlockingIOError:
            pass
        except OSError:
            if number in lines:
                lines.pop(number).close()
    print("there", flush=True)
    time.sleep(0.2)
"""

#: Prints who connects to an address, and when.
VICTIM = f"""
import socket, sys, time
with socket.create_server((sys.argv[1], {SYNC_PORT})) as server:
    print("ready", flush=True)
    while True:
        connection, (host, _) = server.accept()
        print(time.monotonic(), host, flush=True)
        connection.close()
"""


@pytest.fixture(scope="module", params=["open", "closed"])
def three(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Cluster, Node, bool]]:
    """Two nodes of a filesystem, a machine that has nothing to do with it, and whether the filesystem is closed."""
    closed = request.param == "closed"
    with NamespaceNetwork(tmp_path_factory.mktemp("three"), 3) as whole:
        yield Cluster.start(whole, whole.nodes[:2], closed=closed), whole.nodes[2], closed
    check_daemons(request, whole.nodes[:2])


def change_both_ways(cluster: Cluster, text: str) -> None:
    """A change of each node reaches the other."""
    for writer, reader in (cluster.nodes, cluster.nodes[::-1]):
        name = f"{text}-of-{writer.address}"
        (writer.mountpoint / name).write_text(text)
        path = reader.mountpoint / name
        wait_until(lambda path=path: path.read_text() == text, DEADLINE, f"{name} arrives")  # type: ignore[misc]


def seconds_of_changes(cluster: Cluster, text: str) -> float:
    """Seconds until both nodes show a change of each other: the median of some."""
    taken = []
    for number in range(CHANGES):
        started = time.monotonic()
        change_both_ways(cluster, f"{text}{number}")
        taken.append(time.monotonic() - started)
    return statistics.median(taken)


def banned(node: Node) -> list[Any]:
    return [row["banned"] for row in ask(node, "members")]


def test_a_local_user_reads_what_the_world_reads_and_bans_nobody(three: tuple[Cluster, Node, bool]) -> None:
    cluster, _, closed = three
    one, two = cluster.nodes
    change_both_ways(cluster, "before")
    secret = secrets.token_hex(16)
    private = one.mountpoint / "private"
    private.mkdir(mode=0o700)
    (private / "key").write_text(secret)
    (private / "key").chmod(0o600)
    one.settle(NAME)

    request = GREETING + encode(PathReq(()))
    command = [*one.prefix(), *NOBODY, PYTHON, "-c", READ, one.address, request.hex()]
    read = subprocess.run(command, check=True, timeout=DEADLINE, capture_output=True, text=True).stdout
    identity = ask(one, "summary")["identity"]
    if closed:
        assert "TLS%2C%20and%20members%20only" in read
        assert secret not in read and "private" not in read and repr(bytes.fromhex(identity)) not in read
    else:
        assert secret in read, "an open filesystem is for everybody, as docs/security.md says"
        assert repr(bytes.fromhex(identity)) in read

    command = [*two.prefix(), *NOBODY, PYTHON, "-c", RUBBISH, one.address]
    subprocess.run(command, check=True, timeout=DEADLINE)
    assert banned(one) == banned(two) == [None, None]
    # A ban would not end the sessions that stand.
    two.basefs("unmount", NAME)
    two.mount(NAME, "--owners")
    change_both_ways(cluster, "after")
    assert banned(one) == banned(two) == [None, None]


@pytest.mark.alone
def test_idle_connections_hold_up_no_change(three: tuple[Cluster, Node, bool]) -> None:
    """From two addresses of another machine, and from a local user of a node, at whose address that node is."""
    cluster, stranger, closed = three
    one, two = cluster.nodes
    change_both_ways(cluster, "still")
    quiet = seconds_of_changes(cluster, "quiet")
    two.basefs("unmount", NAME)
    other = "10.77.100.1"
    run_ip("-n", str(stranger.namespace), "address", "add", f"{other}/16", "dev", "eth0")
    says = (b"\x16" if closed else GREETING).hex()
    remote = [*stranger.prefix(), sys.executable, "-c", IDLE, f"{stranger.address},{other}"]
    local = [*one.prefix(), *NOBODY, PYTHON, "-c", IDLE, one.address]
    with ExitStack() as stack:
        attacks = []
        for command in (remote, local):
            whole = [*command, f"{one.address},{two.address}", says]
            attack = stack.enter_context(subprocess.Popen(whole, stdout=subprocess.PIPE, text=True))
            stack.callback(attack.kill)
            assert attack.stdout is not None and attack.stdout.readline() == "there\n"
            attacks.append(attack)
        two.mount(NAME, "--owners")
        change_both_ways(cluster, "meanwhile")
        cluster.wait_until_equal(DEADLINE)
        assert seconds_of_changes(cluster, "attacked") < quiet + HELD_UP
        assert [attack.poll() for attack in attacks] == [None, None]


def remembered(node: Node) -> set[str]:
    book = json.loads((node.home / "fs" / NAME / PEERS_FILE).read_text())
    return {peer["address"].rpartition(":")[0] for peer in book}


def test_a_member_that_names_the_address_of_somebody_else(network: Callable[[int], NamespaceNetwork]) -> None:
    """Nodes try it now and then, and do not remember it."""
    whole = network(4)
    *honest, evil, victim = whole.nodes
    cluster = Cluster.start(whole, honest)
    change_both_ways(cluster, "before")
    one = cluster.nodes[0]
    listening = [*victim.prefix(), sys.executable, "-c", VICTIM, victim.address]
    agent = [*evil.prefix(), "serf", "agent", "-node=evil", f"-bind={evil.address}:18374", "-profile=wan"]
    agent += [f"-advertise={victim.address}:18374", "-tag", f"fs={ask(one, 'summary')['identity']}"]
    agent += ["-tag", f"sync={SYNC_PORT}", f"-join={one.endpoint}"]
    with ExitStack() as stack:
        heard = stack.enter_context(subprocess.Popen(listening, stdout=subprocess.PIPE, text=True))
        stack.callback(heard.kill)
        assert heard.stdout is not None and heard.stdout.readline() == "ready\n"
        serf = stack.enter_context(subprocess.Popen(agent, stdout=subprocess.DEVNULL))
        stack.callback(serf.kill)
        times: dict[str, list[float]] = {}
        while not any(len(found) == 2 for found in times.values()):
            moment, host = heard.stdout.readline().split()
            calls = times.setdefault(host, [])
            # One call may be two connections: a member that Serf has lost is probed before a session begins.
            if not calls or float(moment) - calls[-1] > 1.0:
                calls.append(float(moment))
        (first, second) = next(found for found in times.values() if len(found) == 2)
        assert second - first > 4.0, "it is called again after a while"
        change_both_ways(cluster, "meanwhile")
        members = {each.address for each in cluster.nodes}
        for node in cluster.nodes:
            wait_until(lambda node=node: remembered(node) >= members, DEADLINE, "all are remembered")  # type: ignore[misc]
            assert remembered(node) == members
        assert os.path.exists(f"/proc/{serf.pid}")
