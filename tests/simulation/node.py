"""One node: the real log, sync and replication of a daemon, on the simulated loop, network and bus."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from basefs.daemon import config
from basefs.errors import BaseFSError, IncompleteContent, NoSpace, PathError
from basefs.fs.publish.plan import MAX_STEPS
from basefs.gossip.events import Address
from basefs.gossip.service import Gossip
from basefs.log.blocks import Block
from basefs.log.check import check
from basefs.log.entries import CHILD_ACTIONS, Action, Entry
from basefs.log.hashes import BlockHash
from basefs.log.keys import SigningKey
from basefs.log.placement import EntryKind
from basefs.log.room import Room
from basefs.path import Path as Names
from basefs.path import display
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
from basefs.view.states import Kind
from tests.simulation.bus import SYNC_PORT, Bus, SimulatedGossip
from tests.simulation.disk import DiskCopy, copy_disk, copy_key, cut_disk
from tests.simulation.gate import Gate
from tests.simulation.heard import Heard
from tests.simulation.ledger import Ledger, Thing, digest
from tests.simulation.loop import BEGINNING, PROCESS, Process, Trace
from tests.simulation.mount import Boundaries, Mount
from tests.simulation.network import Network

T = TypeVar("T")

#: UNIX seconds at which a run begins.
BIRTH = 1_000_000_100.0
#: Seconds after which what has come survives a power cut: a slow disk takes up to a second for each job.
DURABLE = 5.0
#: Bytes that are free on the disk of a node that is not full.
FREE = 1 << 40
#: Where the hostile peer of a run is: what honest nodes say of it is no accusation of an honest node.
HOSTILE = "10.0.0.66"
#: What makes a name, a mode right behind it; behind a delete a directory shows what others have made in it.
_MAKING = CHILD_ACTIONS | {Action.MODE}


@dataclass(frozen=True, slots=True)
class Tuning:
    """What each node of a run allows and does, as its daemon would have it unless a run draws something tiny.

    Attributes:
        limits: of sessions.
        degree: sessions that stay open for news.
        sessions: that others may have with a node at once.
        block_messages: gossip events of blocks for one content at the most.
        most: saves that are published in one transaction.
    """

    limits: Limits = DEFAULT_LIMITS
    degree: int = config.PUSH_SESSIONS
    sessions: int = config.SYNC_SESSIONS
    block_messages: int = config.MAX_BLOCK_MESSAGES
    most: int = MAX_STEPS


@dataclass(frozen=True, slots=True)
class Saved:
    """A copy of the disk of a node.

    Attributes:
        directory: where it is.
        entries: what it has taken, by hash.
        names: what programs had made of names on the mount.
        before: that without the call in which the process had ended, `None` if there was none.
    """

    directory: Path
    entries: dict[bytes, Entry]
    names: Mapping[Names, Thing] = field(default_factory=dict)
    before: dict[Names, Thing] | None = None


class Killed(Exception):
    """The process has ended in the middle of what it was doing."""


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
        is_mounted: whether programs change its filesystem, through the staging of a mount.
    """

    loses_power: bool = False
    is_closed: bool = False
    is_mounted: bool = False


class Node:
    """A machine with one filesystem.

    Attributes:
        host: its address.
        clock: its clock, which keeps its error over a restart.
        keys: what it signs with.
        entries: all that its log has taken, by hash.
        running: whether there is a process.
        on_commit: is called after changes of the log.
        is_mounted: whether programs use it by a mount.
        mount: that of its process.
        ledger: what they have done there.
        lost: what they were promised, and was not there at a start.
        cut: the blocks that power cuts have taken from it.
        forgotten: the raw public keys that it had let in, as far as old backups have taken that from it.
    """

    mount: Mount

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
        self.is_mounted = traits.is_mounted
        self.ledger = Ledger(network.loop.time)
        self.lost: list[str] = []
        self.cut: set[BlockHash] = set()
        self.forgotten: set[bytes] = set()
        #: The blocks that it had when its power was cut.
        self._had: set[BlockHash] = set()
        self._boundaries = Boundaries()
        self._is_off = self._unsynced = False
        #: Whether the log has all that it ever had: otherwise what comes again was seen before.
        self._remembers = True
        #: When this node has published what shows a name.
        self._shown_at: dict[bytes, float] = {}
        #: The contents of write entries, for what is looked for in the log.
        self._contents: dict[bytes, str] = {}
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
        #: What survives a power cut: the log as it was synced last.
        self._synced = Saved(directory, {})
        self._copy = DiskCopy(self._copy_of("synced"))
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
        if self.is_mounted:
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
            self._mount(process, replica)
        elif not self._number:
            self._sync_to_disk(process, replica)
        # Seen before anything is committed.
        self.heard = Heard(replica)
        await self.sync.start(self.watched)
        if gate is not None:
            await gate.begin()
        propagation.start()
        gossip.start(propagation.on_event, propagation.on_members, propagation.announce)
        tasks = [
            asyncio.create_task(self._watch(propagation)),
            *([] if self.is_mounted else [asyncio.create_task(self._keep_durable(process, replica))]),
            asyncio.create_task(self._watch_room(room)),
        ]
        if gate is not None:
            tasks += [asyncio.create_task(each) for each in gate.lasting(self.sync)]
        if self.is_mounted:
            self.mount.start()
        self._parts = propagation, gossip, self.sync, replica, tasks, self.mount if self.is_mounted else None
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
        if self.is_mounted:
            self._look_at_made(applied)
            if applied.local:
                self._learn(applied.entries)
                self._look_at_replaced(applied)
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

    def _absorb(self) -> None:
        """What a process has committed in its last moment was accepted, too; what a power cut has taken was not."""
        for raw in self.replica.walk(()):
            entry = Entry.decode(raw)
            self.entries.setdefault(entry.hash, entry)
        self._learn(self.entries.values())

    def _learn(self, entries: Iterable[Entry]) -> None:
        own = {key.fingerprint for key in self.keys}
        for entry in entries:
            if entry.action is Action.WRITE and entry.fingerprint in own and entry.hash not in self._contents:
                with contextlib.suppress(IncompleteContent):
                    self._contents[entry.hash] = digest(self.replica.content_at(entry.hash))

    def _look_at_made(self, applied: Applied) -> None:
        """Note when this node makes something of a name, unless that shows what others have made."""
        made = [entry.hash for entry in applied.entries if applied.local and entry.action in _MAKING]
        for change in applied.changes:
            if change.after is None:
                self.ledger.remade.discard(change.path)
            elif change.before != change.after and change.entry is not None and change.entry.hash not in made:
                self.ledger.remade.add(change.path)
        removed = [entry.hash for entry in applied.entries if applied.local and entry.action is Action.DELETE]
        # A removal may have lost against a change of another node.
        self.ledger.remade |= {
            path for path, _ in self.replica.places(removed) if self._entry_at(path) not in {None, *made}
        }
        for path, placed in self.replica.places(made):
            if path not in self.ledger.remade:
                self._shown_at[placed.entry.hash] = self._loop.time()

    def _entry_at(self, path: Names) -> bytes | None:
        """What the view shows at a path."""
        try:
            return self.replica.attributes(path).entry
        except PathError:
            return None

    def _look_at_replaced(self, applied: Applied) -> None:
        """What is published follows what its program has seen, and nothing that has come since."""
        if not self._remembers or self.mount.fs.working.moving:
            # A directory moves with what is in it now.
            return
        own = {key.fingerprint for key in self.keys}
        # A removal takes nothing away that another name shows now.
        still_shown = {change.after.content for change in applied.changes if change.after is not None}
        for path, placed in self.replica.places([entry.hash for entry in applied.entries]):
            entry, before = placed.entry, self.entries.get(placed.entry.parent)
            is_change = placed.kind is EntryKind.SUCCESSOR and entry.action in (Action.WRITE, Action.DELETE)
            if not is_change or before is None or before.fingerprint in own:
                continue
            at = self._taken_at.get(before.hash, float("-inf"))
            if not self.ledger.has_missed(path, at, self._contents.get(entry.hash)):
                continue
            # Nothing is replaced behind a removal: a file is made again there (docs/authority.md).
            state = self.replica.state_after(before.hash)
            is_kept = state is not None and (
                state.kind is Kind.ABSENT or (entry.action is Action.DELETE and state.content in still_shown)
            )
            if not is_kept:
                self.lost.append(f"{self.host} has replaced a change of {display(path)} that no program has seen")

    def _is_published(self, content: str) -> bool:
        return any(hash in self.entries for hash, found in self._contents.items() if found == content)

    def _mount(self, process: Process, replica: Replica) -> None:
        self._boundaries.disarm()
        synced = partial(self._all_synced, process)
        self.mount = Mount(replica, process, self._loop, self.clock, synced, self._tuning.most)
        process.run = lambda call: self._run(process, call)
        if self._number:
            look = self.mount.look
            problems = self.ledger.started(self.mount.staged(), self._is_published, look, off=self._is_off)
            self.lost += [f"{self.host} was {'off' if self._is_off else 'killed'}: {each}" for each in problems]
        self._is_off = False
        self.synced()

    def _run(self, process: Process, call: Callable[[], T], *, waits: bool = False) -> T:
        """What a process does to its disk; it may end in the middle of that."""
        try:
            return self._boundaries.run(call, waits=waits)
        finally:
            if process.alive and process is self.process:
                self._look_at_disk()

    def _look_at_disk(self) -> None:
        self.lost += [f"{self.host}: {each}" for each in self.ledger.settled(self.mount.names(), self._is_published)]
        was, self._unsynced = self._unsynced, not self.mount.fs.is_durable
        if was and not self._unsynced:
            self.synced()

    def _all_synced(self, process: Process) -> None:
        if process.alive and self.running:
            self.synced()

    def synced(self) -> None:
        """All that is on the disk survives a power cut."""
        self.ledger.synced()
        if self._traits.loses_power:
            # This is nothing that the process does.
            with self._boundaries.paused():
                self._copy.update(self._directory)
            self._synced = Saved(self._copy_of("synced"), dict(self.entries))

    def use(self, call: Callable[[], T], done: Callable[[T], object]) -> T:
        """A call of a program; `done` is called if it succeeds.  Raises what it raises, and `Killed`."""
        process, before = self.process, self.ledger.doubt()
        token = PROCESS.set(process)

        def both() -> T:
            result = call()
            done(result)
            return result

        try:
            return self._run(process, both, waits=True)
        finally:
            PROCESS.reset(token)
            if not process.alive:
                self.ledger.doubted(before)
                self.ledger.killed()
                raise Killed

    def check_mount(self) -> list[str]:
        """What is not as programs have left it."""
        found, self.lost = self.lost, []
        if self.is_mounted and self.running:
            token = PROCESS.set(self.process)
            problems = self.ledger.compare(self.mount.staged(), self._is_published)
            found += [f"{self.host}: {each}" for each in problems]
            found += [f"{self.host}: {display(path)} was removed, and is back" for path in self._back()]
            found += [f"{self.host}: {each}" for each in self.mount.confused()]
            PROCESS.reset(token)
        return found

    def _back(self) -> list[Names]:
        """Names that programs have removed and this node has made again."""
        found: list[Names] = []
        for path, since in self.ledger.removed.items():
            if path not in self.mount.names() and (shown := self._entry_at(path)) is not None:
                found += [path] * (self._shown_at.get(shown, since) > since)
        return found

    def doubled(self) -> list[str]:
        """Contents that were written again where they were."""
        return [
            f"{self.host} has published {content} twice"
            for hash, content in self._contents.items()
            if hash in self.entries and self._contents.get(self.entries[hash].parent) == content
        ]

    async def doom(self, chance: random.Random, *, off: bool) -> bool:
        """Kill the process while it changes its disk, or a moment later if it does not; false if it ends otherwise."""
        if self._boundaries.is_armed:
            return False
        only_programs = chance.random() < 0.5
        process, count = self.process, int(chance.expovariate(1 / (3 if only_programs else 20)))
        died = asyncio.Event()

        def die() -> None:
            self._trace(self.host, f"ends in the middle, after {count} steps")
            self.kill(off=off)
            died.set()

        self._boundaries.arm(count, die, only_programs=only_programs)
        await is_set_within(died, 2.0)
        if process.alive and process is self.process and self.running:
            self.kill(off=off)
            died.set()
        return died.is_set()

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call something, unless the process ends before."""
        process = self.process
        self._loop.call_later(seconds, lambda: call() if process.alive and self.running else None)

    def end_with_process(self, task: asyncio.Task[None]) -> None:
        """Cancel a task when the process ends."""
        _, _, _, _, tasks, _ = self._parts
        tasks.append(task)

    def note(self, text: str) -> None:
        """A line of the trace."""
        self._trace(self.host, text)

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
            self._copy.update(self._directory)
            self._synced = Saved(self._copy_of("synced"), dict(self.entries))

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
        copy_disk(self._directory, copy)
        return Saved(copy, dict(self.entries), self.ledger.doubt(), self.ledger.before)

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

    def _copy_of(self, name: str) -> Path:
        """Where a copy of the disk is."""
        return self._directory.with_name(f"{self.host}-{name}")

    def act(self, make: Callable[[Any], Any]) -> Applied:
        """Have a user commit something.  Raises as `Replica.commit`."""
        token = PROCESS.set(self.process)
        try:
            return self.process.run(lambda: self.replica.commit(make))
        finally:
            PROCESS.reset(token)

    def receive(self, entries: Sequence[Entry], blocks: Sequence[Block]) -> None:
        """Take in what somebody brings who is no node of the cluster."""
        token = PROCESS.set(self.process)
        try:
            self.process.run(lambda: self.replica.apply(entries, blocks, peer=HOSTILE))
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
        kept = restored or (self._synced if off else Saved(self._directory, self.entries))
        self._remembers &= not off and restored is None
        if restored:
            self._synced = restored
        elif off:
            self._look_at_lost()
        self._taken_at = {hash: at for hash, at in self._taken_at.items() if hash in kept.entries}
        target = self._copy_of(str(self._number))
        if off and self.is_mounted:
            cut_disk(kept.directory, self._directory, target, random.Random(f"{self.host} {self._number} {self._seed}"))
        else:
            copy_disk(kept.directory, target)
        if off:
            copy_key(self._directory, target)
        named_keys = self.named_keys
        self._directory, self.entries, self._is_off = target, dict(kept.entries), off
        if restored is not None:
            self.forgotten |= named_keys - self.named_keys
            self.ledger.restored(restored.names, restored.before)
        self.ledger.killed()
        self._boundaries.disarm()
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
        self._boundaries.disarm()

        async def end() -> None:
            PROCESS.set(process)
            if self.is_mounted:
                self.mount.leave()
                self._look_at_disk()
                self.ledger.killed()
                self.synced()
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
        propagation, gossip, sync, replica, tasks, mount = parts
        for task in tasks:
            task.cancel()
        await propagation.stop()
        gossip.stop()
        await sync.stop()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, BaseFSError):
                await task
        if mount is not None:
            mount.abandon()
        replica.close()
