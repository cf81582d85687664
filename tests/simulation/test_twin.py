"""On one node that has nobody to replicate with, programs find what they would find in any directory."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path

import pytest

from basefs.path import Path as Names
from basefs.view.states import Kind
from tests.simulation.bus import Bus, Habits
from tests.simulation.loop import Loop, Trace
from tests.simulation.mount import Mount, Saves
from tests.simulation.network import Link, Network
from tests.simulation.node import Node, Traits, Tuning
from tests.simulation.programs import DEEDS, Program
from tests.support.helpers import ROOT_KEY, make_replica
from tests.support.mounts import temporary_directory

HOST = "10.0.0.1"
#: Programs on each side, seconds for which they do something, and between two such deeds and two kills on average.
PROGRAMS, SECONDS, PAUSE, KILLS = 2, 60.0, 0.4, 4.0


class Plain:
    """A directory beside the node, for the same programs."""

    def __init__(self, loop: Loop, home: Path) -> None:
        home.mkdir()
        self.mount = Mount("plain", loop, Saves())
        self.mount.serve(home)
        self.mount.rights({b"/": 0})
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """What a program has done, and the error that it got."""
        self.notes.append(text)


def faces(mount: Mount) -> dict[Names, tuple[object, ...]]:
    """What programs find at each path; of files also when they were changed, and which names are one file."""
    shown, names = mount.shown(), defaultdict(set)
    statuses = {path: status for path, status in mount.walk() if path in shown}
    for path, status in statuses.items():
        names[status.st_ino].add(path)
    return {
        path: (*found, statuses[path].st_mtime_ns, names[statuses[path].st_ino]) if found[0] is Kind.FILE else found
        for path, found in shown.items()
    }


async def play(loop: Loop, node: Node, plain: Plain, seed: int) -> None:
    """Have programs do the same on both sides, while the node's process is killed now and then."""
    await node.start([HOST], seed)
    end = loop.time() + SECONDS

    async def run(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        sides = [Program(side, random.Random(f"{seed} program {number}"), DEEDS) for side in (node, plain)]
        while loop.time() < end:
            await asyncio.sleep(rng.expovariate(1 / PAUSE))
            await asyncio.gather(*(side.act() for side in sides))

    async def kill() -> None:
        rng = random.Random(f"{seed} kills")
        while loop.time() < end:
            await asyncio.sleep(rng.expovariate(1 / KILLS))
            if await node.doom(rng, off=False):
                await asyncio.sleep(rng.uniform(0.0, 1.0))
                await node.start([HOST], seed)

    await asyncio.gather(kill(), *(run(number) for number in range(PROGRAMS)))
    await asyncio.sleep(10.0)
    assert node.differing() == []
    await node.stop()


@pytest.mark.parametrize("seed", range(3))
def test_a_mount_without_a_partner_is_a_directory(seed: int) -> None:
    with temporary_directory() as directory:
        loop = Loop()
        trace = Trace(loop)
        network = Network(loop, seed, trace, lambda here, there: Link(0.01, 0.0))
        bus = Bus(network, Habits(), random.Random(seed), trace)
        make_replica(directory / HOST).close()
        traits = Traits(mount=Mount(HOST, loop, Saves()))
        node = Node(network, bus, HOST, [ROOT_KEY], directory / HOST, Tuning(), traits)
        plain = Plain(loop, directory / "plain")
        loop.run_until_complete(play(loop, node, plain, seed))
        loop.close()
        assert [line.partition("program: ")[2] for line in trace.lines if "program: " in line] == plain.notes
        assert faces(node.mount) == faces(plain.mount)
        assert len(plain.notes) > 100
