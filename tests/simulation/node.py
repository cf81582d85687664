"""One node: the real log, sync and replication of a daemon, on the simulated loop, network and bus."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from basefs.daemon import config
from basefs.daemon.gossipkeys import KEY_FILE
from basefs.errors import BaseFSError, NoSpace
from basefs.gossip.events import Address
from basefs.gossip.service import Gossip
from basefs.log.blocks import Block
from basefs.log.check import check
from basefs.log.entries import Entry
from basefs.log.hashes import BlockHash
from basefs.log.keys import SigningKey
from basefs.log.room import Room
from basefs.replica.replica import LOG_FILE, Applied, Replica
from basefs.replication.propagation import Propagation
from basefs.sync.net.peers import Address as SyncAddress
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import SessionContext
from basefs.sync.session.result import Result
from basefs.sync.session.states import Phase
from basefs.sync.wire.limits import DEFAULT_LIMITS, Limits
from tests.simulation.bus import SYNC_PORT, Bus, SimulatedGossip
from tests.simulation.gate import Gate
from tests.simulation.heard import Heard
from tests.simulation.loop import BEGINNING, PROCESS, Process, Trace
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
    """A copy of a log.

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


class Node:
    """A machine with one filesystem.

    Attributes:
        host: its address.
        clock: its clock, which keeps its error over a restart.
        keys: what it signs with.
        entries: all that its log has taken, by hash.
        running: whether there is a process.
        on_commit: is called after changes of the log.
    """

    def __init__(
        self,
        network: Network,
        bus: Bus,
        host: str,
        keys: Sequence[SigningKey],
        directory: Path,
        tuning: Tuning,
        *,
        loses_power: bool,
        is_closed: bool = False,
    ) -> None:
        """`directory`: holds the log of the filesystem as it begins; `loses_power`: whether the machine ever does;
        `is_closed`: whether only members are let in.
        """
        self.host = host
        self.on_commit: Callable[[Node], None] = lambda node: None
        self._tuning = tuning
        self._loses_power = loses_power
        self._is_closed = is_closed
        self._is_full = self._told = False
        self.clock = Clock(network.loop.time)
        self.keys = list(keys)
        self.entries: dict[bytes, Entry] = {}
        self.running = False
        self.disk = 0.003
        self.accusations: list[str] = []
        self._network, self._bus, self._loop, self._trace = network, bus, network.loop, bus.trace
        self._directory = directory
        #: What survives a power cut: the log as it was synced last.
        self._synced = Saved(directory, {})
        self._number = self._copies = 0
        self._ending: list[asyncio.Task[None]] = []
        #: The blocks that were missing when the last process ended, `None` if others may have been lost since.
        self._lacked: set[BlockHash] | None = None
        #: When each entry came, and when the disk was full last.
        self._taken_at: dict[bytes, float] = {}
        self._full_at = float("-inf")

    async def start(self, hosts: Sequence[str], seed: int) -> None:
        """Start a process; `hosts`: all of the cluster."""
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
        lost = [entry for entry in self.entries if replica.entry(entry) is None]
        assert not lost, f"{self.host} has lost {len(lost)} entries by being killed"
        again = self._lacking(replica) - self._lacked if self._lacked is not None else ()
        assert not again, f"{self.host} has lost {len(again)} blocks by being killed"
        gossip = SimulatedGossip(self._bus, self.host, hosts)
        propagation = Propagation(
            replica,
            self._loop,
            self._tuning.block_messages,
            config.PULL_JITTER,
            interval=config.FULL_SYNC_INTERVAL,
            probability=config.SYNC_PROBABILITY,
            rng=rng,
        )
        self.watched = Watched(propagation, self.process, self._trace)
        gate = Gate(replica, gossip, self.clock, rng) if self._is_closed else None
        self.shared = SessionContext(limits=self._tuning.limits, room=room, rng=rng)
        if gate is not None:
            self.shared = gate.close_to_others(self.shared)
        self.sync = SyncService(
            replica,
            (self.host, SYNC_PORT),
            peers=lambda: [peer.sync_address for peer in gossip.peers if peer.status == "alive"],
            listener=self.watched,
            degree=self._tuning.degree,
            max_sessions=self._tuning.sessions,
            shared=self.shared,
        )
        process = self.process
        replica.subscribe(lambda applied: self._note(process, applied))
        if not self._number:
            self._sync_to_disk(process, replica)
        # Seen before anything is committed.
        self.heard = Heard(replica)
        await self.sync.start()
        if gate is not None:
            await gate.begin()
        propagation.start(cast(Gossip, gossip), self.sync, lambda: Address(self.host, SYNC_PORT))
        gossip.start(propagation.on_event, propagation.on_members, propagation.announce)
        tasks = [
            asyncio.create_task(self._watch(propagation)),
            asyncio.create_task(self._keep_durable(process, replica)),
            asyncio.create_task(self._watch_room(room)),
        ]
        if gate is not None:
            tasks += [asyncio.create_task(each) for each in gate.lasting(self.sync)]
        self._parts = propagation, gossip, self.sync, replica, tasks
        self.running = True
        self._told = True
        self._loop.call_soon(self._tell_of_commits)
        self._trace(self.host, f"started with {replica.digest().entries} entries")

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

    async def _watch(self, propagation: Propagation) -> None:
        while True:
            await asyncio.sleep(config.WATCH_SECONDS)
            await propagation.look_again()
            await propagation.audit()

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
        if process.alive and self._loses_power:
            self._synced = Saved(self._copy_log(self._directory, "synced"), dict(self.entries))

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
        """A backup of the log."""
        self._copies += 1
        self._trace(self.host, f"is saved with {len(self.entries)} entries")
        return Saved(self._copy_log(self._directory, f"backup-{self._copies}"), dict(self.entries))

    def _look_at_lost(self) -> None:
        """What came a while before a power cut must have been synced, whichever process took it."""
        now = self._loop.time()
        lost = [hash for hash, at in self._taken_at.items() if now - at > DURABLE and hash not in self._synced.entries]
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

    def _copy_log(self, directory: Path, name: str) -> Path:
        """A copy of a log, where there may be an older one."""
        copy = self._directory.with_name(f"{self.host}-{name}")
        copy.mkdir(exist_ok=True)
        for file in (LOG_FILE, f"{LOG_FILE}-wal", KEY_FILE):
            (copy / file).unlink(missing_ok=True)
            if (directory / file).exists():
                shutil.copy(directory / file, copy / file)
        return copy

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
        self._number += 1
        self._lacked = None if off or restored else self._lacking(self.replica)
        kept = restored or (self._synced if off else Saved(self._directory, self.entries))
        if restored:
            self._synced = restored
        elif off:
            self._look_at_lost()
        self._taken_at = {hash: at for hash, at in self._taken_at.items() if hash in kept.entries}
        if off and (self._directory / KEY_FILE).exists():
            # It was on disk at once.
            shutil.copy(self._directory / KEY_FILE, kept.directory / KEY_FILE)
        self._directory, self.entries = self._copy_log(kept.directory, str(self._number)), dict(kept.entries)
        self._trace(self.host, f"killed with {len(self.entries)} entries")
        self.running = False
        self._network.kill(self.process)
        self._parts[1].stop()
        self.accusations += self.watched.accusations
        self._ending.append(self._loop.create_task(self._end(self.process, self._parts)))

    async def leave(self) -> None:
        """End the process as a daemon ends: another node gets what is here first, if one can be reached."""
        self._trace(self.host, "leaves")
        self.running = False
        self._number += 1
        self._lacked = None
        self.accusations += self.watched.accusations
        process, parts = self.process, self._parts

        async def end() -> None:
            PROCESS.set(process)
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
