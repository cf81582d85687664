"""What this node has written, by gossip: as events where it is small, else as an announcement.

While sessions stand, news goes over them, and the root hashes that are exchanged there find what was lost.  Gossip
follows only where a peer acknowledges nothing of it, or none has confirmed it after a while: a connection that loses
half of its packets tries ever less often, while gossip comes by another node.  Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from basefs.gossip.events import MAX_EVENT, Address, encode_announcement, encode_events
from basefs.gossip.service import Gossip
from basefs.log.blocks import GOSSIP_BLOCK_DATA, Block
from basefs.log.entries import Action, Entry
from basefs.replica.replica import Replica
from basefs.sync.net.neighbours import Acknowledged, Mark
from basefs.sync.net.service import SyncService
from basefs.sync.wire.limits import DEFAULT_LIMITS

#: Seconds over which what was published is collected before it is gossiped: a save that is two transactions fits.  What
#: is saved together has waited for the quiet window already, and each ms more is one until others see it.
GATHER_SECONDS = 0.005
#: Seconds between announcements of one node, and between events that are gossiped because peers acknowledge nothing.
#: Shorter follows a long copy more closely, longer leaves Serf in peace.
ANNOUNCE_SECONDS = 0.5
#: Seconds between two announcements of news that went over standing sessions: a cluster in which something changes all
#: the time has no moment in which two root hashes are equal.
SAFETY_PAUSE = 60.0
#: Seconds in which each peer should have acknowledged something of what it was sent, and all of it sooner or later.
#: Less would gossip on narrow links, where what waits for the link is late and gossip makes it later.
ACKNOWLEDGED_SECONDS = 2.0
#: Events of one change that are gossiped for this reason: what Serf's packets carry in a second (`bucket.slots`, wan
#: profile, five nodes or more), so that none waits for its first turn.  With more of them each would have fewer
#: repetitions, on a network that needs them; a larger change is announced.
HURRY_EVENTS = 16
#: Such changes that are looked at again and again, while they wait for a link that may only be narrow.
MAX_LOOKED_AGAIN = 8
#: Changes that wait to be looked at, of up to 8 KiB each: more than can be gossiped while they wait.
MAX_CARRIED = 64


@dataclass(frozen=True, slots=True)
class _Carried:
    """A change that the standing sessions should carry.

    Attributes:
        due: when to look at it.
        mark: what the sessions had sent by then, and acknowledged at the last look.
        entries, blocks: what it is; none if it is too large to be gossiped.
        stuck: whether some peer acknowledged nothing of it at the last look.
    """

    due: float
    mark: Mark
    entries: list[Entry]
    blocks: list[Block]
    stuck: bool = False


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
            # By then a peer of a standing session should have told its root hash.
            due = max(self._loop.time() + DEFAULT_LIMITS.heartbeat + 2.0, self._announced_at + SAFETY_PAUSE)
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
        """Gossip a change if a peer of a standing session turns out to acknowledge nothing of what it was sent."""
        if not entries and len(self._carried) > 1 and not (self._carried[-1].entries or self._carried[-2].entries):
            # Of several large changes in a row the last one tells as much as all.  The first one stays: where they
            # follow each other sooner than they are looked at, none would be.
            self._carried.pop()
        if len(self._carried) >= MAX_CARRIED:
            # The last one becomes an announcement, which tells of both.
            self._carried.pop()
            entries, blocks = [], []
        due = self._loop.time() + ACKNOWLEDGED_SECONDS
        self._carried.append(_Carried(due, self._sync.neighbours.mark(), entries, blocks))
        if self._looking is None:
            self._looking = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._looking = None
        now = self._loop.time()
        later: list[_Carried] = []
        for _ in range(len(self._carried)):
            change = self._carried.popleft()
            if change.due > now:
                self._carried.append(change)
                continue
            arrival, mark = self._sync.neighbours.arrival(change.mark)
            if arrival is Acknowledged.MOVING:
                later.append(replace(change, due=now + ACKNOWLEDGED_SECONDS, mark=mark, stuck=False))
            elif arrival is Acknowledged.STUCK and now < self._may_hurry_at:
                later.append(replace(change, due=self._may_hurry_at, stuck=True))
            elif arrival is Acknowledged.STUCK:
                self._tell(change, now)
        if any(change.stuck for change in later[:-MAX_LOOKED_AGAIN]):
            # One announcement tells of all that there is no time for.
            self.announce()
        self._carried.extend(later[-MAX_LOOKED_AGAIN:])
        if self._carried:
            self._looking = self._loop.call_at(min(change.due for change in self._carried), self._look)

    def _tell(self, change: _Carried, now: float) -> None:
        events = self._events(change.entries, change.blocks)
        if events:
            self._may_hurry_at = now + ANNOUNCE_SECONDS * len(events)
            self._gossip.send(events)
        else:
            self.announce()

    def _may_fit(self, entries: Sequence[Entry], blocks: Sequence[Block]) -> bool:
        """Whether it is worth keeping and encoding these; the gossip key reaches members alone, in sessions."""
        few = len(blocks) <= self._most_events and len(entries) <= 4 * self._most_events
        if any(entry.action is Action.GOSSIP_KEY for entry in entries):
            return False
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
