"""What gossip brings, on its way into the log: at once where it is quiet, else several events together.

When a network is whole again, Serf brings hundreds of small changes within a second, each of which would be a
transaction of its own.  Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from basefs.gossip.events import GossipEvent

#: Seconds between two transactions, in which events are gathered.
GATHER_SECONDS = 0.02
#: Events of one transaction, which takes some 5 ms.
MOST_EVENTS = 16
#: Events that wait at the most, half a kilobyte each.  Beyond it the oldest are dropped, and come by sync.
MOST_WAITING = 4096


class Hearing:
    """The gossiped events that are not in the log yet, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[Sequence[GossipEvent]], None]) -> None:
        """`take` gives some events to the log."""
        self._loop = loop
        self._take = take
        self._events: deque[GossipEvent] = deque(maxlen=MOST_WAITING)
        self._timer: asyncio.TimerHandle | None = None
        self._taken_at = loop.time() - GATHER_SECONDS

    def hear(self, event: GossipEvent) -> None:
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
