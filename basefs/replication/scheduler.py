"""One scheduler of pulls: which peer to have a session with next, why, and not before when.  No I/O and no clock.

Six reasons lead to a session, and all of them share one queue, one table of what is running, and one limit:

    NEWS        gossip, a join or a content that stopped points to a peer, or to any; or gossip does not reach a member
    GAP         a neighbour advertises a log that differs, and nothing has come by the push session
    CONTENT     blocks are missing that no session brings: other peers may have them
    PERIODIC    one random peer every few seconds, the longest unmet first (paper, section 3.2.2)
    LOST        a peer that could not be reached; a probe comes first, so that it takes no place of a session
    NEIGHBOUR   too few sessions stay open for news

Whatever has come in the meantime is looked at when a pull is due, not when it is queued: a gap that has closed, or a
content that is complete, leads to no session.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from basefs.log.hashes import BlockHash
from basefs.sync.net.peers import Address
from basefs.sync.session.inflight import CONTENTS_SECONDS, PATIENCE
from basefs.sync.session.recent import Recent
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.states import Phase


@dataclass(frozen=True, slots=True)
class PullLimits:
    """How many pulls there are, and when.  Times are in seconds.

    Attributes:
        sessions: at once.  More would fetch the same news from several peers.
        queued: peers in the queue because of news; further ones are dropped, the periodic session makes up for it.
        gap_jitter: until a gap is fetched, at the most: what is on its way over a standing session comes in that time.
        quiet: without news before a gap is fetched, since in a burst all neighbours advertise what is on its way; and
            after which it is fetched all the same, with news now and then.
        latest_in_burst: after which it is fetched all the same in a burst.
        burst_entries: more entries than this within a second are a burst.
        gap_patience: without anything after which another gap is fetched although the last session has not ended.
        content_pause: until a peer is asked for the rest of a content, doubled for each that had nothing.
        content_tries: peers asked in vain until it is left to the sessions that there are anyway, or until something
            else is missing.
        moved_on: blocks that have come until others are asked again: while a content is new to all, they have nothing
            of what follows.
        lost_first: until a lost peer is tried.  Serf tries a failed member every 30 s and does not notice a short cut
            at all; an attempt costs one TCP SYN.
        lost_longest: from one attempt to the next at the most.
        lost: peers that are tried, those that were lost last; the rest is left to Serf and to the periodic session.
        refused: until a neighbour that would not, or could not, is asked again at the most.
    """

    sessions: int = 4
    queued: int = 256
    gap_jitter: float = 0.1
    quiet: float = 0.5
    latest_in_burst: float = 2.0
    burst_entries: int = 16
    gap_patience: float = 2.0
    content_pause: float = 0.05
    content_tries: int = 7
    moved_on: int = 64 * 32
    lost_first: float = 1.0
    lost_longest: float = 4.0
    lost: int = 32
    refused: float = 10.0


DEFAULT_PULLS = PullLimits()


class Why(enum.Enum):
    """Why there is to be a session."""

    NEWS = "news"
    GAP = "a gap in what it sends"
    CONTENT = "the rest of a content"
    PERIODIC = "periodic"
    LOST = "it was lost"
    NEIGHBOUR = "a neighbour"


@dataclass(frozen=True, slots=True)
class Pull:
    """What is to be done now: a probe (LOST), a session that stays open (NEIGHBOUR), else one that compares."""

    peer: Address
    why: Why
    text: str


class Sessions(Protocol):
    """What is known of the sessions of this node at the moment of a decision."""

    def avoids(self, peer: Address) -> bool:
        """Whether no session with a peer is wanted."""

    def differs(self, peer: Address) -> bool:
        """Whether what a neighbour has advertised last is still not here."""

    def missing(self) -> list[BlockHash]:
        """The blocks that no session is bringing."""

    @property
    def wants_more(self) -> bool:
        """Whether contents come of which another peer could bring some."""

    @property
    def blocks(self) -> int:
        """How many blocks have come."""

    @property
    def exchanges(self) -> bool:
        """Whether blocks come over sessions that stand."""

    def brings_blocks(self, peer: Address) -> bool:
        """Whether some session asks a peer for blocks."""

    @property
    def standing(self) -> list[Address]:
        """The neighbours."""

    def vacancies(self) -> int:
        """How many neighbours are missing."""


@dataclass(slots=True)
class _Item:
    not_before: float
    text: str


@dataclass(slots=True)
class _Running:
    """A session.  `moved`: when something came that others should wait for; `waits`: the peer serves others first."""

    why: Why
    began: float
    moved: float
    progressed: bool = False
    waits: bool = False


class PullScheduler:
    """The queue.  `now` is in seconds of any steady clock."""

    def __init__(
        self,
        peers: Callable[[], Sequence[Address]],
        rng: random.Random,
        *,
        interval: float = 0.0,
        probability: float = 1.0,
        limits: PullLimits = DEFAULT_PULLS,
    ) -> None:
        """`peers` lists the others.

        `interval`: seconds, 0: no periodic sessions, else one with this `probability`.
        """
        self._peers = peers
        self._rng = rng
        self._interval = interval
        self._probability = probability
        self._limits = limits
        self._queue: dict[tuple[Address | None, Why], _Item] = {}
        self._running: dict[Address, _Running] = {}
        self._opening: set[Address] = set()
        self._refused: dict[Address, float] = {}
        self._met: Recent[Address, float] = Recent()
        self._lost: dict[Address, float] = {}
        #: The peers with a gap, since when one of them waits, and not before when.
        self._gaps: dict[Address, None] = {}
        self._gap_since = self._gap_not_before = 0.0
        self._arrived = 0
        self._arrived_at = -limits.quiet
        self._counted_since = 0.0
        #: Attempts to find a content in vain, for which blocks, after how many blocks, and with whom last.
        self._tries = 0
        self._sought: set[BlockHash] = set()
        self._blocks_then = 0
        self._asked_last: Address | None = None
        #: Since when there is no periodic session because something comes.
        self._put_off_since: float | None = None

    def start(self, now: float) -> None:
        """Begin with what is done now and then."""
        self._queue[None, Why.NEIGHBOUR] = _Item(now, "")
        if self._interval > 0:
            self._queue[None, Why.PERIODIC] = _Item(now + self._interval, "")

    # What has happened

    def news(self, peer: Address, text: str, now: float, jitter: float = 0.0) -> bool:
        """A peer has something: a session after a random part of `jitter` seconds.

        A peer in the queue stays where it is.  One with which a session is running is asked again after it, because
        the news may have come too late for this one.  Returns whether it is in the queue: not where too many are.
        """
        if (peer, Why.NEWS) not in self._queue:
            if len(self._queue) >= self._limits.queued:
                return False
            self._queue[peer, Why.NEWS] = _Item(now + self._rng.uniform(0, jitter), text)
        return True

    def gap(self, peer: Address, now: float) -> None:
        """A neighbour has something that is not here."""
        if not self._gaps:
            self._gap_since = now
            self._gap_not_before = now + self._rng.uniform(0, self._limits.gap_jitter)
        self._gaps[peer] = None

    def arrived(self, entries: int, now: float) -> None:
        """So many entries of other nodes have come, by whatever way."""
        if now - self._counted_since > 1.0:
            self._counted_since, self._arrived = now, 0
        self._arrived += entries
        self._arrived_at = now

    def lost(self, peer: Address, now: float) -> None:
        """A peer could not be reached."""
        if peer in self._lost:
            delay = min(self._lost[peer] * 1.5, self._limits.lost_longest)
        else:
            delay = self._limits.lost_first
            if len(self._lost) >= self._limits.lost:
                # Machines that are off for good must not keep those from being tried that will be back.
                self.found(next(iter(self._lost)))
        self._lost[peer] = delay
        self._queue[peer, Why.LOST] = _Item(now + delay, "")

    def found(self, peer: Address) -> bool:
        """A peer is there again, or has left for good; returns whether it was lost."""
        self._queue.pop((peer, Why.LOST), None)
        return self._lost.pop(peer, None) is not None

    def is_lost(self, peer: Address) -> bool:
        """Whether a peer could not be reached, and is tried again."""
        return peer in self._lost

    def progress(self, peer: Address, phase: Phase, now: float, sessions: Sessions) -> list[Address]:
        """Something has come in a session that this node opened, if only that it has to wait.

        Returns the peers whose sessions are superfluous now: they let this node wait.
        """
        if phase is Phase.WAITING or sessions.wants_more:
            self._seek(now, sessions)
        running = self._running.get(peer)
        if running is None:
            return []
        if phase is Phase.WAITING:
            running.waits = True
            return []
        running.progressed, running.waits = True, False
        comparing = phase is Phase.COMPARING
        running.moved = now if comparing else max(running.moved, min(now, running.began + CONTENTS_SECONDS))
        if running.why is not Why.GAP:
            return []
        return sorted(other for other, each in self._running.items() if each.waits and each.why is Why.GAP)

    def result(self, peer: Address, result: Result, now: float, sessions: Sessions) -> None:
        """A session has ended, or has begun to stand, whichever side opened it."""
        if result.reason is Reason.COMPLETE:
            self._meet(peer, now)
        if result.counters.blocks_received > 0 or sessions.missing():
            self._seek(now, sessions)

    def ended(self, pull: Pull, now: float, sessions: Sessions) -> None:
        """A pull is over, whatever became of it."""
        if pull.why is Why.LOST:
            return
        if pull.why is Why.NEIGHBOUR:
            self._opening.discard(pull.peer)
            self._refused[pull.peer] = now + self._rng.uniform(0, self._limits.refused)
        else:
            self._running.pop(pull.peer, None)
        self._meet(pull.peer, now)
        if pull.peer == self._asked_last:
            self._seek(now, sessions)

    def _meet(self, peer: Address, now: float) -> None:
        """There was a session, or an attempt: a peer that never answers would otherwise always be the most urgent."""
        self._met[peer] = now

    def _seek(self, now: float, sessions: Sessions) -> None:
        """Some of a content may be missing."""
        if (None, Why.CONTENT) in self._queue:
            return
        moved_on = sessions.blocks - self._blocks_then >= self._limits.moved_on
        if self._tries and (moved_on or not self._sought.issuperset(sessions.missing())):
            # A content has moved on, or another one is missing.  What nobody can complete is not looked for again only
            # because a session brings something else: on a busy cluster that would never end.
            self._tries = 0
            self._sought.clear()
        if self._tries < self._limits.content_tries:
            self._queue[None, Why.CONTENT] = _Item(now + self._limits.content_pause * 2**self._tries, "")

    # What to do

    @property
    def idle(self) -> bool:
        """Nothing is running, and no peer is in the queue."""
        return not self._running and all(peer is None for peer, _ in self._queue)

    @property
    def running(self) -> list[Address]:
        """The peers with which sessions compare."""
        return list(self._running)

    @property
    def due(self) -> float | None:
        """When to ask for the `next`, in seconds; `None`: when something has happened."""
        full = len(self._running) >= self._limits.sessions
        times = [
            item.not_before
            for (peer, why), item in self._queue.items()
            if peer not in self._running and (why in (Why.LOST, Why.NEIGHBOUR) or not full)
        ]
        if not full and self._open_gaps:
            times.append(self._gap_due)
        return min(times, default=None)

    @property
    def _open_gaps(self) -> list[Address]:
        return [peer for peer in self._gaps if peer not in self._running]

    @property
    def _gap_due(self) -> float:
        busy = [each.moved for each in self._running.values() if each.why is Why.GAP and not each.waits]
        latest = self._limits.latest_in_burst if self._arrived > self._limits.burst_entries else self._limits.quiet
        quiet = min(self._arrived_at + self._limits.quiet, self._gap_since + latest)
        return max(self._gap_not_before, quiet, max(busy) + self._limits.gap_patience if busy else 0.0)

    def next(self, now: float, sessions: Sessions) -> Pull | None:
        """What is due, `None` if nothing is; `ended` must follow."""
        while (due := self.due) is not None and due <= now:
            is_gap = self._open_gaps and len(self._running) < self._limits.sessions and self._gap_due == due
            pull = self._take_gap(now, sessions) if is_gap else self._take(now, sessions)
            if pull is None or (pull.why is not Why.LOST and sessions.avoids(pull.peer)):
                continue
            if pull.why is Why.NEIGHBOUR:
                self._opening.add(pull.peer)
            elif pull.why is not Why.LOST:
                self._running[pull.peer] = _Running(pull.why, now, now)
            return pull
        return None

    def _take(self, now: float, sessions: Sessions) -> Pull | None:
        full = len(self._running) >= self._limits.sessions
        ready = [
            (item.not_before, number, key)
            for number, (key, item) in enumerate(self._queue.items())
            if key[0] not in self._running and (key[1] in (Why.LOST, Why.NEIGHBOUR) or not full)
        ]
        _, _, (peer, why) = min(ready)
        item = self._queue.pop((peer, why))
        if peer is not None:
            if why is Why.LOST:
                # In case nobody reports how the attempt has ended.
                self._queue[peer, why] = _Item(now + 4 * self._limits.lost_longest, "")
            return Pull(peer, why, item.text or why.value)
        if why is Why.PERIODIC:
            self._queue[None, why] = _Item(now + self._interval, "")
            peer = self._unmet(now, sessions)
        elif why is Why.CONTENT:
            peer = self._source(now, sessions)
        else:
            peer = self._neighbour(now, sessions)
        return None if peer is None else Pull(peer, why, why.value)

    def _take_gap(self, now: float, sessions: Sessions) -> Pull | None:
        peer = self._rng.choice(self._open_gaps)
        del self._gaps[peer]
        if not sessions.differs(peer):
            return None
        self._gap_since = now
        return Pull(peer, Why.GAP, Why.GAP.value)

    def _unmet(self, now: float, sessions: Sessions) -> Address | None:
        """A random peer, weighted by the time since the last session."""
        peers = [peer for peer in self._peers() if not sessions.avoids(peer)]
        if not peers or self._is_put_off(now, sessions) or self._rng.random() >= self._probability:
            return None
        # One that was never met is as urgent as one that was away for an hour.
        weights = [max(now - self._met.get(peer, now - 3600.0), 1.0) for peer in peers]
        peer = self._rng.choices(peers, weights)[0]
        return None if peer in self._running else peer

    def _is_put_off(self, now: float, sessions: Sessions) -> bool:
        """Whether a periodic session waits because something comes: for a while only, or a peer could drip for ever."""
        fetching = any(each.progressed and now - each.moved < PATIENCE for each in self._running.values())
        if not (fetching or sessions.exchanges):
            self._put_off_since = None
            return False
        if self._put_off_since is None:
            self._put_off_since = now
        if now - self._put_off_since < CONTENTS_SECONDS:
            return True
        self._put_off_since = None
        return False

    def _source(self, now: float, sessions: Sessions) -> Address | None:
        """Another peer that may have some of a content."""
        missing = sessions.missing()
        if not missing and not sessions.wants_more:
            return None
        self._sought.update(missing)
        self._blocks_then = sessions.blocks
        queued = {peer for peer, why in self._queue if why is Why.NEWS}
        others = [
            peer
            for peer in self._peers()
            if not (peer in self._running or peer in queued or sessions.avoids(peer) or sessions.brings_blocks(peer))
            and peer != self._asked_last
        ]
        self._tries += 1
        self._asked_last = self._rng.choice(others) if others else None
        if self._asked_last is None:
            self._seek(now, sessions)
        return self._asked_last

    def _neighbour(self, now: float, sessions: Sessions) -> Address | None:
        """A random peer to keep a session with; the next look is at once if more are missing."""
        self._refused = {peer: until for peer, until in self._refused.items() if until > now}
        self._queue[None, Why.NEIGHBOUR] = _Item(now + 0.5, "")
        standing = set(sessions.standing)
        missing = sessions.vacancies() - len(self._opening - standing)
        busy = standing | self._opening | self._refused.keys()
        if missing <= 0:
            return None
        candidates = [peer for peer in self._peers() if peer not in busy and not sessions.avoids(peer)]
        if not candidates:
            return None
        if missing > 1:
            self._queue[None, Why.NEIGHBOUR] = _Item(now, "")
        return self._rng.choice(candidates)
