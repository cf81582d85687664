"""What a node says of its peers is so, whatever happens to links and nodes.

Real replication over a network in memory: whoever is called in step lacks nothing that is older than two seconds.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from basefs.gossip.members import Peer
from basefs.gossip.service import Gossip
from basefs.log.keys import SigningKey
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Applied, Replica
from basefs.replication.propagation import Propagation
from basefs.sync.net.service import SyncService
from tests.simulation.loop import PROCESS, Loop, Process, Trace
from tests.simulation.network import Link, Network
from tests.support.helpers import copy_replica

#: Seconds after which an entry that is not everywhere is said to be missing.
PROMISED = 2.0
PORT = 1


class SimulatedNode:
    """Log, sync and propagation of one node, without gossip.

    Attributes:
        arrived: when each entry came to its log, seconds of the loop.
    """

    def __init__(self, loop: Loop, host: str, replica: Replica, hosts: list[str]) -> None:
        self.loop, self.host, self.replica = loop, host, replica
        self.process = Process(host, random.Random(1))
        self.arrived: dict[bytes, float] = {}
        self._others = [Peer(other, other, 2, PORT, "alive") for other in hosts if other != host]
        replica.subscribe(self._note)

    def _note(self, applied: Applied) -> None:
        self.arrived.update((entry.hash, self.loop.time()) for entry in applied.entries)

    async def start(self) -> None:
        self.process = Process(self.host, random.Random(1))
        PROCESS.set(self.process)
        gossip = SimpleNamespace(
            peers=self._others,
            send=lambda payloads: None,
            counters=SimpleNamespace(refused=0),
            met=lambda address: None,
        )
        self._propagation = Propagation(self.replica, self.loop, 0, 0.05, interval=5.0, gossips=False)
        addresses = [peer.sync_address for peer in self._others]
        self.sync = SyncService(
            self.replica,
            (self.host, PORT),
            peers=lambda: addresses,
            max_sessions=16,
            degree=3,
            listener=self._propagation,
        )
        await self.sync.start()
        self._propagation.start(cast(Gossip, gossip), self.sync, lambda: None)
        self._propagation.on_members(self._others)

    async def stop(self) -> None:
        await self._propagation.stop()
        await self.sync.stop()

    async def write(self, path: tuple[bytes, ...], content: bytes) -> None:
        PROCESS.set(self.process)
        self.replica.commit(lambda author: author.write(path, content))

    async def in_step(self) -> list[str]:
        """The hosts that a status would call in step now."""
        PROCESS.set(self.process)
        await self.sync.confirm([peer.sync_address for peer in self._others])
        lags = {peer.host: self.sync.lag(peer.sync_address) for peer in self._others}
        return [host for host, lag in lags.items() if lag is not None and lag.in_step]


@contextmanager
def nodes(loop: Loop, count: int) -> Iterator[list[SimulatedNode]]:
    """Nodes with equal logs and one key."""
    hosts = [f"10.0.0.{number}" for number in range(1, count + 1)]
    key = SigningKey.generate()
    with tempfile.TemporaryDirectory() as directory:
        (first := Path(directory) / hosts[0]).mkdir()
        replicas = [bootstrap(first, [(b"alpha", key)], [])]
        replicas += [copy_replica(replicas[0], Path(directory) / host, [key]) for host in hosts[1:]]
        try:
            yield [SimulatedNode(loop, host, replica, hosts) for host, replica in zip(hosts, replicas, strict=True)]
        finally:
            for replica in replicas:
                replica.close()


def lacks(one: SimulatedNode, other: SimulatedNode, now: float) -> list[bytes]:
    """What one has had for longer than promised, and the other one has not."""
    return [hash for hash, since in one.arrived.items() if now - since > PROMISED and other.replica.entry(hash) is None]


async def play(loop: Loop, cluster: list[SimulatedNode], seed: int, steps: int) -> int:
    """Cuts, heals, writes, restarts and pauses; returns how often a node was called in step."""
    rng = random.Random(seed)
    network = Network(loop, seed, Trace(loop), lambda here, there: Link(0.01, 0.0))
    pairs = [(a.host, b.host) for a in cluster for b in cluster if a.host < b.host]
    said = written = 0
    for node in cluster:
        await asyncio.create_task(node.start())
    for _ in range(steps):
        what = rng.choice(["write", "write", "write", "large", "cut", "off", "heal", "restart", "pause"])
        node = rng.choice(cluster)
        if what in ("write", "large"):
            written += 1
            size = 200_000 if what == "large" else 20
            path, content = (b"f%d" % written,), rng.randbytes(size)
            await asyncio.create_task(node.write(path, content))
        elif what == "cut":
            cut(network, [rng.choice(pairs)])
        elif what == "off":
            cut(network, [pair for pair in pairs if node.host in pair])
        elif what == "heal":
            cut(network, pairs, down=0)
        elif what == "restart":
            network.kill(node.process)
            await node.stop()
            await asyncio.create_task(node.start())
        await asyncio.sleep(rng.choice([0.0, 0.1, 1.0, 3.0, 10.0]))
        said += await look(loop, cluster)
    cut(network, pairs, down=0)
    end = loop.time() + 60
    while await look(loop, cluster) < len(cluster) * (len(cluster) - 1):
        assert loop.time() < end, "in the end all are in step, and say so"
        await asyncio.sleep(1)
    for node in cluster:
        await node.stop()
    return said


def cut(network: Network, pairs: list[tuple[str, str]], *, down: int = 1) -> None:
    for here, there in pairs:
        network.link(here, there).down = network.link(there, here).down = down


async def look(loop: Loop, cluster: list[SimulatedNode]) -> int:
    """Have each node say who is in step, and hold it against the logs; returns how many were named."""
    said = 0
    hosts = {node.host: node for node in cluster}
    for node in cluster:
        for host in await asyncio.create_task(node.in_step()):
            said += 1
            assert not lacks(node, hosts[host], loop.time()), f"{node.host} has what {host} lacks, and calls it in step"
            assert not lacks(hosts[host], node, loop.time()), f"{node.host} lacks what {host} has, and calls it in step"
    return said


def run(seed: int, count: int, steps: int) -> int:
    loop = Loop()
    try:
        with nodes(loop, count) as cluster:
            return loop.run_until_complete(play(loop, cluster, seed, steps))
    finally:
        loop.close()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_in_step_is_never_said_of_a_node_that_lacks_something(seed: int, count: int) -> None:
    run(seed, count, steps=12)
