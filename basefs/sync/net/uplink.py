"""Who may upload when the connection to the network is narrow: one after the other.  No I/O and no clock.

Served at once, all peers would have a content after that many times its time; served one by one, the first can serve
the others meanwhile.  On a wide link the order does not matter, and on a long one (much delay) a single connection does
not fill it, so nobody waits there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from basefs.sync.session.inflight import WIDE

#: Bytes that a session may upload without waiting: small differences are never late.
FREE_BYTES = 2048
#: Bytes that may be on their way on a narrow link.
BACKLOG = 64 * 1024
#: Seconds without an acknowledgement after which an upload is stuck, so that others need not wait for it.
STUCK = 1.0
#: Seconds for which one upload may have the link while others wait.
TURN = 10.0
#: The same of a large content on a wide link.  Those who wait get it from the one who has the turn meanwhile, and leave
#: within 2 s; when places change all of them have to look for somebody again, and something comes twice.  Who is slow
#: has less time, and so has who passes nothing on: somebody has waited for a `TURN` then.
LARGE_TURN = 60.0

#: A link is wide once its neighbour has acknowledged this many bytes beyond `EASY` a second.  The token bucket of a
#: narrow link lets a smaller burst through.
SHOWN = 4608
#: Bytes a second that show nothing, since a narrow link may carry them.
EASY = 32 * 1024
#: Seconds for which the link counts as wide.  Contents are pushed whole on it: that takes fewer messages than to ask
#: for their blocks.
REMEMBERED = 60.0


@dataclass(frozen=True, slots=True)
class Flow:
    """What is known of a connection.

    Attributes:
        outstanding: bytes that were sent and are not acknowledged.
        acknowledged: bytes that were sent and have arrived.
        shortest: seconds of the shortest round trip, 0 if unknown.
        latest: seconds of a round trip lately, 0 if unknown.
    """

    outstanding: int
    acknowledged: int
    shortest: float = 0.0
    latest: float = 0.0

    @property
    def is_long(self) -> bool:
        """Whether the way is long, rather than the queue before it."""
        return self.shortest >= 0.1 and self.latest < 2.0 * self.shortest


class LinkWidth:
    """Whether the link to one neighbour is wide, as far as it has shown.

    What the links to others carry counts for nothing: a neighbour nearby would have the rest get contents whole over a
    narrow link.
    """

    def __init__(self) -> None:
        #: Bytes beyond `EASY` a second, of those that were acknowledged by the last look.
        self._level = 0.0
        self._acknowledged = 0
        self._looked_at = 0.0
        self._wide_until = 0.0

    def note(self, acknowledged: int, now: float) -> None:
        """The neighbour has acknowledged so many bytes in all; call it often while it receives."""
        leaked = EASY * (now - self._looked_at)
        self._level = max(0.0, self._level + acknowledged - self._acknowledged - leaked)
        self._acknowledged, self._looked_at = acknowledged, now
        if self._level >= SHOWN:
            self._wide_until = now + REMEMBERED

    def is_wide(self, now: float) -> bool:
        """Whether it has shown lately that it is."""
        return now < self._wide_until


class Uploader(Protocol):
    """Who uploads."""

    def flow(self) -> Flow:
        """Its connection as it is now."""


class Uplink:
    """The uploads of one node."""

    def __init__(self) -> None:
        self._holder: Uploader | None = None
        self._large = False
        self._began_at = 0.0
        self._began_with = 0
        self._moved_at = 0.0
        self._acknowledged = 0
        #: Since when an upload of a large content waits for another one, and when it asked last.
        self._waiting: dict[Uploader, tuple[float, float]] = {}
        #: The party that had the last turn.
        self._party = ""
        #: Uploads that were not admitted when they asked last -> their party, and when that was.
        self._refused: dict[Uploader, tuple[str, float]] = {}

    def admits(self, upload: Uploader, now: float, *, large: bool = False, party: str = "") -> bool:
        """Whether an upload may go on; `now` in seconds.  `large`: it is a large content.

        `party`: of the peer.  One party does not pass the turn among its sessions while another one waits.

        The upload whose turn it is waits, too, once `BACKLOG` bytes are on a narrow link: it could not be stopped any
        more.
        """
        admitted = self._admits(upload, now, large, party)
        self._refused.pop(upload, None)
        if not admitted:
            self._refused[upload] = party, now
        since, asked_at = self._waiting.pop(upload, (now, now))
        if not admitted and large and self._large and self._holder is not upload:
            self._waiting[upload] = (since if now - asked_at < STUCK else now, now)
        return admitted

    def _admits(self, upload: Uploader, now: float, large: bool, party: str) -> bool:
        if self._holder is upload:
            self._large = large
            flow = upload.flow()
            return flow.outstanding < BACKLOG or self._is_wide(flow, now)
        held_by = None if self._holder is None else self._holder.flow()
        if held_by is None or not self._has_turn(held_by, now):
            if party and party == self._party and self._do_others_wait(now):
                return False
            self._holder, self._party = upload, party
            self._large = large
            self._began_at = self._moved_at = now
            self._began_with = self._acknowledged = upload.flow().acknowledged
            return True
        if large and self._large:
            return held_by.is_long
        return held_by.outstanding == 0 or self._is_wide(held_by, now)

    def _do_others_wait(self, now: float) -> bool:
        """Whether another party than that of the last turn was not admitted a moment ago."""
        return any(party != self._party and now - asked_at < STUCK for party, asked_at in self._refused.values())

    def _has_turn(self, flow: Flow, now: float) -> bool:
        """Whether others wait.  A large content has its turn also while it waits for blocks that this node gets."""
        if flow.acknowledged != self._acknowledged:
            self._acknowledged = flow.acknowledged
            self._moved_at = now
        if now - self._moved_at >= STUCK or not (flow.outstanding > 0 or self._large):
            return False
        serves = self._large and self._is_wide(flow, now) and not self._is_in_vain(now)
        return now <= self._began_at + (LARGE_TURN if serves else TURN)

    def _is_in_vain(self, now: float) -> bool:
        """Whether somebody waits who should have got a large content from the one that has the turn."""
        return any(since < now - TURN and now - asked_at < STUCK for since, asked_at in self._waiting.values())

    def is_turn_of(self, upload: Uploader) -> bool:
        """Whether an upload need not wait for others."""
        return self._holder is upload

    def ended(self, upload: Uploader) -> None:
        """The session of an upload has ended."""
        self._waiting.pop(upload, None)
        self._refused.pop(upload, None)
        if self._holder is upload:
            self._holder = None

    def _is_wide(self, flow: Flow, now: float) -> bool:
        if flow.is_long:
            return True
        return flow.acknowledged - self._began_with > WIDE * max(now - self._began_at, 0.02)
