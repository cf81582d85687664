"""A file on a cluster whose nodes have narrow links: how soon all have it, and how often its blocks are sent."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.simulation.bus import Bus, Habits
from tests.simulation.loop import Loop, Trace
from tests.simulation.network import Link, Network
from tests.simulation.node import Node, Traits, Tuning
from tests.support.helpers import copy_replica, genesis, make_key, make_replica, noise

NODES = 10
#: Bytes a second that a node sends to all others together, of which it sends so many at once after a while of silence.
WIDTH, BURST = 4000.0, 4096
#: Bytes of TCP, IP and Ethernet around each packet, beside those that the network counts itself, and in a packet.
HEADERS, PACKET = 26, 1448
#: Bytes of a file of 16 blocks, and blocks with the manifest.
SIZE, BLOCKS = 16 * 480, 17


@dataclass
class Uplink:
    """What a node sends.  `busy`: until when, in seconds, had it sent no burst; `sent`: bytes."""

    busy: float = 0.0
    sent: int = 0


@dataclass(slots=True)
class SharedLink(Link):
    """One direction to one of the hosts that share an uplink."""

    uplink: Uplink = field(default_factory=Uplink)

    def arrival(self, now: float, size: int, rng: random.Random) -> float:
        """When something arrives that is sent now."""
        size += (HEADERS + 40) * (size // PACKET) + HEADERS
        self.uplink.sent += size
        self.uplink.busy = max(self.uplink.busy, now - BURST / WIDTH) + size / WIDTH
        return max(self.uplink.busy, now) + self.latency


def make_nodes(loop: Loop, seed: int, directory: Path) -> tuple[list[Node], dict[str, Uplink]]:
    """Nodes with equal logs."""
    uplinks: dict[str, Uplink] = defaultdict(Uplink)
    trace = Trace(loop)
    network = Network(loop, seed, trace, lambda here, there: SharedLink(0.0002, 0.0, uplink=uplinks[here]))
    bus = Bus(network, Habits(), random.Random(seed), trace)
    keys = [make_key(f"node {number}") for number in range(NODES)]
    entries = genesis(keys)
    first = make_replica(directory / "first", born=entries)
    nodes = []
    for number, key in enumerate(keys, 1):
        host = f"10.0.0.{number}"
        copy_replica(first, directory / host).close()
        node = Node(network, bus, host, [key], directory / host, Tuning(), Traits())
        node.entries.update((entry.hash, entry) for entry in entries)
        nodes.append(node)
    first.close()
    return nodes, uplinks


async def play(loop: Loop, nodes: list[Node], uplinks: dict[str, Uplink], seed: int) -> tuple[float, float, int]:
    """Seconds until all have a file; kilobytes that a node sent by then, on average; blocks that all received."""
    for node in nodes:
        await node.start([each.host for each in nodes], seed)
    await asyncio.sleep(30.0)
    for number in range(2):
        # The sessions that bring it twice become lazy ones.
        nodes[number].act(lambda author, number=number: author.write((b"small-%d" % number,), b"x"))
        # At another moment than the periodic sessions.
        await asyncio.sleep(8.7)
    writer, before, blocks = nodes[0], sum(uplink.sent for uplink in uplinks.values()), count_blocks(nodes)
    began = loop.time()
    writer.act(lambda author: author.write((b"file",), noise(seed, SIZE)))
    digest = writer.replica.digest()
    while any(node.replica.digest() != digest for node in nodes) and loop.time() < began + 60.0:
        await asyncio.sleep(0.05)
    sent = sum(uplink.sent for uplink in uplinks.values()) - before
    return loop.time() - began, sent / NODES / 1000, count_blocks(nodes) - blocks


def count_blocks(nodes: list[Node]) -> int:
    """Blocks that they have received so far."""
    return sum(node.sync.traffic.total().blocks_received for node in nodes)


@pytest.mark.slow
def test_sixteen_blocks_are_on_ten_nodes_in_the_time_of_three_copies(tmp_path: Path) -> None:
    seconds, kilobytes, received = zip(*(run(seed, tmp_path / str(seed)) for seed in range(1, 6)), strict=True)
    assert statistics.median(seconds) < 9.0
    assert max(seconds) < 15.0
    assert max(received) <= 1.1 * BLOCKS * (NODES - 1)
    assert max(kilobytes) < 25.0, "one copy is 13 with its headers"


def run(seed: int, directory: Path) -> tuple[float, float, int]:
    """What `play` returns, of nodes of their own."""
    directory.mkdir()
    loop = Loop()
    nodes, uplinks = make_nodes(loop, seed, directory)
    found = loop.run_until_complete(play(loop, nodes, uplinks, seed))

    async def stop() -> None:
        await asyncio.gather(*(node.stop() for node in nodes))

    loop.run_until_complete(stop())
    loop.close()
    return found
