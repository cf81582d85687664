"""A cluster of simulated nodes: the real sync and replication of each, over links, Serf and logs in memory.

Everything between a commit and its arrival in another log is the code of `basefs`: session protocol, server,
neighbours, pushes, announcements, scheduler.  In place of SQLite, the view and the mount each node has a `MemoryLog`;
in place of sockets the network of `tests/simulation`; in place of Serf's agents `eval/scale/serf.py`.  Signatures are
not verified, and TLS is left out.  A seed decides everything.
"""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from basefs.daemon import config
from basefs.gossip.events import Address
from basefs.gossip.service import Gossip
from basefs.log.blocks import Block, Encoded, split
from basefs.log.codecs import STORED
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import HASH_SIZE, EntryHash
from basefs.log.keys import SigningKey
from basefs.log.room import Room
from basefs.replica.applied import Applied
from basefs.replica.replica import Replica
from basefs.replication.propagation import Propagation, PropagationSettings
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import SessionContext
from eval.scale.serf import Agent, Serf
from tests.simulation.bus import SYNC_PORT
from tests.simulation.loop import PROCESS, Loop, Process, Trace
from tests.simulation.network import Link, Network
from tests.support.memory import MemoryLog

T = TypeVar("T")

_KEY = SigningKey.from_seed(bytes(32))
_ROOT = _KEY.sign(bytes(HASH_SIZE), 0, Action.MKDIR, b"/")
#: Bytes of a small change, as in `eval/net/changes.py`.
SMALL = 100
#: Rounds of the event loop in which a task that was cancelled ends.
_ENDING = 20
#: Bytes a second of a link.
_WIDTH = 12.5e6


@dataclass(frozen=True, slots=True)
class Setup:
    """What a cluster is like.

    Attributes:
        nodes: how many it has at the beginning.
        seed: of everything.
        latency: seconds of the quickest and of the slowest pair of nodes, in one direction.
        degree: sessions that stay open for news.
        interval: seconds between periodic sessions.
    """

    nodes: int
    seed: int
    latency: tuple[float, float] = (0.005, 0.05)
    degree: int = config.PUSH_SESSIONS
    interval: float = config.FULL_SYNC_INTERVAL


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent since a cluster was made.

    Attributes:
        virtual: seconds of the simulated clock.
        processor: seconds of the real one's processor.
        sync: bytes between nodes with the headers of IP and TCP.
        packets: of these.
        serf: bytes of gossiped events.
    """

    virtual: float
    processor: float
    sync: int
    packets: int
    serf: int

    def since(self, other: Spent) -> Spent:
        """The difference."""
        return Spent(
            self.virtual - other.virtual,
            self.processor - other.processor,
            self.sync - other.sync,
            self.packets - other.packets,
            self.serf - other.serf,
        )


def host_of(number: int) -> str:
    """The address of a node, the first of which is number 1."""
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


class Change:
    """An entry on its way to all nodes.

    Attributes:
        hash: of the entry.
        written: seconds of the clock.
        arrivals: seconds from then until it was in each log but its author's, in order.
    """

    def __init__(self, hash: EntryHash, written: float) -> None:
        self.hash = hash
        self.written = written
        self.arrivals = array("d")


class _Disk:
    """The room on a node's disk, as far as sessions ask for it.

    Attributes:
        full: whether others should send nothing; a node then compares with nobody.
    """

    def __init__(self) -> None:
        self.full = False

    def is_full(self) -> bool:
        return self.full

    def took(self) -> None:
        pass


class SimulatedNode:
    """A machine.

    Attributes:
        host: its address.
        log: what is on its disk.
        disk: the room there.
        running: whether there is a process.
    """

    def __init__(self, cluster: Cluster, host: str) -> None:
        self.host = host
        self.disk = _Disk()
        self.log = MemoryLog(_ROOT.hash)
        self.log.add([_ROOT.encode()], [])
        self.running = False
        self._cluster = cluster
        self._number = 0
        self._status: dict[str, str] = {}

    async def start(self) -> Agent:
        """Start a process, in a task of its own."""
        setup, loop = self._cluster.setup, self._cluster.loop
        self._number += 1
        rng = random.Random(f"{setup.seed} {self.host} {self._number}")
        self._process = Process(self.host, rng)
        PROCESS.set(self._process)
        self.agent = agent = Agent(self._cluster.serf, self.host, self._status)
        self._sync = SyncService(
            self.log,
            (self.host, SYNC_PORT),
            peers=lambda: agent.alive,
            degree=setup.degree,
            max_sessions=config.SYNC_SESSIONS,
            shared=SessionContext(rng=rng, room=cast(Room, self.disk)),
        )
        self.log.subscribe(self._note)
        self._propagation = Propagation(
            cast(Replica, self.log),
            cast(Gossip, agent),
            self._sync,
            lambda: Address(self.host, SYNC_PORT),
            loop,
            PropagationSettings(config.MAX_BLOCK_MESSAGES, config.PULL_JITTER, setup.interval, config.SYNC_PROBABILITY),
            rng,
        )
        await self._sync.start(self._propagation)
        self._propagation.start()
        agent.start(self._propagation.on_event, self._propagation.on_members, self._propagation.announce)
        self.running = True
        return agent

    def _note(self, applied: Applied) -> None:
        self._cluster.arrived([entry.hash for entry in applied.entries])

    @property
    def standing(self) -> int:
        """Its push sessions."""
        return len(self._sync.standing)

    def commit(self, entry: Entry, blocks: Sequence[Block]) -> None:
        """Take in what a user of this node has written."""
        token = PROCESS.set(self._process)
        try:
            self.log.commit(entry, blocks)
        finally:
            PROCESS.reset(token)

    async def fall(self) -> None:
        """The machine is off from now on: its connections fall silent, its log stays."""
        self.running = False
        process, propagation, sync = self._process, self._propagation, self._sync
        self._cluster.network.off.add(self.host)
        self._cluster.network.kill(process)
        self.log.unsubscribe()
        PROCESS.set(process)
        await propagation.stop()
        await sync.stop()


class Cluster:
    """Nodes, what connects them, and the clock.  A context manager.

    Attributes:
        nodes: all that there ever were; those that left are not `running`.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.loop = Loop()
        chance = random.Random(f"{setup.seed} links")
        self.network = Network(self.loop, setup.seed, Trace(self.loop, keeps=False), self._link, chance)
        self.rng = random.Random(f"{setup.seed} cluster")
        self.serf = Serf(self.loop, random.Random(f"{setup.seed} serf"), self._apart)
        self.nodes: list[SimulatedNode] = []
        #: The hosts of one half while the cluster is cut.
        self._half: set[str] = set()
        self._changes: dict[EntryHash, Change] = {}
        self._waiting = asyncio.Event()
        #: Conditions, what is called once they hold, and since when they are awaited.
        self._awaited: list[tuple[Callable[[], bool], Callable[[float], None], float]] = []
        self._drafted = 0

    def __enter__(self) -> Cluster:
        self._run(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            # What is cancelled may begin something else, and waits for its own parts.  No time passes meanwhile.
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in tasks:
                    task.cancel()
                for _ in range(_ENDING):
                    await asyncio.sleep(0)

        self.loop.set_exception_handler(lambda _, context: None)
        self._run(end())
        self.loop.close()

    async def _begin(self) -> None:
        """All nodes have met before and have equal logs, so they need not compare as they see each other."""
        agents = [await self.loop.create_task(self._new().start()) for _ in range(self.setup.nodes)]
        for node in self.nodes:
            node.disk.full = True
        self.serf.begin(agents)
        await asyncio.sleep(2 * config.PULL_JITTER)
        for node in self.nodes:
            node.disk.full = False

    def _new(self) -> SimulatedNode:
        node = SimulatedNode(self, host_of(len(self.nodes) + 1))
        self.nodes.append(node)
        return node

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    # -- the network --------------------------------------------------------------------------------------------------

    def _link(self, here: str, there: str) -> Link:
        quickest, slowest = self.setup.latency
        share = zlib.crc32(f"{self.setup.seed} {min(here, there)} {max(here, there)}".encode()) / 2**32
        return Link(quickest + share * (slowest - quickest), quickest, width=_WIDTH, down=self._apart(here, there))

    def _apart(self, here: str, there: str) -> bool:
        return (here in self._half) != (there in self._half)

    def cut(self) -> None:
        """Nothing passes between two halves from now on."""
        self._divide({node.host for node in self.nodes[::2]})
        self.serf.cut()

    def heal(self) -> None:
        """All nodes reach each other again."""
        self._divide(set())

    def _divide(self, half: set[str]) -> None:
        self._half = half
        for (here, there), link in self.network.links.items():
            link.down = self._apart(here, there)

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds of the simulated clock."""
        return self.loop.time()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._run(asyncio.sleep(seconds))

    def wait(self, condition: Callable[[], bool], patience: float, what: str) -> float:
        """Let time pass until a condition holds, which is looked at when a log has changed; returns the seconds.

        Raises `TimeoutError` after `patience` seconds.
        """
        return self._run(self._wait(condition, patience, what))

    async def _wait(self, condition: Callable[[], bool], patience: float, what: str) -> float:
        began = self.now
        while not condition():
            self._waiting.clear()
            left = began + patience - self.now
            try:
                await asyncio.wait_for(self._waiting.wait(), left)
            except asyncio.TimeoutError:
                raise TimeoutError(f"{what} takes longer than {patience:g} s") from None
        return self.now - began

    def spent(self) -> Spent:
        """What was spent until now."""
        links = self.network.links.values()
        sync, packets = sum(link.carried for link in links), sum(link.packets for link in links)
        return Spent(self.now, time.process_time(), sync, packets, self.serf.carried)

    def sent(self) -> Counter[str]:
        """Bytes that each host has sent to others until now."""
        found: Counter[str] = Counter()
        for (here, _), link in self.network.links.items():
            found[here] += link.carried
        return found

    # -- users --------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> list[SimulatedNode]:
        """The nodes that are there."""
        return [node for node in self.nodes if node.running]

    def draft(self, name: bytes = b"", parent: Entry | None = None) -> tuple[Entry, Sequence[Block]]:
        """A small change: by default a new file, otherwise of the file that `parent` made or changed."""
        self._drafted += 1
        content = random.Random(f"{self.setup.seed} change {self._drafted}").randbytes(SMALL)
        root, blocks = split(content)
        entry = Entry(
            parent=(parent or _ROOT).hash,
            made=self._drafted,
            action=Action.WRITE,
            name=name or b"change%d" % self._drafted,
            content=Encoded(root, STORED.tag, SMALL).encode(),
            extensions=Extensions(SMALL),
            fingerprint=_KEY.fingerprint,
            signature=bytes(64),
        )
        return entry, blocks

    def write(self, node: SimulatedNode, *, name: bytes = b"", parent: Entry | None = None) -> tuple[Entry, Change]:
        """A small change on a node."""
        entry, blocks = self.draft(name, parent)
        node.commit(entry, blocks)
        change = self._changes[entry.hash] = Change(entry.hash, self.now)
        return entry, change

    def when(self, condition: Callable[[], bool], tell: Callable[[float], None]) -> None:
        """Have `tell` called with the seconds from now until a condition holds, which is looked at as by `wait`."""
        self._awaited.append((condition, tell, self.now))

    def arrived(self, hashes: Sequence[EntryHash]) -> None:
        """Entries are in one more log."""
        for hash in hashes:
            change = self._changes.get(hash)
            if change is not None:
                change.arrivals.append(self.now - change.written)
        self._waiting.set()
        for each in [each for each in self._awaited if each[0]()]:
            self._awaited.remove(each)
            each[1](self.now - each[2])

    # -- members ------------------------------------------------------------------------------------------------------

    def fall(self, node: SimulatedNode) -> None:
        """A machine is switched off."""
        self.serf.fail(node.agent)
        self.loop.create_task(node.fall())

    def rise(self, node: SimulatedNode | None = None) -> SimulatedNode:
        """A machine is switched on again; by default a new one, with an empty log."""
        node = node or self._new()
        self.network.off.discard(node.host)
        self.loop.create_task(self._rise(node))
        return node

    async def _rise(self, node: SimulatedNode) -> None:
        self.serf.join(await node.start())
