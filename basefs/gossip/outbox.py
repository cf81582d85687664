"""The queue of events to send.  Pure.

1. At most `limit` events and one announcement are queued.
2. If a burst does not fit, all queued events are dropped and the caller announces itself instead ("sync with me"),
   because half a burst only makes the receivers request the other half.
3. Of several announcements only the newest is queued: its root hash covers the others.  It is never dropped, and it is
   sent last, after the events that were queued before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from basefs.gossip.events import is_announcement

#: Events that may wait.  At the 2 events/s of 30 nodes this is a quarter of a minute, by when an announcement and a
#: sync (about 1.5 s) would have carried any number of them; less would turn one 16-block file into an announcement.
QUEUE_LIMIT = 32


class Outbox:
    """A bounded queue of encoded events."""

    def __init__(self, limit: int = QUEUE_LIMIT) -> None:
        self._limit = limit
        self._events: deque[bytes] = deque()
        self._announcement: bytes | None = None

    def __len__(self) -> int:
        return len(self._events) + (self._announcement is not None)

    def put(self, payloads: Sequence[bytes]) -> int:
        """Queue the payloads.  Returns 0, or how many events were dropped because they did not fit."""
        events = [payload for payload in payloads if not is_announcement(payload)]
        for payload in payloads:
            if is_announcement(payload):
                self._announcement = payload
        if len(self._events) + len(events) > self._limit:
            dropped = len(self._events) + len(events)
            self._events.clear()
            return dropped
        self._events.extend(events)
        return 0

    def peek(self) -> bytes | None:
        """The next payload, which stays queued until `done`; None if nothing waits."""
        return self._events[0] if self._events else self._announcement

    def done(self, payload: bytes) -> None:
        """Remove what `peek` returned, unless an overflow or a newer announcement has replaced it meanwhile."""
        if self._events and self._events[0] is payload:
            self._events.popleft()
        elif self._announcement is payload:
            self._announcement = None
