"""`basefs status` says of no node that it is in step while it lacks something that is older than two seconds.

Real logs, replication and answers of daemons, over a network in memory.  On each node somebody asks for the status now
and then, whatever happens to links, nodes and disks; the words are held against what the logs have.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from basefs.daemon.api.messages import GetStatus, Status
from basefs.daemon.api.services import NodeServices
from basefs.errors import NoSpace
from basefs.fs.events.feed import Feed
from basefs.fs.filesystem import Filesystem
from basefs.fs.worktree.scratch import ScratchNames
from basefs.gossip.members import TAG_FS, TAG_SYNC, Member, Peer
from basefs.gossip.service import Gossip
from basefs.log.blocks import Block
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash
from basefs.log.interface import AddResult, LogState
from basefs.log.missing import ContentProgress
from basefs.log.reserve import DiskLimits
from basefs.log.room import Room
from basefs.management.status import in_step_in_words, lost_in_words
from basefs.replica.replica import Applied, Replica
from basefs.replication.propagation import Propagation, PropagationSettings
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import SessionContext
from tests.simulation.loop import PROCESS, Loop, Process, Trace
from tests.simulation.network import Link, Network
from tests.support.helpers import ROOT_KEY, copy_replica, in_blocks, make_replica, noise
from tests.support.mounts import temporary_directory

#: Seconds after which what is not everywhere is said to be missing, and that the command takes to print the answer.
PROMISED = 2.0
PRINTING = 0.25
#: The same as a number that it is safe to compare with, times being floats.
_MOMENT = 1e-6
PORT = 1
#: Seconds that a job takes on a slow disk, at the most, and on any other one.
SLOW, QUICK = 8.0, 0.003
FREE = 10**9


class Disk:
    """The disk of a log: while it is full, nothing that comes from others fits.  All else is the log's."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica, name)

    def add(self, entries: list[bytes], blocks: list[bytes], *, peer: str = "") -> AddResult:
        if self.full and (entries or blocks):
            raise NoSpace("the disk is full")
        return self._replica.add(entries, blocks, peer=peer)

    def free(self, directory: Path) -> int:
        return 0 if self.full else FREE


class Serf:
    """What a node knows of the others from Serf, which may take any of them for failed."""

    def __init__(self, host: str, hosts: list[str], identity: bytes) -> None:
        self.peers = [Peer(other, other, 2, PORT, "alive") for other in hosts if other != host]
        self.config = SimpleNamespace(agent_name=host)
        self.counters = SimpleNamespace(refused=0)
        self._host, self._hosts = host, hosts
        self._tags = {TAG_FS: identity.hex(), TAG_SYNC: str(PORT)}
        self.failed: set[str] = set()

    @property
    def expected(self) -> list[Peer]:
        return [Peer(each.name, each.addr, 2, PORT, each.status) for each in self.members() if each.name != self._host]

    def members(self) -> list[Member]:
        status = {host: "failed" if host in self.failed else "alive" for host in self._hosts}
        return [Member(host, host, 2, self._tags, status[host]) for host in self._hosts]

    def ours(self) -> list[Member]:
        return self.members()

    def is_ours(self, member: Member) -> bool:
        return True

    def send(self, payloads: list[bytes]) -> None:
        """What is gossiped reaches nobody."""

    def met(self, address: tuple[str, int]) -> None:
        """All of them are known."""


class SimulatedNode:
    """Log, sync, propagation and answers of one node.

    Attributes:
        arrived: when each entry came to its log, seconds of the loop.
        completed: when each of its contents was whole here.
    """

    def __init__(self, loop: Loop, host: str, replica: Replica, hosts: list[str]) -> None:
        self.loop, self.host, self.replica = loop, host, replica
        self.process = Process(host, random.Random(1))
        self.disk = Disk(replica)
        self.arrived: dict[bytes, float] = {}
        self.completed: dict[bytes, float] = {}
        self.serf = Serf(host, hosts, replica.identity)
        self._workers = ThreadPoolExecutor(1)
        replica.subscribe(self._note)

    def _note(self, applied: Applied) -> None:
        now = self.loop.time()
        self.arrived.update((entry.hash, now) for entry in applied.entries)
        waiting = self.incomplete()
        self.completed.update((entry.hash, now) for entry in applied.entries if entry.hash not in waiting)
        self.completed.update((hash, now) for hash in applied.completed)

    def incomplete(self) -> set[bytes]:
        """The entries whose contents are not whole here."""
        found = self.replica.incomplete()
        return {entry.hash for _, entry, content in found if content.progress is not ContentProgress.WITHHELD}

    async def start(self) -> None:
        rng = random.Random(self.host)
        self.process = Process(self.host, rng)
        PROCESS.set(self.process)
        gossip = cast(Gossip, self.serf)
        addresses = [peer.sync_address for peer in self.serf.peers]
        room = Room(self.replica.directory, self.disk.free, self.loop.time)
        self.sync = SyncService(
            cast(LogState, self.disk),
            (self.host, PORT),
            peers=lambda: addresses,
            max_sessions=16,
            degree=3,
            shared=SessionContext(room=room, rng=rng),
        )
        filesystem = SimpleNamespace(scratch=ScratchNames(), publish=lambda patient: None, unpublished=lambda: 0)
        self._services = NodeServices(
            self.replica,
            cast(Filesystem, filesystem),
            cast(Feed, None),
            None,
            (gossip, self.sync),
            lambda: None,
            self._workers,
        )
        settings = PropagationSettings(0, 0.05, interval=5.0, gossips=False)
        self._propagation = Propagation(self.replica, gossip, self.sync, lambda: None, self.loop, settings, rng)
        await self.sync.start(self._propagation)
        self._propagation.start()
        self._propagation.on_members(self.serf.peers)

    async def stop(self) -> None:
        await self._propagation.stop()
        await self.sync.stop()

    async def write(self, path: tuple[bytes, ...], content: bytes) -> None:
        PROCESS.set(self.process)
        self.replica.commit(lambda author: author.write(path, content))

    async def status(self) -> Status:
        PROCESS.set(self.process)
        return await self._services.answer(GetStatus())

    async def in_step(self) -> set[str] | None:
        """The hosts that are in step by the words of a status, `None` if the daemon died meanwhile."""
        process, status = self.process, await self.status()
        await asyncio.sleep(PRINTING)
        if not process.alive:
            return None
        words = in_step_in_words(status.node)
        others = {peer.host for peer in self.serf.peers}
        counts, *apart = words.replace("; ", ", ").split(", ")
        found = others - {each.split(" ")[0] for each in apart}
        assert counts == f"with {len(found)} of {len(others)}", words
        return found


@contextmanager
def nodes(loop: Loop, count: int, limited: bool) -> Iterator[list[SimulatedNode]]:
    """Nodes with equal logs and one key; `limited`: the last one takes no contents of others."""
    hosts = [f"10.0.0.{number}" for number in range(1, count + 1)]
    with temporary_directory() as directory:
        replicas = [make_replica(directory / hosts[0])]
        replicas += [copy_replica(replicas[0], directory / host, [ROOT_KEY]) for host in hosts[1:]]
        if limited:
            replicas[-1].close()
            replicas[-1] = Replica(replicas[-1].directory, [ROOT_KEY], limits=DiskLimits(max_log_bytes=1))
        try:
            yield [SimulatedNode(loop, host, replica, hosts) for host, replica in zip(hosts, replicas, strict=True)]
        finally:
            for replica in replicas:
                replica.close()


def lacks(one: SimulatedNode, other: SimulatedNode, now: float) -> list[str]:
    """What one has had for longer than promised, and the other one has not."""
    old = now - PROMISED - _MOMENT
    incomplete = other.incomplete()
    entries = [hash for hash, since in one.arrived.items() if since < old and other.replica.entry(hash) is None]
    contents = [hash for hash, since in one.completed.items() if since < old and hash in incomplete]
    return [f"entry {hash.hex()}" for hash in entries] + [f"content of {hash.hex()}" for hash in contents]


class Play:
    """A cluster, and what happens to it.

    Attributes:
        said: how often a node was called in step.
    """

    def __init__(self, loop: Loop, cluster: list[SimulatedNode], seed: int) -> None:
        self._loop, self._cluster = loop, cluster
        self._rng = random.Random(seed)
        self._network = Network(loop, seed, Trace(loop), lambda here, there: Link(0.01, 0.0))
        self._pairs = [(a.host, b.host) for a in cluster for b in cluster if a.host < b.host]
        self._written = 0
        self.said = 0

    async def run(self, faults: int) -> None:
        """Faults, with writes around each of them, while others look."""
        await self._start()
        watchers = [asyncio.create_task(self._watch(node)) for node in self._cluster for _ in range(2)]
        for _ in range(faults):
            self._mend()
            await self._pause(1.0)
            if self._rng.random() < 0.5:
                # One that does not answer makes others wait, and what they know of the rest older.
                self._cut_off(self._rng.choice(self._cluster))
                await self._pause(2.0)
            await self._fault()
            # What is written at the moment of a fault is what nobody may call known.
            for node in self._rng.sample(self._cluster, len(self._cluster)):
                await self._pause(0.1)
                await self._write(node)
            await self._pause(2.0)
            for watcher in watchers:
                if watcher.done():
                    watcher.result()
        for watcher in watchers:
            watcher.cancel()
        await self._settle()
        await self._stop()

    async def run_old_answers(self) -> None:
        """A member writes, and is cut off, right after it was asked; others are asked later, and do not answer."""
        await self._start()
        here, there, silent = self._cluster
        for pause in _steps(2.5):
            self._mend()
            while not await self._all_in_step():
                await asyncio.sleep(0.5)
            await asyncio.sleep(PROMISED)
            self._cut([(here.host, silent.host)])
            first = asyncio.create_task(self._look(here))
            # The first answer is here, and what is written from now on is on its way.
            await asyncio.sleep(0.06)
            self._cut([(here.host, there.host)])
            await self._write(there)
            await asyncio.sleep(pause)
            await self._look(here)
            await first
        await self._stop()

    async def run_slow_disk(self, *, full: bool) -> None:
        """A member answers, and does not store what it receives."""
        await self._start()
        here, there = self._cluster
        for pause in _steps(4.0):
            self._mend()
            while not await self._all_in_step():
                await asyncio.sleep(0.5)
            there.disk.full, there.process.disk = full, QUICK if full else SLOW
            await self._write(here)
            await asyncio.sleep(pause)
            await self._look(here)
        await self._stop()

    async def run_slow_answer(self) -> None:
        """All lack the same content, and a node whose disk is slow takes seconds to answer; a member writes by then."""
        await self._start()
        here, there = self._cluster
        self._lose(there, here.replica.identity, b"g", time.time_ns())
        await self._until_lost({"/g": True})
        for number in range(40):
            self._mend()
            while not await self._all_in_step():
                await asyncio.sleep(0.5)
            here.process.disk = SLOW
            look = asyncio.create_task(self._look(here))
            await asyncio.sleep(number / 4)
            self._cut([(here.host, there.host)])
            await self._write(there)
            await look
        await self._stop()

    async def run_lost_content(self) -> None:
        """A writer is gone before anybody has a block of what it wrote, and the file is written again."""
        await self._start()
        root = self._cluster[0].replica.identity
        for text, name in ((b"kept", b"f"), (b"kept too", b"h")):
            await asyncio.create_task(self._cluster[0].write((name,), text))
        (tip,) = (e for e in map(Entry.decode, self._cluster[0].replica.walk((b"f",))) if e.action is Action.WRITE)
        made = tip.made + 1
        blocks = self._lose(self._cluster[-1], tip.hash, b"f", made) + self._lose(self._cluster[-1], root, b"g", made)
        await self._until_lost({"/f": True, "/g": True})
        assert {node.replica.read((b"f",)) for node in self._cluster} == {b"kept"}
        # One of two files is written again, and what nobody has is an old version of it.
        await asyncio.create_task(self._cluster[0].write((b"f",), b"new"))
        await self._until_lost({"/f": False, "/g": True})
        assert {node.replica.read((b"f",)) for node in self._cluster} == {b"new"}
        # The writer was not gone for ever.
        self._cluster[0].replica.add([], [block.encode() for block in blocks])
        await self._until_lost({})
        await self._stop()

    def _lose(self, node: SimulatedNode, parent: EntryHash, name: bytes, made: int) -> list[Block]:
        """Give a node a file of which nobody has a block; returns the blocks.  `made`: nanoseconds since 1970."""
        content = noise(1, 90_000) + name
        named, blocks = in_blocks(content, 0)
        lost = ROOT_KEY.sign(parent, made, Action.WRITE, name, named, Extensions(len(content)))
        node.replica.apply([lost], [])
        return blocks

    async def _until_lost(self, wanted: dict[str, bool]) -> None:
        """All are in step, and know the contents that nobody has."""
        end = self._loop.time() + 60
        while True:
            found = [await node.status() for node in self._cluster]
            lost = [{one.path: one.newest for one in status.lost_contents} for status in found]
            words = {in_step_in_words(status.node) for status in found}
            others = len(self._cluster) - 1
            if words == {f"with {others} of {others}"} and lost == [wanted] * len(self._cluster):
                newest = {lost_in_words(status) for status in found}
                assert newest == {", ".join(path for path in sorted(wanted) if wanted[path])}
                return
            assert self._loop.time() < end, (words, lost)
            await asyncio.sleep(1)

    async def _start(self) -> None:
        for node in self._cluster:
            await asyncio.create_task(node.start())

    async def _stop(self) -> None:
        self._mend()
        # Connections that were under way end.
        await asyncio.sleep(10)
        for node in self._cluster:
            await node.stop()

    async def _pause(self, mean: float) -> None:
        await asyncio.sleep(self._rng.expovariate(1 / mean))

    async def _write(self, node: SimulatedNode) -> None:
        self._written += 1
        size = 200_000 if self._rng.random() < 0.1 else 20
        await asyncio.create_task(node.write((b"f%d" % self._written,), self._rng.randbytes(size)))

    async def _fault(self) -> None:
        rng, node = self._rng, self._rng.choice(self._cluster)
        what = rng.choice(["none", "cut", "one way", "off", "restart", "full", "slow", "lost"])
        if what == "cut":
            self._cut([rng.choice(self._pairs)])
        elif what == "one way":
            here, there = rng.sample(rng.choice(self._pairs), 2)
            self._network.link(here, there).down = 1
        elif what == "off":
            self._cut_off(node)
        elif what == "restart":
            self._network.kill(node.process)
            await node.stop()
            await asyncio.create_task(node.start())
        elif what == "full":
            node.disk.full = True
        elif what == "slow":
            node.process.disk = SLOW
        elif what == "lost":
            node.serf.failed.add(rng.choice(node.serf.peers).host)

    def _mend(self) -> None:
        self._cut(self._pairs, down=0)
        for node in self._cluster:
            node.disk.full, node.process.disk, node.serf.failed = False, QUICK, set()

    def _cut(self, pairs: list[tuple[str, str]], *, down: int = 1) -> None:
        for here, there in pairs:
            self._network.link(here, there).down = self._network.link(there, here).down = down

    def _cut_off(self, node: SimulatedNode) -> None:
        self._cut([pair for pair in self._pairs if node.host in pair])

    async def _watch(self, node: SimulatedNode) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0.0, PROMISED))
            await self._look(node)

    async def _look(self, node: SimulatedNode) -> int:
        """Have a node say who is in step, and hold it against the logs; returns how many were named."""
        found = await asyncio.create_task(node.in_step()) or set()
        for other in self._cluster:
            if other.host in found:
                there = lacks(node, other, self._loop.time())
                here = lacks(other, node, self._loop.time())
                assert not there, f"{node.host} calls {other.host} in step, which lacks {there}"
                assert not here, f"{node.host} calls {other.host} in step, and lacks {here}"
        self.said += len(found)
        return len(found)

    async def _settle(self) -> None:
        """All is well again: nodes with room say so in the end."""
        self._mend()
        end = self._loop.time() + 600
        while not await self._all_in_step():
            assert self._loop.time() < end, "in the end all are in step, and say so"
            await asyncio.sleep(1)

    async def _all_in_step(self) -> bool:
        wait = any(node.incomplete() for node in self._cluster)
        found = [await self._look(node) for node in self._cluster]
        return wait or sum(found) == len(self._pairs) * 2


def _steps(last: float) -> list[float]:
    """Seconds up to the last, 0.15 apart."""
    return [0.05 + 0.15 * number for number in range(round(last / 0.15))]


@contextmanager
def playing(count: int, seed: int = 0, *, limited: bool = False) -> Iterator[tuple[Loop, Play]]:
    """A cluster of so many nodes, and the loop in which it runs."""
    loop = Loop()
    try:
        with nodes(loop, count, limited) as cluster:
            yield loop, Play(loop, cluster, seed)
    finally:
        loop.close()


@pytest.mark.logs("disk full")
@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4), st.booleans())
@example(111, 4, False)
def test_in_step_is_never_said_of_a_node_that_lacks_something(seed: int, count: int, limited: bool) -> None:
    with playing(count, seed, limited=limited) as (loop, play):
        loop.run_until_complete(play.run(faults=8))


def test_an_answer_is_not_too_old() -> None:
    with playing(3) as (loop, play):
        loop.run_until_complete(play.run_old_answers())
        assert play.said


def test_an_answer_that_takes_long_is_not_too_old() -> None:
    with playing(2) as (loop, play):
        loop.run_until_complete(play.run_slow_answer())
        assert play.said


def test_nodes_that_lack_what_nobody_has_are_in_step_and_say_so() -> None:
    with playing(3) as (loop, play):
        loop.run_until_complete(play.run_lost_content())


@pytest.mark.logs("disk full")
@pytest.mark.parametrize("full", [False, True])
def test_nothing_is_on_its_way_for_long(full: bool) -> None:
    with playing(2) as (loop, play):
        loop.run_until_complete(play.run_slow_disk(full=full))
        assert play.said
