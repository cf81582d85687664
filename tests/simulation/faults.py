"""What goes wrong in a run: drawn per seed before it begins, so that each run is hard in its own way."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from basefs.errors import InvalidEntry, NoSpace
from basefs.gossip.events import Address, encode_events
from basefs.log.blocks import Block
from basefs.log.entries import Action, Entry
from basefs.sync.wire.limits import DEFAULT_LIMITS
from tests.simulation.bus import SYNC_PORT, Bus, Habits
from tests.simulation.hostile import HostilePeer
from tests.simulation.loop import Trace
from tests.simulation.network import Link, Network
from tests.simulation.node import Node, Tuning
from tests.simulation.programs import DEEDS
from tests.support.helpers import ALICE, BOB, CAROL, STRANGER
from tests.view.hostile import Hostile, draw_deeds

KINDS = ("partition", "one_way", "clog", "clock", "kill", "power", "restart", "disk", "stranger")
#: Those that are drawn less often.
RARE_KINDS = ("full", "backup", "ghost", "holder", "peer")
#: What goes wrong where there are mounts.
MOUNT_KINDS = ("crash",)
#: Seconds by which a clock jumps: up to a century.
JUMPS = (-3.2e9, -3.2e8, -3600.0, -2.0, 2.0, 3600.0, 3.2e8, 3.2e9)
#: Keys of the hostile key holder: the first is granted from the beginning, and may grant the others.
HOLDERS = (ALICE, ALICE, ALICE, BOB, BOB, CAROL)


@dataclass(frozen=True, slots=True)
class Links:
    """Makes the links of one run, each a little different.

    Attributes:
        seed: of the differences.
        latency, jitter, loss, width: as of `Link`, about.
    """

    seed: int
    latency: float
    jitter: float
    loss: float
    width: float

    def __call__(self, here: str, there: str) -> Link:
        """The link of one direction."""
        chance = random.Random(f"{self.seed} {here} {there}")
        latency, loss = self.latency * chance.uniform(0.5, 2.0), self.loss * chance.uniform(0.0, 2.0)
        return Link(latency, self.jitter, loss, self.width)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, which other processes can be given.

    Attributes:
        seed: of everything else.
        nodes: how many.
        born: those of them whose keys are valid from the beginning.
        seconds: for which users write and things go wrong.
        pause: seconds between what one user does, on average.
        faults: what goes wrong, and seconds between two such faults on average.
        habits: of the bus.
        weights: how often users do what.
        links: what connects the nodes.
        tuning: what each node allows and does.
        twins: whether two nodes have the same key.
        mounted: the numbers of the nodes with a mount, and how often programs do what there.
    """

    seed: int
    nodes: int
    born: int
    seconds: float
    pause: float
    faults: tuple[str, ...]
    fault_pause: float
    habits: Habits
    weights: dict[str, float]
    links: Links
    tuning: Tuning
    twins: bool
    mounted: tuple[int, ...] = ()
    deeds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def draw(cls, seed: int) -> Plan:
        """The plan of a seed."""
        rng = random.Random(f"{seed} plan")
        calm = rng.random() < 0.1
        faults = () if calm else tuple(kind for kind in KINDS if rng.random() < 0.4)
        habits = Habits(
            loses=rng.choice((0.0, 0.1, 0.5, 1.0)),
            repeats=rng.choice((0.0, 0.2)),
            delay=rng.choice((0.1, 0.5, 2.0)),
            remembers=rng.choice((0.0, 0.3, 0.9)),
            mistakes=rng.choice((0.0, 0.0, 0.005)),
        )
        weights = {"write": 10.0, "mkdir": 2.0}
        for kind, weight in (
            ("large", 2.0),
            ("remove", 3.0),
            ("rename", 2.0),
            ("link", 1.0),
            ("mode", 1.0),
            ("grant", 2.0),
            ("revoke", 1.5),
            ("revert", 2.0),
            ("accept", 1.0),
        ):
            if rng.random() < 0.6:
                weights[kind] = weight
        latency, jitter = rng.choice((0.0005, 0.01, 0.08)), rng.choice((0.0, 0.01, 0.1))
        loss, width = rng.choice((0.0, 0.0, 0.02, 0.3)), rng.choice((1e9, 1e7, 1e6, 6e4))
        links = Links(seed, latency, jitter, loss, width)
        nodes = rng.choice((2, 3, 3, 4, 4, 5, 6))
        seconds = rng.choice((10.0, 20.0, 40.0))
        pause = rng.choice((0.3, 0.7, 2.0)) * nodes / 3
        born = nodes if "grant" not in weights else rng.randint(1, nodes)
        fault_pause = rng.choice((2.0, 5.0))
        # What came later is drawn apart, so that earlier seeds without it stay what they were.
        more = random.Random(f"{seed} more")
        if not calm:
            faults += tuple(kind for kind in RARE_KINDS if more.random() < 0.2)
        habits = replace(habits, buffer=more.choice((512, 512, 512, 16)))
        tuning = _tiny(more) if more.random() < 0.2 else Tuning()
        twins = more.random() < 0.1
        plan = cls(
            seed, nodes, born, seconds, pause, faults, fault_pause, habits, weights, links, tuning=tuning, twins=twins
        )
        programs = random.Random(f"{seed} programs")
        if programs.random() < 0.25:
            mounted = tuple(number for number in range(nodes) if programs.random() < 0.6)
            deeds = {kind: weight for kind, weight in DEEDS.items() if programs.random() < 0.7}
            faults += MOUNT_KINDS if mounted and not calm and programs.random() < 0.8 else ()
            return replace(plan, mounted=mounted, deeds={**deeds, "save": DEEDS["save"]}, faults=faults)
        return plan

    def without_mounts(self) -> Plan:
        """The same without programs on mounts."""
        faults = tuple(kind for kind in self.faults if kind not in MOUNT_KINDS)
        return replace(self, mounted=(), faults=faults)

    @property
    def hosts(self) -> list[str]:
        """The addresses of the nodes."""
        return [f"10.0.0.{number}" for number in range(1, self.nodes + 1)]

    def __str__(self) -> str:
        is_tiny = self.tuning != Tuning()
        mounts = " ".join(str(number + 1) for number in self.mounted)
        return (
            f"{self.nodes} nodes, {self.seconds:.0f} s, faults: {' '.join(self.faults) or 'none'}, "
            f"users: {' '.join(self.weights)}{', twins' * self.twins}{', tiny' * is_tiny}"
            f"{', mounts: ' * bool(mounts)}{mounts}"
        )


def _tiny(rng: random.Random) -> Tuning:
    """Limits that are reached all the time, and time-outs that come early; none that an honest peer is blamed for."""
    few: dict[str, Any] = {
        "rounds": 1,
        "batch": 1,
        "orphan_bytes": 300,
        "backlog": 1000,
        "asked": 16,
        "push_backlog": 100,
        "greeting_timeout": 1.0,
        "idle_timeout": 8.0,
        "stall_timeout": 20.0,
    }
    drawn = {name: value for name, value in few.items() if rng.random() < 0.4}
    limits = replace(DEFAULT_LIMITS, silence=3.0, heartbeat=1.0, **drawn)
    return Tuning(limits, rng.choice((1, 3)), rng.choice((1, 2, 16)), rng.choice((0, 4)))


class Faults:
    """Makes what goes wrong go wrong, and right again."""

    def __init__(
        self, plan: Plan, network: Network, bus: Bus, nodes: list[Node], trace: Trace, attacker: HostilePeer
    ) -> None:
        self._plan, self._network, self._bus, self._nodes, self._trace = plan, network, bus, nodes, trace
        self._rng = random.Random(f"{plan.seed} faults")
        #: Also those that are still to come.
        self._hosts = plan.hosts
        self._running: set[asyncio.Task[None]] = set()
        self._attacker = attacker
        self._is_there = False
        #: What the hostile key holder has signed.
        self._signed: dict[bytes, Entry] = {}
        self._blocks: dict[bytes, Block] = {}

    def begin_blackout(self, before: Callable[[], None]) -> None:
        """At some moment, all processes are killed at once; `before` is called some seconds earlier."""
        self._running.add(self._network.loop.create_task(self._black_out(before)))

    async def _black_out(self, before: Callable[[], None]) -> None:
        rng = random.Random(f"{self._plan.seed} blackout")
        await asyncio.sleep(rng.uniform(0.2, 0.6) * self._plan.seconds)
        before()
        await asyncio.sleep(rng.uniform(0.0, 6.0))
        self._trace("world", "all processes are killed")
        killed = [node for node in self._nodes if node.running]
        for node in killed:
            node.kill()
        await asyncio.sleep(rng.choice((0.3, 3.0)))
        for node in killed:
            await node.start(self._hosts, self._plan.seed)

    async def run(self) -> None:
        """Until the seconds of the plan have passed; afterwards everything works again."""
        loop = self._network.loop
        end = loop.time() + self._plan.seconds
        while self._plan.faults:
            pause = self._rng.expovariate(1 / self._plan.fault_pause)
            if loop.time() + pause >= end:
                break
            await asyncio.sleep(pause)
            kind = self._rng.choice(self._plan.faults)
            seconds = min(self._rng.choice((0.5, 3.0, 10.0, 20.0)), end - loop.time())
            task = loop.create_task(getattr(self, f"_{kind}")(seconds))
            self._running.add(task)
        await asyncio.sleep(max(end - loop.time(), 0.0))
        for task in self._running:
            await task
        if self._signed:
            # Where power was cut, contents that the holder gave to nobody else would be missing for ever.
            self._nodes[0].receive(list(self._signed.values()), list(self._blocks.values()))

    async def _cut(self, links: list[Link], seconds: float) -> None:
        for link in links:
            link.down += 1
        await asyncio.sleep(seconds)
        for link in links:
            link.down -= 1

    async def _partition(self, seconds: float) -> None:
        half = self._rng.sample(self._hosts, self._rng.randint(1, len(self._hosts) - 1))
        self._trace("world", f"partition of {' '.join(sorted(half))} for {seconds:.1f} s")
        pairs = [(here, there) for here in self._hosts for there in self._hosts if (here in half) != (there in half)]
        await self._cut([self._network.link(*pair) for pair in pairs], seconds)

    async def _one_way(self, seconds: float) -> None:
        here, there = self._rng.sample(self._hosts, 2)
        self._trace("world", f"nothing from {here} to {there} for {seconds:.1f} s")
        await self._cut([self._network.link(here, there)], seconds)

    async def _clog(self, seconds: float) -> None:
        here, there = self._rng.sample(self._hosts, 2)
        extra = self._rng.choice((0.3, 2.0, 8.0))
        self._trace("world", f"{extra} s more from {here} to {there} for {seconds:.1f} s")
        link = self._network.link(here, there)
        link.extra += extra
        await asyncio.sleep(seconds)
        link.extra -= extra

    async def _clock(self, seconds: float) -> None:
        node = self._rng.choice(self._nodes)
        node.clock.ahead += self._rng.choice(JUMPS)
        self._trace("world", f"clock of {node.host} is ahead by {node.clock.ahead:.0f} s")

    async def _disk(self, seconds: float) -> None:
        node = self._rng.choice(self._nodes)
        if not node.running:
            return
        process = node.process
        self._trace("world", f"disk of {node.host} is slow for {seconds:.1f} s")
        process.disk = self._rng.choice((0.1, 1.0))
        await asyncio.sleep(seconds)
        process.disk = node.disk

    async def _full(self, seconds: float) -> None:
        node = self._rng.choice(self._nodes)
        node.fill_disk(True)
        await asyncio.sleep(seconds)
        node.fill_disk(False)

    async def _backup(self, seconds: float) -> None:
        """What a node had before is put back later."""
        node = self._rng.choice(self._nodes)
        saved = node.save()
        await asyncio.sleep(seconds)
        if node.running:
            node.kill(restored=saved)
            await asyncio.sleep(self._rng.uniform(0.1, 3.0))
            await node.start(self._hosts, self._plan.seed)

    async def _ghost(self, seconds: float) -> None:
        """All hear of a member that is not there: nothing answers at its address, or nothing listens."""
        ghost = f"10.0.1.{self._rng.randint(1, 9)}"
        self._trace("world", f"members are told of {ghost} for {seconds:.1f} s")
        if self._rng.random() < 0.5:
            self._network.off.add(ghost)
        self._bus.ghosts.add(ghost)
        await asyncio.sleep(seconds)
        self._bus.ghosts.discard(ghost)
        self._network.off.discard(ghost)

    async def _peer(self, seconds: float) -> None:
        if not self._is_there:
            self._is_there = True
            self._trace("world", f"a hostile peer takes part for {seconds:.1f} s")
            await self._attacker.run(seconds)

    async def _holder(self, seconds: float) -> None:
        """Somebody with a key signs what no honest node writes."""
        self._trace("world", f"a hostile key holder writes for {seconds:.1f} s")
        loop = self._network.loop
        end = loop.time() + seconds
        while loop.time() < end:
            node = self._rng.choice(self._nodes)
            begin = list(node.entries.values())
            hostile = Hostile(draw_deeds(self._rng, 8), begin, HOLDERS)
            entries, blocks = hostile.entries[len(begin) :], hostile.blocks
            self._signed.update((entry.hash, entry) for entry in entries)
            self._blocks.update(blocks)
            if self._rng.random() < 0.3:
                self._rng.shuffle(entries)
            if node.running:
                with contextlib.suppress(NoSpace):
                    node.receive(entries, list(blocks.values()))
            await asyncio.sleep(self._rng.uniform(0.3, 3.0))

    async def _stranger(self, seconds: float) -> None:
        """Somebody without a key speaks on the bus: what is signed by a key that nobody granted, and what is broken."""
        self._trace("world", f"a stranger gossips for {seconds:.1f} s")
        loop = self._network.loop
        end = loop.time() + seconds
        while loop.time() < end:
            node = self._rng.choice(self._nodes)
            parent = self._rng.choice(list(node.entries.values()))
            action = self._rng.choice((Action.WRITE, Action.DELETE, Action.MKDIR, Action.REVOKE))
            content = STRANGER.fingerprint if action is Action.REVOKE else b""
            name = self._rng.choice((b"a", b"d", parent.name))
            with contextlib.suppress(InvalidEntry):
                forged = STRANGER.sign(parent.hash, parent.made + 1, action, name, content)
                at = Address(self._rng.choice(self._hosts), SYNC_PORT)
                (payload,) = encode_events([forged.encode()], [], at)
                broken = bytearray(payload)
                broken[self._rng.randrange(len(broken))] ^= 1 << self._rng.randrange(8)
                for each in (payload, bytes(broken)):
                    self._bus.spread(node.host, each)
            await asyncio.sleep(self._rng.uniform(0.1, 1.0))

    async def _kill(self, seconds: float) -> None:
        await self._down(self._rng.choice(self._nodes), seconds, off=False)

    async def _power(self, seconds: float) -> None:
        await self._down(self._rng.choice(self._nodes), seconds, off=True)

    async def _crash(self, seconds: float) -> None:
        """A node with a mount ends again and again in the middle of what it does."""
        loop = self._network.loop
        end = loop.time() + seconds
        mounted = [node for node in self._nodes if node.is_mounted]
        if not mounted:
            return
        node = self._rng.choice(mounted)
        while node.running and loop.time() < end:
            await asyncio.sleep(self._rng.uniform(0.0, 1.5))
            off = "power" in self._plan.faults and self._rng.random() < 0.5
            await self._down(node, self._rng.uniform(0.05, 1.0), off=off)

    async def _restart(self, seconds: float) -> None:
        node = self._rng.choice(self._nodes)
        if node.running:
            await node.leave()
            await asyncio.sleep(seconds)
            await node.start(self._hosts, self._plan.seed)

    async def _down(self, node: Node, seconds: float, *, off: bool) -> None:
        if not node.running:
            return
        if not node.is_mounted:
            node.kill(off=off)
        elif not await node.doom(self._rng, off=off):
            return
        await asyncio.sleep(seconds)
        if node.is_mounted and self._rng.random() < 0.3:
            node.doom_start(self._rng)
        self._network.off.discard(node.host)
        await node.start(self._hosts, self._plan.seed)
