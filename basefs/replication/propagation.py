"""Propagation: what changes here goes out, what others announce comes in (docs/replication.md).

Three ways, from the quickest to the surest.  A small change is pushed over the sessions that stay open with a few
peers, who pass it on (`pushing.py`); without such sessions it travels as gossip events, or is announced by gossip
(`announcing.py`).  What is too large for a push is told to the peers of those sessions.  A node that learns of it so
pulls at once over the sync protocol.  Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from basefs.errors import AgentError, LocalProtocolError, NoSpace, StoreError
from basefs.gossip.connect import probe
from basefs.gossip.events import Address, GossipEvent
from basefs.gossip.members import Peer, join_host_port
from basefs.gossip.rpc import Body
from basefs.gossip.service import Gossip
from basefs.log.entries import needs_of
from basefs.log.interface import AddResult
from basefs.replica.replica import Applied, Replica
from basefs.replication.announcing import Announcer
from basefs.replication.puller import Probe, Puller
from basefs.replication.pushing import Pusher
from basefs.replication.scheduler import PullScheduler
from basefs.sync.net.service import SyncService
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.states import Phase

log = logging.getLogger(__name__)

#: Seconds that the blocks of a gossiped file may take before they are fetched.
BLOCK_PATIENCE = 1.5


#: Seconds between two transactions, in which events are gathered.
GATHER_SECONDS = 0.02
#: Events of one transaction, which takes some 5 ms.
MOST_EVENTS = 16
#: Events that wait at the most, half a kilobyte each.  Beyond it the oldest are dropped, and come by sync.
MOST_WAITING = 4096
#: How many members compare with one that joins or returns, on average; in a smaller cluster, all do.  If all N members
#: did, the start of a cluster would take N squared sessions.  What these few bring is pushed to the others.
GREETERS = 8


class GossipReceiver:
    """Gossiped events on their way into the log: at once where it is quiet, else several together.

    When a network is whole again, Serf brings hundreds of small changes within a second, each of which would be a
    transaction of its own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[Sequence[GossipEvent]], None]) -> None:
        """`take` gives some events to the log."""
        self._loop = loop
        self._take = take
        self._events: deque[GossipEvent] = deque(maxlen=MOST_WAITING)
        self._timer: asyncio.TimerHandle | None = None
        self._taken_at = loop.time() - GATHER_SECONDS

    def receive(self, event: GossipEvent) -> None:
        """An event has come."""
        self._events.append(event)
        if self._timer is None:
            due = self._taken_at + GATHER_SECONDS
            if due <= self._loop.time():
                self._give()
            else:
                self._timer = self._loop.call_at(due, self._give)

    def stop(self) -> None:
        """Give nothing more to the log: what waits comes by sync, another time."""
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give(self) -> None:
        self._timer = None
        some = [self._events.popleft() for _ in range(min(MOST_EVENTS, len(self._events)))]
        try:
            self._take(some)
        finally:
            self._taken_at = self._loop.time()
            if self._events:
                self._timer = self._loop.call_later(0, self._give)


@dataclass(frozen=True, slots=True)
class PropagationSettings:
    """What a node's owner may decide.

    Attributes:
        max_block_messages: gossip events that a burst of changes may cost before it is announced instead.
        pull_jitter: seconds of which a random part passes before what gossip has told of is fetched.
        interval: seconds between two periodic sessions, 0: none.
        probability: of each of these.
        gossips: whether anything is gossiped; if not, periodic sessions and those that stay bring everything.
    """

    max_block_messages: int
    pull_jitter: float
    interval: float = 0.0
    probability: float = 1.0
    gossips: bool = True


class Propagation:
    """Connects one replica with gossip and sync."""

    def __init__(
        self,
        replica: Replica,
        gossip: Gossip,
        sync: SyncService,
        address: Callable[[], Address | None],
        loop: asyncio.AbstractEventLoop,
        settings: PropagationSettings,
        rng: random.Random | None = None,
        probe: Probe = probe,
    ) -> None:
        """Changes of this replica go out, and it takes in what comes, by gossip and by sync, which report to this.

        `address` tells where this node's sync protocol answers, once that is known; `rng`: for all that is left to
        chance; `probe`: see `Puller`.
        """
        self._pull_jitter = settings.pull_jitter
        self._gossips = settings.gossips
        self._rng = rng or random.Random()
        self._replica = replica
        self._gossip = gossip
        self._sync = sync
        self._address = address
        self._loop = loop
        self._announcer = Announcer(replica, gossip, sync, address, loop, settings.max_block_messages)
        self._pusher = Pusher(replica, sync, loop)
        scheduler = PullScheduler(self._others, self._rng, interval=settings.interval, probability=settings.probability)
        self._puller = Puller(scheduler, sync, loop, probe)
        self._members: dict[Address, Peer] = {}
        self._alive: set[Address] = set()
        self._failed: set[Address] = set()
        self._receiver = GossipReceiver(loop, self._take)
        #: Whether the log could not take what came last.
        self._fails = False
        self._announced: set[Address] = set()
        self._stopped = False

    def start(self) -> None:
        """Begin to propagate."""
        self._puller.start()
        self._replica.subscribe(self._on_applied)

    def _others(self) -> Sequence[tuple[str, int]]:
        return [peer.sync_address for peer in self._gossip.peers if peer.status == "alive"]

    async def stop(self) -> None:
        """Send what was gathered, and end what is running."""
        self._stopped = True
        self._receiver.stop()
        self._pusher.stop()
        self._announcer.stop()
        await self._puller.stop()

    # -- going out ----------------------------------------------------------------------------------------------------

    def _on_applied(self, applied: Applied) -> None:
        """Called in any thread."""
        self._sync.changed(self._loop.time())
        if applied.entries or applied.completed or applied.new_blocks:
            self._soon(self._pusher.gather, applied)
            if not applied.local:
                self._soon(self._puller.arrived, len(applied.entries))
        if applied.local and applied.entries and self._gossips:
            self._soon(self._announcer.gather, applied.entries, applied.blocks, applied.large)

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        """Waking the loop costs a system call, which what has come over the network need not pay."""
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        (self._loop.call_soon if is_here else self._loop.call_soon_threadsafe)(call, *arguments)

    def announce(self) -> None:
        """Tell the others to sync with this node, soon."""
        if self._gossips:
            self._announcer.announce()

    # -- coming in ----------------------------------------------------------------------------------------------------

    def on_event(self, event: GossipEvent) -> None:
        """A gossip event, perhaps one of our own."""
        if event.entries or event.blocks:
            self._receiver.receive(event)
        for announcement in event.announcements:
            if announcement.root != self._replica.root_hash():
                if announcement.address in self._alive:
                    self._announced.add(announcement.address)
                self._pull(announcement.address, "an announcement", jitter=self._pull_jitter)

    def _take(self, events: Sequence[GossipEvent]) -> None:
        """Give gossiped entries and blocks to the log."""
        entries = [entry for event in events for entry in event.entries]
        # What waits for a parent has a room for all gossip: nobody signs an origin, and who made one up would push out
        # what sessions with that peer have brought.
        try:
            result = self._replica.add(entries, [block for event in events for block in event.blocks], peer="gossip")
        except StoreError as error:
            if isinstance(error, NoSpace):
                self._sync.ran_out_of_room()
            if not self._fails:
                log.error("cannot store gossiped entries, relying on sync: %s", error)
            self._fails = True
            return
        self._fails = False
        self._pull_missing(events, result)

    def _pull_missing(self, events: Sequence[GossipEvent], result: AddResult) -> None:
        """Ask for what gossiped events build on and have not brought."""
        self._gossip.counters.refused += len(result.rejected)
        for reason in result.rejected:
            log.info("gossip refused: %s", reason)
        missing = set(result.missing_parents)
        lacking = [
            event.origin for event in events if any(not missing.isdisjoint(needs_of(entry)) for entry in event.entries)
        ]
        for origin in dict.fromkeys(lacking):
            self._pull(origin, "a missed parent", jitter=self._pull_jitter)
        if result.lacks_blocks and not missing:
            self._loop.call_later(BLOCK_PATIENCE, self._pull_blocks, events[-1].origin)

    def on_gap(self, address: tuple[str, int]) -> None:
        """A peer has told over a standing session of something that is not here."""
        with contextlib.suppress(LocalProtocolError):
            self._announced.add(Address(*address))
        self._puller.gap(address)

    def on_progress(self, address: tuple[str, int], phase: Phase) -> None:
        """Something has come in a session that this node opened, if only that it has to wait."""
        self._puller.progress(address, phase)

    def compare(self, member: Address) -> None:
        """Sync with a member that gossip does not reach, as soon as it takes connections."""
        if not self._puller.is_lost(member):
            self._puller.lost(member)

    def _pull_blocks(self, origin: Address | None) -> None:
        # The log is closed while Serf leaves.
        if not self._stopped and self._replica.missing_blocks(1):
            self._pull(origin, "missed blocks", jitter=0.0)

    def _pull(self, origin: Address | None, reason: str, *, jitter: float) -> None:
        if origin is not None and origin == self._address():
            return
        if origin is not None and origin not in self._alive and not self._puller.is_lost(origin):
            # Nobody signs an event, so an address in it is believed only of a member: otherwise anybody could send
            # all nodes to a victim.
            origin = None
        if origin is None and self._alive:
            origin = self._rng.choice(sorted(self._alive))
        if origin is not None:
            self._puller.request(origin, reason, jitter=jitter)

    def on_members(self, peers: list[Peer]) -> None:
        """The members have changed: sync at once with those that came (back), and look for those that failed."""
        # Serf forgets a failed member after a day; it is still tried.
        lost = {address: peer for address, peer in self._members.items() if self._puller.is_lost(address)}
        self._members = lost | {peer.sync_address: peer for peer in peers}
        alive = {peer.sync_address for peer in peers if peer.status == "alive"}
        arrived, self._alive = alive - self._alive, alive
        self._announced &= alive
        for address in self._to_greet(arrived):
            self._pull(address, "it joined", jitter=self._pull_jitter)
        self._sync.neighbours.make_room(len(arrived))
        failed = {peer.sync_address for peer in peers if peer.status == "failed"} - alive
        for address in sorted(failed - self._failed):
            if self._sync.has_met(address) and not self._puller.is_lost(address):
                self._puller.lost(address)
        self._failed = failed
        for peer in peers:
            if peer.leaves:
                self._puller.found(peer.sync_address)

    def on_result(self, address: tuple[str, int], result: Result) -> None:
        """A session has ended, whichever side began it."""
        self._puller.result(address, result)
        if self._sync.has_met(address):
            self._gossip.met(address)
        with contextlib.suppress(LocalProtocolError):  # it came from a peer that did not tell where it listens
            self._account(Address(*address), result)

    def _account(self, peer: Address, result: Result) -> None:
        known = self._sync.has_met(peer) and (peer in self._alive or self._puller.is_lost(peer))
        if known and result.reason in (Reason.UNREACHABLE, Reason.LOST, Reason.TIMEOUT):
            self._puller.lost(peer)
        if result.reason is not Reason.COMPLETE:
            return
        if self._puller.found(peer) and peer not in self._alive:
            self._failed.discard(peer)
            self._rejoin(peer)
        if peer in self._announced:
            self._announced.discard(peer)
        elif self._gossips and result.counters.accepted and not result.stood:
            # Nobody had announced this: what was apart is together again, and the others should hear of it.
            self._announcer.mention()

    def _rejoin(self, peer: Address) -> None:
        """Tell Serf at once that a member which it believes failed is there again."""
        if (member := self._members.get(peer)) is None:
            return
        body = {"Existing": [join_host_port(member.host, member.gossip_port)], "Replay": False}
        self._puller.run(self._join(body))

    async def _join(self, body: Body) -> None:
        try:
            await self._gossip.call("join", body)
        except AgentError as error:
            log.debug("%s", error)

    def _to_greet(self, arrived: set[Address]) -> list[Address]:
        """The arrived members that this node compares with.

        Each is chosen with probability `GREETERS` / (alive members), so that about `GREETERS` members greet one that
        comes, and a node that sees all others for the first time greets about `GREETERS`.
        """
        share = min(1.0, GREETERS / max(len(self._alive), 1))
        whole, part = divmod(len(arrived) * share, 1.0)
        return self._rng.sample(sorted(arrived), int(whole) + (self._rng.random() < part))

    async def look_again(self) -> None:
        """Call now and then: contents whose blocks stopped coming are fetched."""
        # In a worker thread: while much arrives, a writer of the log waits for seconds on a busy machine.
        # The time t of the paper, section 3.2.2.
        if await asyncio.to_thread(self._replica.look_again, 5.0):
            self._pull(None, "a content that stopped", jitter=0.0)
