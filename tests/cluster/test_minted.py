"""The holder of a key for a directory makes many member keys: they leave places for those of `/`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from basefs.log.entries import Action
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from tests.support.cluster import NAME, Cluster, ask
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Keys that hold places; the others are only granted.
MINTED, HOLDING = 140, 40
#: Places at a node.
PLACES = 16
#: Bytes of a change that is fetched, not pushed.
SIZE = 2_000_000

#: Keeps a session with each of some nodes for each key of a directory, and tells how many it has once all have tried.
HOLD = """
import asyncio, os, sys
from pathlib import Path
from basefs.log.interface import Digest
from basefs.log.keys import SigningKey
from basefs.sync.net.connection import Connection
from basefs.sync.net.tls import Credentials, Refused
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import VERSION
from basefs.sync.wire.messages import Hash

identity, hosts = bytes.fromhex(sys.argv[2]), sys.argv[3:]
greeting = encode(Hash(VERSION, identity, Digest(os.urandom(28), 5), 0))
tried, held = set(), set()

async def hold(file, host):
    credentials = Credentials(SigningKey.load(file), None)
    while True:
        try:
            connection = await asyncio.wait_for(Connection.open(host, 18375, credentials), 10)
            connection.write(greeting)
            while data := await connection.read():
                if b"CLOSE" in data:
                    break
                held.add((file, host))
            connection.abort()
        except (OSError, Refused, asyncio.TimeoutError):
            pass
        held.discard((file, host))
        tried.add((file, host))
        await asyncio.sleep(2)

async def main():
    pairs = [(file, host) for file in Path(sys.argv[1]).glob("*.key") for host in hosts]
    tasks = [asyncio.create_task(hold(*pair)) for pair in pairs]
    while not set(pairs) <= tried | held:
        await asyncio.sleep(0.1)
    print(len(held), flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main())
"""


def mint(cluster: Cluster, eve: Node, directory: Path) -> None:
    """Grant many keys by that of a machine that may write one directory, and have all nodes know of it."""
    one = cluster.nodes[0]
    (one.mountpoint / "theirs").mkdir()
    one.settle(NAME)
    eve.basefs("genkey")
    one.basefs("grant", f"{NAME}:/theirs", "eve", eve.home / "key.pub")
    eve.basefs("get", NAME, one.endpoint)
    signer = SigningKey.load(eve.home / "key")
    with contextlib.closing(Replica(eve.home / "fs" / NAME, [signer])) as replica:
        (granted,) = (one.entry for one in replica.grants((b"theirs",)) if one.fingerprint == signer.fingerprint)
        keys = [SigningKey.generate() for _ in range(MINTED)]
        made = [signer.sign(granted.hash, 1, Action.GRANT, b"%d" % at, key.public) for at, key in enumerate(keys)]
        assert len(replica.apply(made, []).entries) == len(made)
    directory.mkdir()
    for number, key in enumerate(keys[:HOLDING]):
        key.save(directory / f"{number}.key")
    eve.mount(NAME)
    cluster.wait_until_equal(DEADLINE)
    eve.basefs("unmount", NAME)


def test_many_keys_of_one_holder_leave_places_for_the_others(
    network: Callable[[int], NamespaceNetwork], tmp_path: Path
) -> None:
    whole = network(3)
    one, two, eve = whole.nodes
    cluster = Cluster.start(whole, [one, two], closed=True)
    cluster.wait_for_sessions()
    mint(cluster, eve, tmp_path / "minted")
    identity = ask(one, "summary")["identity"]
    command = [*eve.prefix(), sys.executable, "-c", HOLD, str(tmp_path / "minted"), identity, one.address, two.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attack:
        try:
            assert attack.stdout is not None
            assert 0 < int(attack.stdout.readline()) <= len(cluster.nodes) * PLACES
            # A node that has just started has no session yet.
            two.basefs("unmount", NAME)
            two.mount(NAME)
            cluster.wait_for_sessions()
            (one.mountpoint / "during").write_bytes(os.urandom(SIZE))
            path = two.mountpoint / "during"
            wait_until(lambda: path.exists() and len(path.read_bytes()) == SIZE, DEADLINE, "a change arrives")
            assert attack.poll() is None
        finally:
            attack.kill()
