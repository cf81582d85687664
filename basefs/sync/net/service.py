"""The sessions of a node: a server, those that are asked for, and those that stay open."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from basefs.log.hashes import BlockHash
from basefs.log.interface import LogState
from basefs.log.keys import SigningKey, fingerprint_of
from basefs.sync.net.neighbours import NeighbourSet
from basefs.sync.net.parties import Party
from basefs.sync.net.peers import (
    FRESH_SECONDS,
    ON_THE_WAY_SECONDS,
    Address,
    Contact,
    Lag,
    PenaltyBox,
    Traffic,
)
from basefs.sync.net.server import SyncServer
from basefs.sync.net.transport import Session, SessionContext, hang_up, patience, sync_with
from basefs.sync.session.recent import Recent
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.states import Phase, Role
from basefs.tasks import cancel

log = logging.getLogger(__name__)

#: Ends that a person should hear of, once in a while.
_TURNED_AWAY = frozenset(
    {
        Reason.WRONG_FILESYSTEM,
        Reason.WRONG_VERSION,
        Reason.RUBBISH,
        Reason.ACCUSED,
        Reason.NO_TLS,
        Reason.UNKNOWN_KEY,
    }
)

#: Seconds in which a peer should answer: a person waits for it.
ANSWER_SECONDS = 1.0
#: Seconds that a node which stops waits until a peer has everything.  Small changes arrive within a round trip; a large
#: file that was saved a moment ago may have to wait until this node is back.
HAND_OVER_SECONDS = 3.0
#: Seconds between two questions to a peer.
_ASK_AGAIN = 0.1


class Listener(Protocol):
    """Hears what happens in the sessions of a node."""

    def on_result(self, address: Address, result: Result) -> None:
        """A session has ended, incoming (with the peer's own sync port, 0 if unknown) or outgoing."""

    def on_gap(self, address: Address) -> None:
        """A peer has something that was not sent over a session that stands."""

    def on_progress(self, address: Address, phase: Phase) -> None:
        """Something has come in a session that this node opened; `phase`: what it brings."""


class SyncService:
    """Runs the sessions of one log.  All methods are called in the event loop's thread.

    It decides nothing about whom to talk to, and when: `pull` and `keep` are called for that.

    Attributes:
        neighbours: the sessions that stay open for news.
    """

    def __init__(
        self,
        state: LogState,
        address: Address,
        *,
        peers: Callable[[], Sequence[Address]],
        max_sessions: int,
        degree: int = 0,
        shared: SessionContext | None = None,
    ) -> None:
        """`address`: where to listen.  `peers` lists where others do, without ourselves; it is called at each decision.

        `max_sessions`: that others may have with this node at once.  `degree`: sessions that stay open for news, 0:
        none.  `shared`: what its sessions share; `None`: there is no disk, and the filesystem is open.
        """
        self._state = state
        self._listener: Listener | None = None
        self._shared = shared or SessionContext()
        self._penalties = self._shared.penalties
        self._trusting = asyncio.Lock()
        #: Addresses at which a node of this filesystem has answered, the one met longest ago first, and when, in UNIX
        #: seconds, since other clocks stand while the machine sleeps: 0 where it was in an earlier run.
        self._met: Recent[Address, float] = Recent()
        #: Backoff before the next call of any other address.
        self._unmet = PenaltyBox(*self._shared.timing.unmet)
        #: The sessions that this node opened and that move something, by peer.
        self._talking: dict[Address, Session] = {}
        self._peers = peers
        #: The peers as last seen, and their parties.
        self._placed: tuple[Address, ...] = ()
        self._known: frozenset[Party] = frozenset()
        self.neighbours = NeighbourSet(
            peers,
            self._began,
            self._gap,
            self._shared.rng,
            degree,
            is_known=self._is_known,
            parties=self._shared.parties,
            lifetime=self._shared.timing.lifetime,
        )
        self._server = SyncServer(
            state,
            *address,
            max_sessions=max_sessions,
            on_result=self._called,
            keeper=self.neighbours,
            shared=self._shared,
            is_known=self._is_known,
        )

    @property
    def traffic(self) -> Traffic:
        """What all sessions have moved, those that are open included."""
        return self._shared.traffic

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    async def start(self, listener: Listener | None = None) -> None:
        """Listen; `listener` hears what happens in sessions.  Raises `OSError` if the address is taken."""
        self._listener = listener
        await self._server.start()

    async def stop(self) -> None:
        """End everything that others have begun; what was begun here ends with its task."""
        self.neighbours.leave()
        await self._server.stop()

    async def hand_over(self, peers: Callable[[], Sequence[Address]]) -> None:
        """Wait until one of these peers has everything that is here, for `HAND_OVER_SECONDS` at the most.

        Not for those that have no room.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + HAND_OVER_SECONDS
        while (some := self._present(peers())) and self.holder(some) is None and loop.time() < until:
            await self.confirm(some)
            if not any(self._may_take(peer) for peer in some):
                return
            await asyncio.sleep(_ASK_AGAIN)

    def _present(self, peers: Sequence[Address]) -> list[Address]:
        """Some peers that answer: those of standing sessions, if there are any."""
        answering = [peer for peer in peers if not self.contact(peer).away and self.banned_for(peer) is None]
        standing = set(self.standing)
        return sorted(answering, key=lambda peer: peer not in standing)[:3]

    def _may_take(self, peer: Address) -> bool:
        """Whether a peer has, or had when it was asked last, room for what it lacks."""
        contact = self.contact(peer)
        waits = contact.log is not None and contact.log.waiting > 0
        return self.holder([peer]) is not None or not (waits or contact.full_at is not None)

    def holder(self, peers: Sequence[Address]) -> Address | None:
        """The first that has told that it has everything that is here, contents included: logs only grow."""
        ours = self._state.digest()
        logs = ((peer, self.contact(peer).log) for peer in peers)
        whole = (peer for peer, log in logs if log and log.same_entries(ours) and log.has_contents_of(ours))
        return next(whole, None)

    def blocks_came(self) -> None:
        """Blocks are here: neighbours are told of them, and asked for others."""
        self._shared.requests.contents.look(self._state)
        self.neighbours.wake()

    # Sessions

    async def pull(self, address: Address, reason: str) -> Reason:
        """Compare with a peer."""
        log.debug("session with %s:%d: %s", *address, reason)
        return await self._connect(address, None)

    async def keep(self, address: Address) -> Reason:
        """Compare with a peer, and stay if both sides want to; returns when the session has ended."""
        reason = await self._connect(address, self.neighbours)
        log.debug("%s:%d: session ended: %s", *address, reason.value)
        return reason

    def abandon(self, address: Address) -> None:
        """End the session that this node opened with a peer: somebody else has brought what it should bring."""
        session = self._talking.get(address)
        if session is not None and session.push is None:
            session.end(Reason.ENOUGH)

    async def _connect(self, address: Address, keeper: NeighbourSet | None) -> Reason:
        try:
            result = await sync_with(
                self._state,
                *address,
                own_port=self.port,
                connect_timeout=patience(self.neighbours.longest_round_trip),
                progress=lambda session: self._progress(address, session),
                keeper=keeper,
                shared=self._shared,
            )
        finally:
            self._talking.pop(address, None)
        self._answered(address, result)
        return result.reason

    def _answered(self, address: Address, result: Result) -> None:
        """A session that this node began has ended."""
        if result.offends:
            self._penalties.punish(self._party_at(address), asyncio.get_running_loop().time())
        if self._is_ours(result):
            self.meet(address)
        self._ended(address, result)
        if not self.has_met(address):
            self._unmet.punish(self._shared.parties.answering(address, b""), asyncio.get_running_loop().time())

    def _called(self, address: Address, result: Result) -> None:
        """A session that a peer began has ended, or stands; `address`: where it says that it answers.

        Whoever calls may say any port, so without a key it has to be one of which gossip knows.
        """
        if address[1] and self._is_ours(result) and (result.key or address in self._peers()):
            self.meet(address)
        self._ended(address, result)

    def _is_ours(self, result: Result) -> bool:
        """Whether a session was with somebody of this filesystem."""
        return result.reason is Reason.COMPLETE or result.peer_identity == self._state.identity

    def meet(self, address: Address) -> None:
        """Somebody of this filesystem is at an address, as a session has shown."""
        self._met[address] = time.time()

    def remember(self, addresses: Iterable[Address]) -> None:
        """Nodes of this filesystem were at these addresses in an earlier run."""
        for address in addresses:
            self._met[address] = 0.0

    def has_met(self, address: Address) -> bool:
        """Whether a session has shown that somebody of this filesystem is at an address."""
        return address in self._met

    def met_at(self, address: Address) -> float | None:
        """When a session has shown that last, in UNIX seconds, 0 where it was in an earlier run; `None` if none has."""
        return self._met.get(address)

    def _party_at(self, address: Address) -> Party:
        """The party that answers at an address."""
        return self._shared.parties.answering(address, self.key_at(address))

    def _is_known(self, who: Party) -> bool:
        """Whether a party comes first; in an open filesystem, whether gossip lists a member at its address."""
        if self._shared.credentials is not None:
            return self._shared.parties.comes_first(who)
        peers = tuple(self._peers())
        if peers != self._placed:
            self._placed, self._known = peers, frozenset(self._shared.parties.of(host, b"") for host, _ in peers)
        return who in self._known

    # Who is let in

    def prefer(self, keys: frozenset[bytes]) -> None:
        """These members (raw public keys) come first from now on: see `Parties`."""
        self._shared.parties.prefer(keys)

    def turn_away(self, keys: frozenset[bytes]) -> None:
        """End the sessions of all keys but these, and let none of the others in from now on.

        For a closed filesystem only.
        """
        credentials = self._shared.credentials
        assert credentials is not None, "an open filesystem lets everybody in"
        gone = (credentials.trusted or frozenset()) - keys
        credentials.narrow(keys)
        for session in [session for session in self._shared.sessions if session.key not in keys]:
            digits = fingerprint_of(session.key).hex()[:12]
            log.info("%s:%d: session ended: the key %s is no member any more", *session.address, digits)
            session.expel()
        for address in [address for address, key in self._shared.proved.items() if key in gone]:
            del self._shared.proved[address]

    async def trust(self, keys: frozenset[bytes], own: SigningKey) -> None:
        """Turn away all keys but these at once, then let in those that are new, and show our own one.

        For a closed filesystem only.
        """
        credentials = self._shared.credentials
        assert credentials is not None, "an open filesystem lets everybody in"
        async with self._trusting:
            # First: with many members, the rest takes longer than a revoke may.
            self.turn_away(keys)
            await asyncio.to_thread(credentials.update, keys, own)

    def key_at(self, address: Address) -> bytes:
        """The raw public key that the node at an address has proved lately; empty if none."""
        return self._shared.proved.get(address, b"")

    def _progress(self, address: Address, session: Session) -> None:
        self._talking[address] = session
        if self._listener is not None:
            self._listener.on_progress(address, session.phase)

    def _gap(self, address: Address) -> None:
        if self._listener is not None:
            self._listener.on_gap(address)

    def _began(self, session: Session) -> None:
        """A session stands: what it has moved so far counts like any other session's."""
        counters = replace(session.counters, bytes_sent=0, bytes_received=0)  # of the whole session, when it ends
        result = Result(Reason.COMPLETE, "it stands", True, counters, key=session.key)
        if session.role is Role.INITIATOR:
            self.meet(session.address)
            self._ended(session.address, result)
        else:
            self._called(session.address, result)

    # What is known (see `Sessions` of `basefs/replication/scheduler.py`)

    @property
    def standing(self) -> list[Address]:
        """The peers with which sessions stay open for news."""
        return self.neighbours.addresses

    def vacancies(self) -> int:
        """How many of them are missing."""
        return self.neighbours.vacancies()

    def differs(self, address: Address) -> bool:
        """Whether such a peer has something that is not here, as far as it has told."""
        return self.neighbours.differs(address)

    def missing(self) -> list[BlockHash]:
        """The first blocks that another session could bring."""
        requests = self._shared.requests
        if requests.comes_from_one:
            return []
        return [hash for _, hash in self._state.missing_blocks(256) if not requests.is_coming(hash)]

    @property
    def wants_more(self) -> bool:
        """Whether contents come of which another peer could bring some."""
        return self._shared.requests.wanted

    @property
    def blocks(self) -> int:
        """How many blocks have come."""
        return self._shared.requests.blocks

    @property
    def exchanges(self) -> bool:
        """Whether blocks come over sessions that stand."""
        return self._shared.requests.contents.comes

    def brings_blocks(self, address: Address) -> bool:
        """Whether some session asks a peer for blocks."""
        return self._shared.requests.asks_peer(address)

    def avoids(self, address: Address) -> bool:
        """Whether to leave a peer alone for now.

        It is banned, one of the disks is full, or its address is unverified and was tried recently.
        """
        now = asyncio.get_running_loop().time()
        if not self.has_met(address) and self._unmet.banned(self._shared.parties.answering(address, b""), now):
            return True
        only_lacks = self._shared.contacts.only_lacks(address, now)
        return only_lacks or self.takes_nothing or self.banned_for(address) is not None

    @property
    def takes_nothing(self) -> bool:
        """Whether the disk of this node takes nothing of what peers have."""
        return self._shared.is_full()

    def ran_out_of_room(self) -> None:
        """Something did not fit on the disk of this node: take part in nothing that would bring more."""
        self._shared.ran_out_of_room()
        self.neighbours.leave(Reason.FULL)

    def banned_for(self, address: Address) -> float | None:
        """Seconds for which no session with a peer is wanted yet, `None` if it is not banned."""
        return self._penalties.remaining(self._party_at(address), asyncio.get_running_loop().time())

    def contact(self, address: Address) -> Contact:
        """What the sessions with a peer have told of it, and the bytes of those that are open as well."""
        return self._shared.contact(address)

    def changed(self, now: float) -> None:
        """The log has changed, `now` by the event loop's clock.  May be called in any thread."""
        self._shared.contacts.past.note(self._state.digest(), now)

    def lag(self, address: Address) -> Lag | None:
        """How far a peer and this node are apart, `None` if unknown; call `confirm` before."""
        return self._shared.contacts.lag(address, self._state.digest(), asyncio.get_running_loop().time())

    async def confirm(self, peers: Iterable[Address]) -> None:
        """Ask peers for their logs, except those whose last answer will count as long as others may take to answer.

        Returns when all have answered, after `ANSWER_SECONDS` at the latest.
        """
        places = asyncio.Semaphore(128)
        tasks = [asyncio.ensure_future(self._confirm(peer, places)) for peer in peers]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=ANSWER_SECONDS)
        finally:
            outcomes = await cancel(tasks)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                log.error("cannot request the log of a peer", exc_info=outcome)

    async def _confirm(self, peer: Address, places: asyncio.Semaphore) -> None:
        """Ask a peer until it is in step; what is on its way arrives in a moment."""
        while not self._is_confirmed(peer):
            async with places:
                result = await sync_with(self._state, *peer, own_port=self.port, progress=hang_up, shared=self._shared)
            self._answered(peer, result)
            lag = self.lag(peer)
            if result.reason not in (Reason.COMPLETE, Reason.ENOUGH) or lag is None:
                return
            if lag.since is None or lag.since > ON_THE_WAY_SECONDS:
                return
            await asyncio.sleep(_ASK_AGAIN)

    def _is_confirmed(self, peer: Address) -> bool:
        """Whether a peer is in step, and will be when the last of the others has answered."""
        lag = self.lag(peer)
        age = asyncio.get_running_loop().time() - self.contact(peer).asked_at
        return lag is not None and lag.in_step and age <= FRESH_SECONDS - ANSWER_SECONDS

    def _ended(self, address: Address, result: Result) -> None:
        """Account for the end of a session, whoever began it."""
        now = asyncio.get_running_loop().time()
        self._shared.contacts.ended(address, result, now)
        if result.reason is Reason.FULL and not result.by_peer:
            self.neighbours.leave(Reason.FULL)
        elif result.counters.accepted and self._shared.room is not None:
            self._shared.room.took()
        self._report(address, result, now)
        if result.counters.refusal and not result.misbehaved:
            self._say(address, "refused", result.counters.refusal, now)
        if self._listener is not None:
            self._listener.on_result(address, result)

    def _report(self, address: Address, result: Result, now: float) -> None:
        detail = f"it says: {result.detail}" if result.by_peer else result.detail
        if result.reason in _TURNED_AWAY:
            self._say(address, result.reason.value, detail, now)
        else:
            log.debug("%s:%d: %s: %s", *address, result.reason.value, detail)

    def _say(self, address: Address, what: str, why: str, now: float) -> None:
        """Tell people, but not once for each packet of a flood."""
        left_out = self._shared.throttle.allow((address[0], what), now)
        if left_out is not None:
            more = f" ({left_out} more like this since the last line)" if left_out else ""
            log.info("%s:%d: %s: %s%s", *address, what, why, more)
