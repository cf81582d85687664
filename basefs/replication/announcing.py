"""What this node has written, by gossip: as events where it is small, else as an announcement (docs/architecture.md).

While sessions stand, news goes over them, and the root hashes that are told there find what was lost.  Gossip is told
only where no peer has confirmed the news, and seldom then; at once, however, where a peer does not even acknowledge it:
a connection that loses half of its packets tries ever less often, while gossip comes by another node.  Everything here
runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from basefs.gossip.events import MAX_EVENT, Address, encode_announcement, encode_events
from basefs.gossip.service import Gossip
from basefs.log.blocks import GOSSIP_BLOCK_DATA, Block
from basefs.log.entries import Entry
from basefs.replica.replica import Replica
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import Session
from basefs.sync.net.uplink import Flow
from basefs.sync.wire.limits import DEFAULT_LIMITS

#: Seconds over which what was published is collected before it is gossiped: a save that is two transactions fits.  What
#: is saved together has waited for the quiet window already, and each ms more is one until others see it.
GATHER_SECONDS = 0.005
#: Seconds between announcements of one node.  Shorter follows a long copy more closely, longer leaves Serf in peace.
ANNOUNCE_SECONDS = 0.5
#: Seconds until a peer of a standing session should have told its root hash, after news has gone over it.
SAFETY_SECONDS = DEFAULT_LIMITS.heartbeat + 2.0
#: Seconds between two announcements of news that went over standing sessions: a cluster in which something changes all
#: the time has no moment in which two root hashes are equal.
SAFETY_PAUSE = 60.0
#: Seconds, and round trips to the farthest of them, after which all peers should have acknowledged what they were sent.
#: Less would gossip on narrow links, where what waits for the link is late and gossip makes it later: with 0.75 s a
#: file of one block took 1.5 s instead of 0.1 at 32 kbit/s.
ACKNOWLEDGED_SECONDS = 2.0
ACKNOWLEDGED_ROUND_TRIPS = 3
#: Seconds between two events that are gossiped because peers have not: Serf carries few, and what is dropped here is
#: still found by the root hashes.
HURRY_SECONDS = 0.5
#: Events of one change that are gossiped for this reason: what Serf's packets carry in a second (`bucket.slots`, wan
#: profile, five nodes or more), so that none waits for its first turn.  With more of them each would have fewer
#: repetitions, on a network that needs them; a larger change is announced.
HURRY_EVENTS = 16
#: Such changes that are looked at again and again, while they wait for a link that may only be narrow.
MAX_LOOKED_AGAIN = 8
#: Changes that wait to be looked at, of up to 8 KiB each: more than can be gossiped while they wait.
MAX_CARRIED = 64

#: When to look at a change, what the standing sessions had sent by then, and its entries and blocks: none if it is too
#: large to be gossiped.
_Carried: TypeAlias = tuple[float, Mapping[Session, Flow], list[Entry], list[Block]]


class Announcer:
    """Tells other nodes by gossip of what is new here."""

    def __init__(
        self,
        replica: Replica,
        gossip: Gossip,
        sync: SyncService,
        address: Callable[[], Address | None],
        loop: asyncio.AbstractEventLoop,
        max_events: int,
    ) -> None:
        """`address` tells where this node's sync protocol answers, once that is known; `max_events`: gossip events that
        a burst of changes may cost before it is announced instead."""
        self._replica = replica
        self._gossip = gossip
        self._sync = sync
        self._address = address
        self._loop = loop
        self._max_events = max_events
        #: Where peers do not acknowledge them; somebody who wants no events at all gets none.
        self._most_events = max(max_events, HURRY_EVENTS) if max_events else 0
        self._entries: list[Entry] = []
        self._blocks: list[Block] = []
        self._large = False
        self._gathering: asyncio.TimerHandle | None = None
        self._announcing: asyncio.TimerHandle | None = None
        self._safety: asyncio.TimerHandle | None = None
        #: Changes that the standing sessions should carry, oldest first.
        self._carried: deque[_Carried] = deque()
        self._may_hurry_at = 0.0
        self._looking: asyncio.TimerHandle | None = None
        self._announced_at = loop.time() - SAFETY_PAUSE

    def stop(self) -> None:
        """Send what was gathered."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._send()
        waiting = [handle for handle in (self._announcing, self._safety, self._looking) if handle is not None]
        for handle in waiting:
            handle.cancel()
        if waiting:
            self._announce_now()

    def gather(self, entries: Sequence[Entry], blocks: Sequence[Block], large: bool) -> None:
        """Take in what was written here; `large`: contents came with it whose blocks are not among these."""
        self._large |= large
        self._entries.extend(entries)
        if len(self._blocks) <= self._most_events:
            # Beyond that they will not be gossiped, so there is no need to hold a large file here.
            self._blocks.extend(blocks)
        if self._gathering is None:
            self._gathering = self._loop.call_later(GATHER_SECONDS, self._send)

    def announce(self) -> None:
        """Tell the others to sync with this node, now or as soon as the last announcement is old enough."""
        if self._announcing is None:
            due = self._announced_at + ANNOUNCE_SECONDS
            self._announcing = self._loop.call_at(max(due, self._loop.time()), self._announce_now)

    def mention(self) -> None:
        """Announce what is new, unless the sessions that stand turn out to have carried it."""
        if not self._sync.standing:
            self.announce()
        elif self._safety is None:
            due = max(self._loop.time() + SAFETY_SECONDS, self._announced_at + SAFETY_PAUSE)
            self._safety = self._loop.call_at(due, self._make_sure)

    def _send(self) -> None:
        self._gathering = None
        entries, blocks, large = self._entries, self._blocks, self._large
        self._entries, self._blocks, self._large = [], [], False
        if large or not self._may_fit(entries, blocks):
            entries, blocks = [], []
        if self._sync.standing:
            self._look_later(entries, blocks)
        else:
            events = self._events(entries, blocks)
            if 0 < len(events) <= self._max_events:
                self._gossip.send(events)
                return
        self.mention()

    def _look_later(self, entries: list[Entry], blocks: list[Block]) -> None:
        """Gossip a change if the peers of standing sessions turn out not to acknowledge what they were sent.

        More events than `max_events` only where packets are lost, since on a narrow link they would be in the way of
        what the peers wait for.  A larger change is announced then.
        """
        if not entries and len(self._carried) > 1 and not (self._carried[-1][2] or self._carried[-2][2]):
            # Of several large changes in a row the last one tells as much as all.  The first one stays: where they
            # follow each other sooner than they are looked at, none would be.
            self._carried.pop()
        if len(self._carried) >= MAX_CARRIED:
            # The last one becomes an announcement, which tells of both.
            self._carried.pop()
            entries, blocks = [], []
        patience = max(ACKNOWLEDGED_SECONDS, ACKNOWLEDGED_ROUND_TRIPS * self._sync.neighbours.longest_round_trip)
        self._carried.append((self._loop.time() + patience, self._sync.neighbours.mark(), entries, blocks))
        if self._looking is None:
            self._looking = self._loop.call_later(patience, self._look)

    def _look(self) -> None:
        self._looking = None
        now = self._loop.time()
        later: list[_Carried] = []
        while self._carried and self._carried[0][0] <= now:
            _, mark, entries, blocks = self._carried.popleft()
            if not self._sync.neighbours.lacks(mark):
                continue
            if now < self._may_hurry_at:
                later.append((self._may_hurry_at, mark, entries, blocks))
                continue
            events = self._events(entries, blocks)
            if not 0 < len(events) <= self._max_events and not self._sync.neighbours.loses(mark):
                later.append((now + ACKNOWLEDGED_SECONDS, mark, entries, blocks))
            elif events:
                self._may_hurry_at = now + HURRY_SECONDS * len(events)
                self._gossip.send(events)
            else:
                self.announce()
        if any(self._sync.neighbours.loses(mark) for _, mark, *_ in later[:-MAX_LOOKED_AGAIN]):
            # One announcement tells of all that there is no time for.
            self.announce()
        self._carried.extend(later[-MAX_LOOKED_AGAIN:])
        if self._carried:
            self._looking = self._loop.call_at(self._carried[0][0], self._look)

    def _may_fit(self, entries: Sequence[Entry], blocks: Sequence[Block]) -> bool:
        """Whether it is worth keeping and encoding these."""
        few = len(blocks) <= self._most_events and len(entries) <= 4 * self._most_events
        return few and all(len(block.data) <= GOSSIP_BLOCK_DATA for block in blocks)

    def _events(self, entries: Sequence[Entry], blocks: Sequence[Block]) -> list[bytes]:
        """The events that carry these, none if they would be too many."""
        encoded = [entry.encode() for entry in entries]
        if any(len(raw) > MAX_EVENT for raw in encoded):
            return []
        events = encode_events(encoded, [block.encode() for block in blocks], self._address())
        return events if len(events) <= self._most_events else []

    def _make_sure(self) -> None:
        self._safety = None
        if not self._sync.neighbours.agreed:
            self.announce()

    def _announce_now(self) -> None:
        self._announcing = None
        self._announced_at = self._loop.time()
        self._gossip.send([encode_announcement(self._replica.root_hash(), self._address(), [])])
