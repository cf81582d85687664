"""One node: the real log, sync and replication of a daemon, on the simulated loop, network and bus."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from basefs.daemon import config
from basefs.errors import BaseFSError, NoSpace
from basefs.gossip.events import Address
from basefs.gossip.service import Gossip
from basefs.log.blocks import Block
from basefs.log.check import check
from basefs.log.entries import Action, Entry
from basefs.log.hashes import BlockHash
from basefs.log.keys import SigningKey
from basefs.log.room import Room
from basefs.path import Path as Names
from basefs.replica.replica import LOG_FILE, Applied, Replica
from basefs.replication.propagation import Propagation, PropagationSettings
from basefs.sync.net.peers import Address as SyncAddress
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import SessionContext
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.result import Result
from basefs.sync.session.states import Phase
from basefs.sync.wire.limits import DEFAULT_LIMITS, Limits
from basefs.tasks import is_set_within
from tests.simulation.bus import SYNC_PORT, Bus, SimulatedGossip
from tests.simulation.disk import Synced, back_up, copy_disk, cut_log, empty_files, move_tree
from tests.simulation.gate import Gate
from tests.simulation.heard import Heard
from tests.simulation.loop import BEGINNING, PROCESS, Process, Trace
from tests.simulation.mount import Boundaries, Killed, Mount, Worktree
from tests.simulation.network import Network

#: UNIX seconds at which a run begins.
BIRTH = 1_000_000_100.0
#: Seconds after which what has come survives a power cut: a slow disk takes up to a second for each job.
DURABLE = 5.0
#: Bytes that are free on the disk of a node that is not full.
FREE = 1 << 40
#: Where the hostile peer of a run is: what honest nodes say of it is no accusation of an honest node.
HOSTILE = "10.0.0.66"


@dataclass(frozen=True, slots=True)
class Tuning:
    """What each node of a run allows and does, as its daemon would have it unless a run draws something tiny.

    Attributes:
        limits: of sessions.
        degree: sessions that stay open for news.
        sessions: that others may have with a node at once.
        block_messages: gossip events of blocks for one content at the most.
    """

    limits: Limits = DEFAULT_LIMITS
    degree: int = config.PUSH_SESSIONS
    sessions: int = config.SYNC_SESSIONS
    block_messages: int = config.MAX_BLOCK_MESSAGES


@dataclass(frozen=True, slots=True)
class Saved:
    """A copy of the disk of a node.

    Attributes:
        directory: where it is.
        entries: what it has taken, by hash.
    """

    directory: Path
    entries: dict[bytes, Entry]


class Clock:
    """A node's clock, which may be wrong.

    Attributes:
        ahead: seconds.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.ahead = 0.0

    def __call__(self) -> float:
        """UNIX seconds."""
        return BIRTH + self._time() - BEGINNING + self.ahead


class Watched:
    """Hears what sessions tell replication, and notes how they end."""

    def __init__(self, propagation: Propagation, process: Process, trace: Trace) -> None:
        self._propagation = propagation
        self._process = process
        self._trace = trace
        #: Ends that honest nodes do not have.
        self.accusations: list[str] = []

    def on_result(self, address: SyncAddress, result: Result) -> None:
        if self._process.alive:
            self._trace(f"{self._process.host} {address[0]}", f"session: {result.reason.value}: {result.detail}")
            if result.offends and address[0] != HOSTILE:
                what = f"{result.reason.value}: {result.detail}: {result.counters.refusal}"
                self.accusations.append(f"{self._process.host} accuses {address[0]}: {what}")
        self._propagation.on_result(address, result)

    def on_gap(self, address: SyncAddress) -> None:
        self._propagation.on_gap(address)

    def on_progress(self, address: SyncAddress, phase: Phase) -> None:
        self._propagation.on_progress(address, phase)


@dataclass(frozen=True)
class Traits:
    """What a node is like.

    Attributes:
        loses_power: whether its machine ever does.
        is_closed: whether its filesystem lets in members only.
        mount: where programs change its filesystem, `None` where nobody does.
    """

    loses_power: bool = False
    is_closed: bool = False
    mount: Mount | None = None


class Node:
    """A machine with one filesystem.

    Attributes:
        host: its address.
        clock: its clock, which keeps its error over a restart.
        keys: what it signs with.
        entries: all that its log has taken, by hash.
        running: whether there is a process.
        on_commit: is called after changes of the log.
        worktree: that of its process, if it is mounted.
        cut: the blocks that power cuts have taken from it.
        forgotten: the raw public keys that it had let in, as far as old backups have taken that from it.
    """

    worktree: Worktree | None = None

    def __init__(
        self,
        network: Network,
        bus: Bus,
        host: str,
        keys: Sequence[SigningKey],
        directory: Path,
        tuning: Tuning,
        traits: Traits,
    ) -> None:
        """`directory`: holds the log of the filesystem as it begins."""
        self._traits = traits
        self.cut: set[BlockHash] = set()
        self.forgotten: set[bytes] = set()
        #: The blocks that it had when its power was cut.
        self._had: set[BlockHash] = set()
        self._boundaries = Boundaries()
        #: How often the machine has started, and what is done where the process ends in the middle of something.
        self._boots = 0
        self._die: Callable[[], object] = lambda: None
        self.host = host
        self.on_commit: Callable[[Node], None] = lambda node: None
        self._tuning = tuning
        self._is_full = self._told = False
        self.clock = Clock(network.loop.time)
        self.keys = list(keys)
        self.entries: dict[bytes, Entry] = {}
        self.running = False
        self.disk = 0.003
        self.accusations: list[str] = []
        self._network, self._bus, self._loop, self._trace = network, bus, network.loop, bus.trace
        self._directory = directory
        #: What survives a power cut: the log as it was synced last, with these entries.
        self._synced = Synced()
        self._synced_entries: dict[bytes, Entry] = {}
        self._number = self._copies = 0
        self._ending: list[asyncio.Task[None]] = []
        #: The blocks that were missing when the last process ended, `None` if others may have been lost since.
        self._lacked: set[BlockHash] | None = None
        #: When each entry came, and when the disk was full last.
        self._taken_at: dict[bytes, float] = {}
        self._full_at = float("-inf")

    async def start(self, hosts: Sequence[str], seed: int) -> None:
        """Start a process; `hosts`: all of the cluster."""
        self._seed = seed
        await self._loop.create_task(self._start(hosts, random.Random(f"{seed} {self.host} {self._number}")))

    async def _start(self, hosts: Sequence[str], rng: random.Random) -> None:
        self.process = Process(self.host, rng, self.disk)
        PROCESS.set(self.process)
        time = self._loop.time
        room = Room(self._directory, lambda _: 0 if self._is_full else FREE, time)
        self.replica = replica = Replica(
            self._directory, self.keys, clock=self.clock, steady=time, spent=time, room=room
        )
        self._limit_disk()
        if self._had:
            self.cut |= self._had - self._blocks()
            self._had.clear()
        self._absorb()
        lost = [entry for entry in self.entries if replica.entry(entry) is None]
        assert not lost, f"{self.host} has lost {len(lost)} entries by being killed"
        again = self._lacking(replica) - self._lacked if self._lacked is not None else ()
        assert not again, f"{self.host} has lost {len(again)} blocks by being killed"
        gossip = SimulatedGossip(self._bus, self.host, hosts)
        gate = None
        if self._traits.is_closed:
            gate = Gate(replica, gossip, self.clock, lambda address: propagation.compare(address), rng)
        requests = RequestTable(rng.random)
        self.shared = SessionContext(limits=self._tuning.limits, requests=requests, room=room, rng=rng)
        if gate is not None:
            self.shared = gate.close_to_others(self.shared)
        self.sync = SyncService(
            replica,
            (self.host, SYNC_PORT),
            peers=lambda: [peer.sync_address for peer in gossip.peers if peer.status == "alive"],
            degree=self._tuning.degree,
            max_sessions=self._tuning.sessions,
            shared=self.shared,
        )
        propagation = Propagation(
            replica,
            cast(Gossip, gossip),
            self.sync,
            lambda: Address(self.host, SYNC_PORT),
            self._loop,
            PropagationSettings(
                self._tuning.block_messages, config.PULL_JITTER, config.FULL_SYNC_INTERVAL, config.SYNC_PROBABILITY
            ),
            rng,
        )
        self.watched = Watched(propagation, self.process, self._trace)
        process = self.process
        replica.subscribe(lambda applied: self._note(process, applied))
        if self.is_mounted:
            if not self._number:
                self.mount.serve(self._directory)
            try:
                self.worktree = Worktree(replica, process, self._loop, self.mount, self._boundaries, str(self._boots))
            except Killed:
                self._trace(self.host, "ends in the middle of its start")
                replica.close()
                await self._start(hosts, rng)
                return
            self._boundaries.disarm()
        if not self._number:
            self._sync_to_disk(process, replica)
        # Seen before anything is committed.
        self.heard = Heard(replica)
        await self.sync.start(self.watched)
        propagation.start()
        gossip.start(propagation.on_event, propagation.on_members, propagation.announce)
        tasks = [
            asyncio.create_task(self._watch(propagation)),
            asyncio.create_task(self._keep_durable(process, replica)),
            asyncio.create_task(self._watch_room(room)),
        ]
        if gate is not None:
            tasks += [asyncio.create_task(each) for each in gate.lasting(self.sync)]
        if self.worktree is not None:
            self.worktree.start(lambda: self._die())
        self._parts = propagation, gossip, self.sync, replica, tasks
        self.running = True
        self._told = True
        self._loop.call_soon(self._tell_of_commits)
        self._trace(self.host, f"started with {replica.digest().entries} entries")

    def _blocks(self) -> set[BlockHash]:
        """All that it has.  No call lists them."""
        return {BlockHash(hash) for (hash,) in self.replica._store.database.main.execute("SELECT hash FROM blocks")}

    @property
    def named_keys(self) -> set[bytes]:
        """The raw public keys that its log names as granted or admitted, also those that were revoked since."""
        return {entry.content for entry in self.entries.values() if entry.action in (Action.GRANT, Action.ADMIT)}

    @staticmethod
    def _lacking(replica: Replica) -> set[BlockHash]:
        return {hash for _, hash in replica.missing_blocks(1 << 20)}

    def _note(self, process: Process, applied: Applied) -> None:
        if not process.alive or not (applied.entries or applied.completed or applied.rejected):
            return
        self.entries.update((entry.hash, entry) for entry in applied.entries)
        self._taken_at.update((entry.hash, self._loop.time()) for entry in applied.entries)
        new = " ".join(f"{entry.action.name.lower()}:{entry.hash.hex()[:8]}" for entry in applied.entries)
        self._trace(self.host, f"{'writes' if applied.local else 'takes'} {new} +{len(applied.completed)} contents")
        if not self._told:
            # What is committed in answer to this comes first.
            self._told = True
            self._loop.call_soon(self._tell_of_commits)

    def _tell_of_commits(self) -> None:
        self._told = False
        self.on_commit(self)

    # -- the mount ----------------------------------------------------------------------------------------------------

    @property
    def is_mounted(self) -> bool:
        """Whether programs use it."""
        return self._traits.mount is not None

    @property
    def mount(self) -> Mount:
        """Where programs use it."""
        assert self._traits.mount is not None
        return self._traits.mount

    def differing(self) -> list[Names]:
        """Where programs find something else than the view shows, or what the log does not have yet."""
        if not self.running or self.worktree is None:
            return []
        return self.mount.differing(self.replica) or [()] * self.worktree.filesystem.unpublished()

    def _absorb(self) -> None:
        """What a process has committed in its last moment was accepted, too; what a power cut has taken was not."""
        for raw in self.replica.walk(()):
            entry = Entry.decode(raw)
            self.entries.setdefault(entry.hash, entry)

    async def doom(self, chance: random.Random, *, off: bool) -> bool:
        """Kill the process while it changes its disk, or a moment later if it does not; false if it ends otherwise."""
        if self._boundaries.is_armed:
            return False
        died = asyncio.Event()

        def die() -> None:
            self.kill(off=off)
            died.set()

        self._die = die
        self._boundaries.arm(int(chance.expovariate(1 / 20)))
        process = self.process
        await is_set_within(died, 2.0)
        if process.alive and process is self.process and self.running:
            die()
        return died.is_set()

    def doom_start(self, chance: random.Random) -> None:
        """Let the next process end while it starts."""
        self._boundaries.arm(int(chance.expovariate(1 / 20)))

    def end_with_process(self, task: asyncio.Task[None]) -> None:
        """Cancel a task when the process ends."""
        self._parts[4].append(task)

    def note(self, text: str) -> None:
        """A program on the mount has done something."""
        self._trace(self.host, f"program: {text}")

    # -- the disk -----------------------------------------------------------------------------------------------------

    async def _watch(self, propagation: Propagation) -> None:
        while True:
            await asyncio.sleep(config.WATCH_SECONDS)
            # As the daemon: what does not fit the disk costs one step (`basefs/daemon/lasting.py`).
            with contextlib.suppress(NoSpace):
                await propagation.look_again()

    async def _keep_durable(self, process: Process, replica: Replica) -> None:
        while True:
            await asyncio.sleep(config.DURABLE_SECONDS)
            if not replica.is_durable:
                with contextlib.suppress(NoSpace):
                    await asyncio.to_thread(self._sync_to_disk, process, replica)

    async def _watch_room(self, room: Room) -> None:
        while True:
            await asyncio.sleep(5.0)
            room.look()

    def _sync_to_disk(self, process: Process, replica: Replica) -> None:
        replica.sync_to_disk()
        if process.alive and self._traits.loses_power:
            if self.is_mounted:
                self.mount.closed.clear()
            self._synced, self._synced_entries = Synced.now(self._directory), dict(self.entries)

    def begin(self, identity: bytes) -> tuple[Replica, dict[bytes, Entry]]:
        """An empty log for a machine that is still to join, and the entries that it takes until it is closed."""
        self._directory.mkdir()
        Replica.create(self._directory, identity).close()
        time = self._loop.time
        replica = Replica(self._directory, self.keys, clock=self.clock, steady=time, spent=time)
        entries: dict[bytes, Entry] = {}
        replica.subscribe(lambda applied: entries.update((entry.hash, entry) for entry in applied.entries))
        return replica, entries

    def save(self) -> Saved:
        """A backup of the disk."""
        self._copies += 1
        self._trace(self.host, f"is saved with {len(self.entries)} entries")
        copy = self._copy_of(f"backup-{self._copies}")
        back_up(self._directory, copy)
        return Saved(copy, dict(self.entries))

    def _look_at_lost(self) -> None:
        """What came a while before a power cut must have been synced, whichever process took it."""
        now = self._loop.time()
        lost = [hash for hash, at in self._taken_at.items() if now - at > DURABLE and hash not in self._synced_entries]
        if lost and not self._is_full and now - self._full_at > 2 * DURABLE:
            self.accusations.append(f"{self.host} has lost {len(lost)} entries that are older than {DURABLE:.0f} s")

    def fill_disk(self, is_full: bool) -> None:
        """Let the disk take nothing more, or something again."""
        self._is_full, self._full_at = is_full, self._loop.time()
        self._trace(self.host, "disk is full" if is_full else "disk has room")
        if self.running:
            self._limit_disk()

    def _limit_disk(self) -> None:
        """SQLite answers as on a full disk once a file would grow."""
        database = self.replica._store.database
        (pages,) = database.main.execute("PRAGMA page_count").fetchone()
        for connection in (database.main, database.aside):
            connection.execute(f"PRAGMA max_page_count = {pages if self._is_full else 1 << 30}")

    def _copy_of(self, name: str) -> Path:
        """Where a copy of the disk is."""
        return self._directory.with_name(f"{self.host}-{name}")

    def act(self, make: Callable[[Any], Any]) -> Applied:
        """Have a user commit something.  Raises as `Replica.commit`."""
        token = PROCESS.set(self.process)
        try:
            return self.replica.commit(make)
        finally:
            PROCESS.reset(token)

    def receive(self, entries: Sequence[Entry], blocks: Sequence[Block]) -> None:
        """Take in what somebody brings who is no node of the cluster."""
        token = PROCESS.set(self.process)
        try:
            self.replica.apply(entries, blocks, peer=HOSTILE)
        finally:
            PROCESS.reset(token)

    def kill(self, *, off: bool = False, restored: Saved | None = None) -> None:
        """Kill the process: nothing that it does afterwards reaches anybody.

        What it has committed stays; if the machine is switched `off`, what was synced; what was saved, if that is
        `restored`.
        """
        if off:
            self._network.off.add(self.host)
            self._had = self._blocks()
        self._number += 1
        self._lacked = None if off or restored or self.is_mounted else self._lacking(self.replica)
        if off and restored is None:
            self._look_at_lost()
        entries = restored.entries if restored else self._synced_entries if off else self.entries
        self._taken_at = {hash: at for hash, at in self._taken_at.items() if hash in entries}
        target = self._copy_of(str(self._number))
        self._synced = self._synced.later(self._directory)
        if restored:
            back_up(restored.directory, target)
            self._synced, self._synced_entries = Synced.copy(target), restored.entries
        elif off:
            cut_log(self._directory, target, self._synced, random.Random(f"{self.host} {self._number} {self._seed}"))
        else:
            copy_disk(self._directory, target)
        named_keys = self.named_keys
        if self.worktree is not None:
            self.worktree.abandon()
            self.mount.detach()
            self._keep_tree(target, off=off, restored=restored is not None)
        self._directory, self.entries = target, dict(entries)
        if restored is not None:
            self.forgotten |= named_keys - self.named_keys
        self._boundaries.disarm()
        self._trace(self.host, f"killed with {len(self.entries)} entries")
        self.running = False
        self._network.kill(self.process)
        self._parts[1].stop()
        self.accusations += self.watched.accusations
        self._ending.append(self._loop.create_task(self._end(self.process, self._parts)))

    def _keep_tree(self, target: Path, *, off: bool, restored: bool) -> None:
        """What a process leaves behind beside its log goes with that: the tree itself, or a backup of it."""
        if restored:
            self.mount.restores += 1
        else:
            move_tree(self._directory, target)
        self.mount.serve(target)
        if off:
            self._boots += 1
            empty_files(self.mount, random.Random(f"{self.host} {self._number} tree"))
        if off or restored:
            self.mount.saves.forget(self.host, self.mount.contents())

    async def leave(self) -> None:
        """End the process as a daemon ends: another node gets what is here first, if one can be reached."""
        self._trace(self.host, "leaves")
        self.running = False
        self._number += 1
        self._lacked = None
        self.accusations += self.watched.accusations
        process, parts = self.process, self._parts
        self._boundaries.disarm()

        async def end() -> None:
            PROCESS.set(process)
            if self.worktree is not None:
                self.mount.detach()
                self.worktree.leave()
                self._sync_to_disk(process, self.replica)
            await self.sync.hand_over(lambda: [peer.sync_address for peer in parts[1].peers if peer.status == "alive"])

        await self._loop.create_task(end())
        await self._loop.create_task(self._end(process, parts))
        process.alive = False

    def damage(self) -> list[str]:
        """What is wrong with the log of a node that has stopped, row by row."""
        return [f"the log of {self.host} is damaged: {found}" for found in check(self._directory / LOG_FILE)]

    async def stop(self) -> None:
        """End the process, and what is left of those that were killed."""
        if self.running:
            self.running = False
            self.accusations += self.watched.accusations
            if self.worktree is not None:
                self.worktree.abandon()
            self._ending.append(self._loop.create_task(self._end(self.process, self._parts)))
        for task in self._ending:
            await task

    @staticmethod
    async def _end(process: Process, parts: Any) -> None:
        PROCESS.set(process)
        propagation, gossip, sync, replica, tasks = parts
        for task in tasks:
            task.cancel()
        await propagation.stop()
        gossip.stop()
        await sync.stop()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, BaseFSError):
                await task
        replica.close()
