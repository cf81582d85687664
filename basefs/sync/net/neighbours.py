"""The neighbour set: the sessions of this node that stay open for news, to whom, how many, how long.

A few random members each, renewed now and then, make a random graph over the cluster: with three each it is connected
almost surely, and news crosses it in a few hops.  Sessions that bring news a second time become lazy, until those that
are not make a tree.  Where the graph is not connected, or a push is lost, the periodic session makes up for it.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from basefs.sync.net.parties import Parties, Party
from basefs.sync.net.peers import Address
from basefs.sync.net.places import Places
from basefs.sync.net.transport import DEFAULT_TIMING, Session
from basefs.sync.session.push import Notice, PushSession, QueuedPush
from basefs.sync.session.result import Reason
from basefs.sync.session.states import Role

log = logging.getLogger(__name__)

#: Standing sessions that others have opened, at the most: a random graph asks more of some nodes than of others.
MAX_STANDING = 12
#: Of them, those that one party may have opened: several nodes may share an address.
MAX_STANDING_PER_PARTY = 6
#: Standing sessions that a node opens itself, however many others have opened: those with peers that it has not chosen
#: may all be with one that passes nothing on.
OWN_STANDING = 2


class Acknowledged(enum.Enum):
    """What became of what was sent to the neighbours."""

    ARRIVED = "arrived"  # each has acknowledged all of it
    MOVING = "moving"  # each that has not has acknowledged more since the last look
    STUCK = "stuck"  # some neighbour has acknowledged nothing more, or is gone


#: For each neighbour, the bytes that it had been sent when something was marked, and those that it has acknowledged.
#: `None`: some of it had not been written yet.  A busy node takes the mark before the sessions have had their turn.
Mark: TypeAlias = dict[Session, tuple[int | None, int]]


class NeighbourSet:
    """Implements `Keeper`.  All methods are called in the event loop's thread."""

    def __init__(
        self,
        peers: Callable[[], Sequence[Address]],
        on_began: Callable[[Session], None],
        on_gap: Callable[[Address], None],
        rng: random.Random,
        degree: int,
        is_known: Callable[[Party], bool] = lambda who: True,
        parties: Parties | None = None,
        lifetime: tuple[float, float] = DEFAULT_TIMING.lifetime,
    ) -> None:
        """`peers` lists where others listen.

        `on_began` is called with each session that stands, after both logs were compared; `on_gap` with a peer that has
        something which a push did not bring.  `degree`: sessions that this node wants, 0: it keeps none.  `is_known`:
        see `Places`.  `parties`: which peers count as one.  `lifetime`: see `SessionTiming`.
        """
        self._parties = parties or Parties()
        self._peers = peers
        self._on_began = on_began
        self._on_gap = on_gap
        self._rng = rng
        self._lifetime = lifetime
        self._degree = degree
        #: Until when each is to stand.
        self._sessions: dict[Session, float] = {}
        #: Those that others have opened.
        self._places: Places[Session] = Places(MAX_STANDING, MAX_STANDING_PER_PARTY, is_known, rng)

    def leave(self, reason: Reason = Reason.COMPLETE) -> None:
        """Leave all sessions."""
        for session in list(self._sessions):
            session.end(reason)

    @property
    def addresses(self) -> list[Address]:
        """The peers of the sessions that stand."""
        return sorted(session.address for session in self._sessions)

    def differs(self, address: Address) -> bool:
        """Whether a peer of a standing session has told of another root than ours, or of what has no place here."""
        return any(news.differs for session, news in self._news() if session.address == address)

    @property
    def agreed(self) -> bool:
        """Whether some peer has the log as it is here, or knows that it has not."""
        return any(news.agrees and not session.stuck for session, news in self._news())

    @property
    def longest_round_trip(self) -> float:
        """Seconds of a round trip lately to the farthest of these peers; 0 if unknown."""
        return max((session.flow().latest for session in self._sessions), default=0.0)

    def mark(self) -> Mark:
        """What the neighbours were given until now, for `arrival`."""
        return {session: (session.sent, session.acknowledged) for session in self._sessions}

    def arrival(self, mark: Mark) -> tuple[Acknowledged, Mark]:
        """What became of what the neighbours had been given by then, and the mark for the next look."""
        now = {
            session: (session.sent if sent is None else sent, session.acknowledged)
            for session, (sent, _) in mark.items()
        }
        if any(session not in self._sessions for session in mark):
            return Acknowledged.STUCK, now  # nobody knows
        waiting = [session for session, (sent, acknowledged) in now.items() if sent is None or acknowledged < sent]
        if any(session.acknowledged == mark[session][1] for session in waiting):
            return Acknowledged.STUCK, now
        return (Acknowledged.MOVING if waiting else Acknowledged.ARRIVED), now

    def push(self, entries: Sequence[bytes]) -> None:
        """Send encoded entries, with their blocks, to the peers that do not have them."""
        for session, news in self._news():
            news.send(entries, whole=session.sends_whole)
            session.wake()

    def push_later(self, entries: Sequence[QueuedPush]) -> None:
        """The same, to each as soon as the connection takes it."""
        for session, news in self._news():
            news.send_later(entries)
            session.wake()

    def wake(self) -> None:
        """Let each session look for what it may send."""
        for session, _ in self._news():
            session.wake()

    @property
    def waits(self) -> bool:
        """Whether some peer is still to be sent what came before: nothing may overtake that."""
        return any(news.waits for _, news in self._news())

    def tell_root(self) -> None:
        """Have the peers compare."""
        for session, news in self._news():
            news.tell_root()
            session.wake()

    def tell_lazy(self) -> None:
        """Tell the root hash where news is kept back."""
        for session, news in self._news():
            if news.lazy:
                news.tell_if_new()
                session.wake()

    def graft(self, address: Address) -> bool:
        """Have a peer send news again, and what it keeps back; False if more than that is missing."""
        for session, news in self._news():
            if session.address == address and news.lazy:
                session.wake()
                return news.graft()
        return False

    def _news(self) -> list[tuple[Session, PushSession]]:
        return [(session, news) for session in self._sessions if (news := session.push) is not None]

    # What sessions ask and tell

    def may_keep(self, address: Address, key: bytes, role: Role) -> bool:
        """See `Keeper`: nobody twice, nobody who cannot be reached in turn, and not too many."""
        if self._degree == 0 or address[1] == 0 or (key or address) in map(_name_of, self._sessions):
            return False
        if role is Role.RESPONDER:
            return self._places.admit(self._parties.of(address[0], key))
        return self._missing > 0

    def notice(self, session: Session, notice: Notice | None) -> None:
        """See `Keeper`."""
        if notice is Notice.STANDS:
            self._sessions[session] = asyncio.get_running_loop().time() + self._rng.uniform(*self._lifetime)
            if session.role is Role.RESPONDER:
                unlucky = self._places.enter(session, self._parties.of(session.address[0], session.key))
                if unlucky is not None:
                    # Perhaps this one: others have taken the last places since it was asked whether there are any.
                    asyncio.get_running_loop().call_soon(unlucky.end, Reason.COMPLETE)
            log.debug("%s:%d: session established", *session.address)
            self._on_began(session)
        elif notice is Notice.GAP:
            self._on_gap(session.address)
        elif notice is Notice.REPEATS:
            # A session that brings what another one has brought is a lazy one.
            others = [news for other, news in self._news() if other is not session]
            if session.push is not None and any(map(session.push.repeats, others)):
                session.push.prune()
                session.wake()
        else:
            self._sessions.pop(session, None)
            self._places.leave(session)

    # How many, and how long

    def vacancies(self) -> int:
        """How many sessions are missing, once those that have stood long enough or twice are left."""
        self._renew()
        self._part_twins()
        return self._missing

    @property
    def _missing(self) -> int:
        own = sum(session.role is Role.INITIATOR for session in self._sessions)
        return max(self._degree - len(self._sessions), min(OWN_STANDING, self._degree) - own)

    def make_room(self, arrived: int) -> None:
        """So many members have come, or are back: perhaps a session gives way to a new one, with anybody.

        Otherwise the halves of a cluster that was cut in two would stay two graphs until their sessions have stood long
        enough, and news would cross only where logs are compared.  Of all nodes together as many give way as have come,
        so a single newcomer costs a single session.
        """
        others = len(set(self._peers()))
        if self._sessions and len(self._sessions) >= self._degree and self._rng.random() * others < arrived:
            self._sessions[self._rng.choice(list(self._sessions))] = 0.0

    def _renew(self) -> None:
        """Leave what has stood long enough, one at a time, if there is somebody else."""
        now = asyncio.get_running_loop().time()
        old = next((session for session, until in self._sessions.items() if until < now), None)
        if old is not None and set(self._peers()) - set(self.addresses):
            old.end(Reason.COMPLETE)

    def _part_twins(self) -> None:
        """Two nodes may have opened a session to each other at the same moment: one of both is enough.

        Neither knows what the other does, so each gives up its own by the toss of a coin, until one is left or none.
        """
        standing = Counter(map(_name_of, self._sessions))
        for session in list(self._sessions):
            twin = session.role is Role.INITIATOR and standing[_name_of(session)] > 1
            if twin and self._rng.random() < 0.5:
                session.end(Reason.COMPLETE)


def _name_of(session: Session) -> bytes | Address:
    """What tells two nodes apart: the key that the peer has proved, otherwise where it says that it listens."""
    return session.key or session.address
