"""Plays one seed, and says what went wrong that must not."""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from basefs.errors import NoSpace
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.view.gossipkey import sign_secret
from basefs.view.states import Kind
from tests.simulation.asking import Asker
from tests.simulation.bus import Bus, Habits
from tests.simulation.checks import Checks
from tests.simulation.closed import Newcomers, Secrecy
from tests.simulation.faults import Faults, Plan
from tests.simulation.hostile import HostilePeer
from tests.simulation.loop import BEGINNING, Loop, Trace
from tests.simulation.mount import Mount, Saves
from tests.simulation.network import Network
from tests.simulation.node import Node, Traits, Tuning
from tests.simulation.programs import Program
from tests.simulation.scenes import Scene
from tests.simulation.soon import Soon
from tests.simulation.users import COMMANDS, User
from tests.support.helpers import ALICE, copy_replica, genesis, make_key, make_replica

#: Seconds of the loop within which all nodes are equal after the last fault and the last write: a large content needs a
#: minute on the narrowest link.
SETTLED = 240.0
#: Programs on each mount.
PROGRAMS = 2
#: Seconds of the loop within which a node stops.
STOPPED = 30.0
#: A member that is heard in gossip, and whose sync port nobody reaches.
DEAF = "10.0.2.1"
#: Where logs are written the fastest.
_MEMORY = Path("/dev/shm")


class Failed(Exception):
    """A promise was broken."""


@dataclass
class Outcome:
    """What became of a seed.

    Attributes:
        failure: what went wrong, "" if nothing did.
        trace: what happened, a line each.
        digest: of the trace.
        seconds: of the loop in all, and until all nodes were equal after the last fault.
        spent: seconds of the processor.
    """

    plan: Plan
    failure: str = ""
    trace: list[str] = field(default_factory=list)
    digest: str = ""
    seconds: float = 0.0
    settled: float = 0.0
    entries: int = 0
    spent: float = 0.0


class _Errors(logging.Handler):
    """Collects what the nodes log as errors, but for full disks."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        if not any(isinstance(argument, NoSpace) for argument in arguments):
            self.lines.append(self.format(record))


class World:
    """The cluster of one run."""

    def __init__(self, loop: Loop, plan: Plan, scene: Scene, directory: Path) -> None:
        self.loop, self.plan, self.scene = loop, plan, scene
        # Errors name files.
        self.trace = Trace(loop, without=f"{directory}/")
        self.network = Network(loop, plan.seed, self.trace, plan.links)
        self.bus = Bus(self.network, plan.habits, random.Random(f"{plan.seed} bus"), self.trace)
        keys = [make_key(f"node {number}") for number in range(plan.nodes)]
        # The others need a grant.
        is_closed, newcomers = self.scene.is_closed, self.scene.newcomers or 0
        born = keys[: plan.nodes - newcomers] if is_closed else keys[: plan.born]
        if plan.twins:
            keys[-1] = keys[0]
        if "holder" in plan.faults:
            born = [*born, ALICE]
        self.saves = Saves()
        nodes = self._make_nodes(keys, born, directory)
        self.everybody = nodes
        #: Those that have a log, and all in the end.
        self.nodes = nodes[: plan.nodes - newcomers]
        self.keys = keys
        self.hosts = plan.hosts
        first, members = Replica(directory / "first"), [key.public for key in born] if is_closed else None
        self.attacker = HostilePeer(self.network, self.bus, first, self.hosts, plan.seed, members)
        self.checks = Checks(self.nodes, loses_contents=is_closed or "backup" in plan.faults, is_closed=is_closed)
        self.network.is_encrypted = is_closed
        self.newcomers = Newcomers(
            loop, self.trace, self.nodes, nodes[len(self.nodes) :], plan.seed, invites=self.scene.invites
        )
        self.secrecy = Secrecy(loop, self.bus, nodes)
        self.asker = Asker(loop, self.nodes, plan.seed)
        is_wide = plan.links.loss < 0.1 and plan.links.width >= 1e6
        is_calm = not plan.faults and is_wide and plan.tuning == Tuning()
        # Gossip alone brings one or two changes a second, the rest comes with the periodic session.
        self.soon = Soon(loop, nodes) if is_calm and self.scene.pushes and not is_closed else None
        self.written: dict[EntryHash, bytes] = {}
        if is_closed:
            self.bus.on_change = self.secrecy.look
        for node in nodes:
            node.on_commit = self._committed
        self.errors = _Errors()

    def _make_nodes(self, keys: list[SigningKey], born: list[SigningKey], directory: Path) -> list[Node]:
        entries = genesis(born)
        if self.scene.is_closed:
            entries.append(sign_secret(born[0], entries[-1].hash, entries[-1].made))
        first = make_replica(directory / "first", born=entries)
        nodes = []
        for number, key in enumerate(keys, 1):
            host = f"10.0.0.{number}"
            power, where = "power" in self.plan.faults, directory / host
            mount = Mount(host, self.loop, self.saves) if number - 1 in self.plan.mounted else None
            node = Node(
                self.network,
                self.bus,
                host,
                [key],
                where,
                self.scene.tune(self.plan.tuning),
                Traits(power, self.scene.is_closed, mount),
            )
            if number <= self.plan.nodes - (self.scene.newcomers or 0):
                copy_replica(first, directory / host).close()
                node.entries.update((entry.hash, entry) for entry in entries)
            nodes.append(node)
        first.close()
        return nodes

    def _committed(self, node: Node) -> None:
        self.checks.committed(node)
        self.asker.committed(node)
        if self.soon is not None:
            self.soon.committed(node)
        if self.scene.is_closed:
            self.secrecy.committed(node)

    async def play(self) -> float:
        """The whole run; returns the seconds that it took to settle.  Raises `Failed`."""
        self.trace("world", f"{self.plan}; {self.scene}")
        for node in list(self.nodes):
            await node.start(self.hosts, self.plan.seed)
        watch = self.loop.create_task(self._watch())
        faults = Faults(self.plan, self.network, self.bus, self.nodes, self.trace, self.attacker)
        users = [self._use(node, number) for number, node in enumerate(self.everybody)]
        coming = self.loop.create_task(self.newcomers.run(self.plan.seconds, self.hosts))
        if self.scene.asks:
            users.append(self.asker.run(self.plan.seconds))
        if self.scene.blacks_out:
            faults.begin_blackout(self._expel)
        if self.scene.deaf:
            self.bus.ghosts.add(DEAF)
            self.network.off.add(DEAF)
        programs = [self._run(node, number) for node in self.nodes if node.is_mounted for number in range(PROGRAMS)]
        await asyncio.gather(faults.run(), *users, *programs)
        self.attacker.leave()
        self.bus.habits = Habits()
        self.trace("world", "everything works")
        if not (await asyncio.wait([coming], timeout=SETTLED))[0]:
            raise Failed(f"a newcomer has not joined within {SETTLED:.0f} s")
        coming.result()
        # Where a key is granted and revoked concurrently the revoke wins: what is granted follows all that was revoked.
        known = await self._settle(self.checks.log_difference)
        self._tidy()
        settled = known + await self._settle(self.checks.difference)
        self.trace("world", f"equal after {settled:.2f} s")
        # The views are compared by the nodes themselves.
        await asyncio.sleep(20.0)
        self.checks.now()
        self._require(self._found)
        watch.cancel()
        self._require(self.checks.end(self.written) + (self.secrecy.end() if self.scene.is_closed else []))
        self._require(self.checks.lost(self.saves) + await self._again())
        for node in self.nodes:
            stopping = self.loop.create_task(node.stop())
            if not (await asyncio.wait({stopping}, timeout=STOPPED))[0]:
                raise Failed(f"{node.host} does not stop within {STOPPED:.0f} s")
            stopping.result()
        await asyncio.sleep(STOPPED)
        self._require(self._left_over())
        # One of them, as the signatures are verified again.
        self._require(self.nodes[self.plan.seed % len(self.nodes)].damage())
        self._require(self.network.found + self.errors.lines + self.attacker.found)
        return settled

    def _tidy(self) -> None:
        """What the log refuses, it takes once its node may write everywhere; what a power cut has emptied goes."""
        for node in self.nodes:
            if not node.is_mounted or not node.running:
                continue
            key, first = node.keys[0], self.nodes[0]
            if not self.scene.is_closed and not node.replica.may_write(()):
                first.act(lambda author, key=key: author.grant((), b"tidy", key.public))
            for path, (kind, _, content) in node.mount.shown().items():
                if kind is Kind.FILE and not content:
                    Path(node.mount.place(path)).unlink()
                    node.mount.tell(path, inode=0)

    async def _again(self) -> list[str]:
        """What changes where a process with a mount ends, and starts on what it has left."""
        found = []
        for node in [each for each in self.nodes if each.is_mounted]:
            shown, root = node.mount.shown(), node.replica.root_hash()
            await node.leave()
            await node.start(self.hosts, self.plan.seed)
            await asyncio.sleep(5.0)
            if node.replica.root_hash() != root:
                found.append(f"{node.host} has published something anew after a start")
            if node.mount.shown() != shown:
                found.append(f"{node.host} has changed its worktree in a start")
        return found

    def _expel(self) -> None:
        """In a closed filesystem, the holder of the root key expels a node."""
        if self.scene.is_closed and self.nodes[0].running:
            rng = random.Random(f"{self.plan.seed} expel")
            User(self.nodes[0], self.keys, rng, {"expel": 1.0}).act(self.trace)

    async def _use(self, node: Node, number: int) -> None:
        rng = random.Random(f"{self.plan.seed} user {number}")
        weights = self.plan.weights | self.scene.weights
        if node.is_mounted:
            # All else is done by programs.
            weights = {kind: weight for kind, weight in weights.items() if kind in COMMANDS}
            if not weights:
                return
        user = User(node, self.keys, rng, weights)
        end = self.loop.time() + self.plan.seconds
        while (pause := rng.expovariate(1 / self.plan.pause)) + self.loop.time() < end:
            await asyncio.sleep(pause)
            if node.running:
                user.act(self.trace)
        self.written.update(user.written)
        self.checks.found += user.found

    async def _run(self, node: Node, number: int) -> None:
        rng = random.Random(f"{self.plan.seed} program {node.host} {number}")
        program = Program(node, rng, self.plan.deeds)
        end = self.loop.time() + self.plan.seconds
        while (pause := rng.expovariate(1 / self.plan.pause)) + self.loop.time() < end:
            await asyncio.sleep(pause)
            await program.act()

    async def _watch(self) -> None:
        """Look at what must be true at any time."""
        while True:
            await asyncio.sleep(1.0)
            self.checks.now()
            if self.scene.is_closed:
                self.secrecy.now()
            if self.soon is not None:
                self.soon.now()

    async def _settle(self, look: Callable[[], str]) -> float:
        """Wait until there is no difference; returns the seconds that it took.  Raises `Failed`."""
        began = self.loop.time()
        while difference := look():
            if self.loop.time() - began > SETTLED:
                raise Failed(f"after {SETTLED:.0f} s without a fault {difference}")
            self._require(self._found)
            await asyncio.sleep(0.25)
        return self.loop.time() - began

    @property
    def _found(self) -> list[str]:
        late = [] if self.soon is None else self.soon.found
        return self.checks.found + self.secrecy.found + self.asker.found + late + self.errors.lines

    def _left_over(self) -> list[str]:
        """What goes on although all nodes have stopped."""
        tasks = [task.get_coro() for task in asyncio.all_tasks() - {asyncio.current_task()}]
        names = sorted(str(getattr(each, "__qualname__", each)) for each in tasks)
        return [f"{name} goes on after the end" for name in names] + [
            f"the connection of {each} stays open after the end" for each in self.network.open_connections
        ]

    @staticmethod
    def _require(found: list[str]) -> None:
        if found:
            raise Failed("; ".join(found[:3]))


def play(seed: int, *, plain: bool = False) -> Outcome:
    """Play a seed; `plain`: without mounts and scenes."""
    plan = Plan.draw(seed)
    scene = Scene() if plain else Scene.draw(plan)
    plan = plan.without_mounts() if plain else plan
    outcome = Outcome(plan)
    began = time.process_time()
    loop = Loop()
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=where) as directory:
        world = World(loop, plan, scene, Path(directory))
        log = logging.getLogger("basefs")
        log.addHandler(world.errors)
        loop.set_exception_handler(lambda _, context: world.errors.lines.append(_describe(context)))
        try:
            outcome.settled = loop.run_until_complete(world.play())
        except Exception as error:
            outcome.failure = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        finally:
            log.removeHandler(world.errors)
            _close(loop, world)
    outcome.trace, outcome.digest = world.trace.lines, world.trace.digest
    outcome.seconds = loop.time() - BEGINNING
    outcome.entries = len(world.nodes[0].entries)
    outcome.spent = time.process_time() - began
    return outcome


def _describe(context: dict) -> str:
    error = context.get("exception")
    return f"{context['message']}: {error!r}"


def _close(loop: Loop, world: World) -> None:
    """Leave nothing behind, also of a run that failed."""
    loop.set_exception_handler(lambda _, context: None)

    async def stop() -> None:
        await asyncio.wait([loop.create_task(node.stop()) for node in world.nodes], timeout=STOPPED)
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=1.0)

    loop.run_until_complete(stop())
    loop.close()
