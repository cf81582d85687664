"""Propagation: what changes here goes out, what others announce comes in (docs/architecture.md).

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
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from basefs.errors import AgentError, LocalProtocolError, StoreError
from basefs.gossip.connect import probe
from basefs.gossip.events import Address, Event
from basefs.gossip.members import Peer, join_host_port
from basefs.gossip.service import Gossip
from basefs.log.entries import parent_of
from basefs.replica.replica import Applied, Replica
from basefs.replication.announcing import Announcer
from basefs.replication.fetching import Fetcher
from basefs.replication.hearing import Hearing
from basefs.replication.pushing import Pusher
from basefs.replication.reconnect import Reconnects
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import CONNECT_TIMEOUT, patience
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.states import Phase

log = logging.getLogger(__name__)

#: Seconds without a block until an incomplete file shows in the Merkle tree (paper, section 3.2.2, the time t).
STALL_SECONDS = 5.0
#: Seconds that the blocks of a gossiped file may take before they are fetched.
BLOCK_PATIENCE = 1.5


class Propagation:
    """Connects one replica with gossip and sync."""

    def __init__(
        self,
        replica: Replica,
        loop: asyncio.AbstractEventLoop,
        max_block_messages: int,
        pull_jitter: float,
        *,
        gossips: bool = True,
    ) -> None:
        """Changes of this replica.

        Args:
            replica: whose changes go out, and which takes in what comes.
            loop: on which everything runs.
            max_block_messages: gossip events that a burst of changes may cost before it is announced instead.
            pull_jitter: seconds of which a random part passes before what gossip has told of is fetched.
            gossips: whether anything is gossiped; if not, periodic sessions and those that stay bring everything.
        """
        self._max_events = max_block_messages
        self._pull_jitter = pull_jitter
        self._gossips = gossips
        self._replica = replica
        self._loop = loop
        self._gossip: Gossip | None = None
        self._sync: SyncService | None = None
        self._address: Callable[[], Address | None] = lambda: None
        self._announcer: Announcer | None = None
        self._pusher: Pusher | None = None
        self._fetcher: Fetcher | None = None
        self._members: dict[Address, Peer] = {}
        self._alive: set[Address] = set()
        self._failed: set[Address] = set()
        self._hearing = Hearing(loop, self._take)
        #: Whether the log could not take what came last.
        self._fails = False
        self._reconnects = Reconnects()
        self._announced: set[Address] = set()
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self, gossip: Gossip, sync: SyncService, address: Callable[[], Address | None]) -> None:
        """Begin to propagate.  `address` tells where this node's sync protocol answers, once that is known."""
        self._gossip, self._sync, self._address = gossip, sync, address
        self._announcer = Announcer(self._replica, gossip, sync, address, self._loop, self._max_events)
        self._pusher = Pusher(self._replica, sync, self._loop)
        self._fetcher = Fetcher(sync, self._loop)
        self._replica.subscribe(self._on_applied)

    def stop(self) -> None:
        """Send what was gathered."""
        for task in self._tasks:
            task.cancel()
        if self._announcer is not None and self._pusher is not None and self._fetcher is not None:
            self._fetcher.stop()
            self._hearing.stop()
            self._pusher.stop()
            self._announcer.stop()

    # -- going out ----------------------------------------------------------------------------------------------------

    def _on_applied(self, applied: Applied) -> None:
        """Called in any thread."""
        assert self._pusher is not None and self._announcer is not None
        if applied.entries or applied.completed:
            self._soon(self._pusher.gather, applied)
            if not applied.local and self._fetcher is not None:
                self._soon(self._fetcher.arrived, len(applied.entries))
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
        if self._announcer is not None and self._gossips:
            self._announcer.announce()

    # -- coming in ----------------------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """A gossip event, perhaps one of our own."""
        if event.entries or event.blocks:
            self._hearing.hear(event)
        for announcement in event.announcements:
            if announcement.root != self._replica.root_hash():
                if announcement.address in self._alive:
                    self._announced.add(announcement.address)
                self._pull(announcement.address, "an announcement", jitter=self._pull_jitter)

    def _take(self, events: Sequence[Event]) -> None:
        """Give gossiped entries and blocks to the log."""
        entries = [entry for event in events for entry in event.entries]
        # What waits for a parent has a room for all gossip: nobody signs an origin, and who made one up would push out
        # what sessions with that peer have brought.
        try:
            result = self._replica.add(entries, [block for event in events for block in event.blocks], peer="gossip")
        except StoreError as error:
            if not self._fails:
                log.error("what gossip brings is left to sync: %s", error)
            self._fails = True
            return
        self._fails = False
        if self._gossip is not None:
            self._gossip.counters.refused += len(result.rejected)
        for reason in result.rejected:
            log.info("gossip refused: %s", reason)
        missing = set(result.missing_parents)
        lacking = [event.origin for event in events if any(parent_of(entry) in missing for entry in event.entries)]
        for origin in dict.fromkeys(lacking):
            self._pull(origin, "a missed parent", jitter=self._pull_jitter)
        if result.missing_blocks and not missing:
            self._loop.call_later(BLOCK_PATIENCE, self._pull_blocks, events[-1].origin)

    def on_gap(self, address: tuple[str, int]) -> None:
        """A peer has told over a standing session of something that is not here."""
        with contextlib.suppress(LocalProtocolError):
            self._announced.add(Address(*address))
        if self._fetcher is not None:
            self._fetcher.told(address)

    def on_progress(self, address: tuple[str, int], phase: Phase) -> None:
        """Something has come in a session that this node opened, if only that it has to wait."""
        if self._fetcher is not None:
            self._fetcher.progress(address, phase)

    def _pull_blocks(self, origin: Address | None) -> None:
        if self._replica.missing_blocks(1):
            self._pull(origin, "missed blocks", jitter=0.0)

    def _pull(self, origin: Address | None, reason: str, *, jitter: float) -> None:
        assert self._sync is not None
        if origin is not None and origin == self._address():
            return
        if origin is not None and origin not in self._alive and origin not in self._reconnects:
            # Nobody signs an event, so an address in it is believed only of a member: otherwise anybody could send
            # all nodes to a victim.
            origin = None
        if origin is None and self._alive:
            origin = random.choice(sorted(self._alive))
        if origin is not None:
            self._sync.request(origin, reason, jitter=jitter)

    def on_members(self, peers: list[Peer]) -> None:
        """Who is there has changed: sync at once with those who came (back), and look for those who failed."""
        now = self._loop.time()
        self._members = {peer.sync_address: peer for peer in peers}
        alive = {peer.sync_address for peer in peers if peer.status == "alive"}
        arrived, self._alive = alive - self._alive, alive
        self._announced &= alive
        for address in arrived:
            self._pull(address, "it joined", jitter=self._pull_jitter)
        if self._sync is not None:
            self._sync.kept.make_room(len(arrived))
        failed = {peer.sync_address for peer in peers if peer.status == "failed"}
        for address in failed - self._failed:
            if address not in self._reconnects:
                self._reconnects.failed(address, now)
        self._failed = failed
        for peer in peers:
            if peer.status in ("leaving", "left"):
                self._reconnects.forget(peer.sync_address)

    def on_result(self, address: tuple[str, int], result: Result) -> None:
        """A session has ended, whoever began it."""
        if self._fetcher is not None:
            self._fetcher.ended(address)
        try:
            peer = Address(*address)
        except LocalProtocolError:
            return  # it came from a peer that did not tell where it listens
        known = peer in self._alive or peer in self._reconnects
        if known and result.reason in (Reason.UNREACHABLE, Reason.LOST, Reason.TIMEOUT):
            self._reconnects.failed(peer, self._loop.time())
        if result.reason is not Reason.COMPLETE:
            return
        if self._reconnects.forget(peer) and peer not in self._alive:
            self._failed.discard(peer)
            self._rejoin(peer)
        if peer in self._announced:
            self._announced.discard(peer)
        elif self._gossips and result.counters.accepted and not result.stood and self._announcer is not None:
            # Nobody had announced this: what was apart is together again, and the others should hear of it.
            self._announcer.mention()

    def _rejoin(self, peer: Address) -> None:
        """Tell Serf at once that a member which it believes failed is there again."""
        assert self._gossip is not None
        if (member := self._members.get(peer)) is None:
            return
        body = {"Existing": [join_host_port(member.host, member.gossip_port)], "Replay": False}
        self._run(self._quietly(self._gossip.call("join", body)))

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _quietly(call: Awaitable[object]) -> object:
        try:
            return await call
        except AgentError as error:
            log.debug("%s", error)
            return None

    def try_lost(self) -> None:
        """Call now and then: peers that could not be reached are tried again."""
        for address in self._reconnects.due(self._loop.time()):
            self._run(self._try(address))

    async def _try(self, address: Address) -> None:
        """Have a session with a lost peer if it takes connections again.

        Sessions have few places, and one that is not answered keeps its place for seconds: half a cluster that is cut
        off would leave none for the other half.
        """
        assert self._sync is not None
        timeout = patience(CONNECT_TIMEOUT, self._sync.kept.longest_round_trip)
        if await probe(address.host, address.port, timeout) is not None:
            self._pull(address, "it was lost", jitter=0.0)
        elif address in self._reconnects:
            self._reconnects.failed(address, self._loop.time())

    async def check_stalled(self) -> None:
        """Call now and then: files whose blocks stopped coming are fetched."""
        # In a worker thread: while much arrives, who writes to the log waits for seconds on a busy machine.
        if await asyncio.to_thread(self._replica.stall, STALL_SECONDS):
            self._pull(None, "a stalled file", jitter=0.0)
