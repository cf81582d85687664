"""The sessions of a node: a server, those that are asked for, and those that stay open."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from basefs.log.hashes import BlockHash
from basefs.log.interface import LogState
from basefs.sync.net.neighbours import NeighbourSet
from basefs.sync.net.peers import Address, Contact, Lag, Throttle, Traffic
from basefs.sync.net.server import SyncServer
from basefs.sync.net.transport import CONNECT_TIMEOUT, Session, SessionContext, patience, sync_with
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.states import Phase
from basefs.sync.wire.limits import DEFAULT_LIMITS

log = logging.getLogger(__name__)

#: Ends that a person should hear of, once in a while.
_TURNED_AWAY = frozenset({Reason.WRONG_FILESYSTEM, Reason.WRONG_VERSION, Reason.RUBBISH, Reason.ACCUSED})


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
        host: str,
        port: int,
        *,
        peers: Callable[[], Sequence[Address]],
        max_sessions: int,
        degree: int = 0,
        listener: Listener | None = None,
    ) -> None:
        """`peers` lists where others listen, without ourselves; it is called at each decision.

        `max_sessions`: that others may have with this node at once.  `degree`: sessions that stay open for news, 0:
        none.
        """
        self._state = state
        self._listener = listener
        self._throttle = Throttle()
        self._shared = SessionContext()
        self._penalties = self._shared.penalties
        #: The sessions that this node opened and that move something, by peer.
        self._talking: dict[Address, Session] = {}
        self.neighbours = NeighbourSet(peers, self._began, self._gap, random.Random(), degree)
        self._server = SyncServer(
            state,
            host,
            port,
            max_sessions=max_sessions,
            on_result=self._ended,
            keeper=self.neighbours,
            shared=self._shared,
        )

    @property
    def traffic(self) -> Traffic:
        """What all sessions have moved, those that are open included."""
        return self._shared.traffic

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    async def start(self) -> None:
        """Listen.  Raises `OSError` if the address is taken."""
        await self._server.start()

    async def stop(self) -> None:
        """End everything that others have begun; what was begun here ends with its task."""
        self.neighbours.leave()
        await self._server.stop()

    # Sessions

    async def pull(self, address: Address, reason: str) -> Reason:
        """Compare with a peer."""
        log.debug("session with %s:%d: %s", *address, reason)
        return await self._connect(address, None)

    async def keep(self, address: Address) -> Reason:
        """Compare with a peer, and stay if both sides want to; returns when the session has ended."""
        reason = await self._connect(address, self.neighbours)
        log.debug("%s:%d: the session ended: %s", *address, reason.value)
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
                connect_timeout=patience(CONNECT_TIMEOUT, self.neighbours.longest_round_trip),
                progress=lambda session: self._progress(address, session),
                keeper=keeper,
                shared=self._shared,
            )
        finally:
            self._talking.pop(address, None)
        if result.misbehaved:
            self._penalties.punish(address[0], asyncio.get_running_loop().time())
        self._ended(address, result)
        return result.reason

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
        self._ended(session.address, Result(Reason.COMPLETE, "it stands", True, counters))

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
        """The blocks that no session is bringing."""
        missing = self._state.missing_blocks(DEFAULT_LIMITS.missing_blocks)
        return [hash for hash in missing if not self._shared.claims.is_coming(hash)]

    @property
    def wants_pieces(self) -> bool:
        """Whether a content comes in pieces of which some could come from another peer."""
        return self._shared.claims.wanted

    @property
    def pieces(self) -> int:
        """How many pieces have come."""
        return self._shared.claims.parts.came

    def brings_pieces(self, address: Address) -> bool:
        """Whether some session asks a peer for pieces."""
        return self._shared.claims.parts.asks(address)

    def banned(self, address: Address) -> bool:
        """Whether no session with a peer is wanted yet."""
        return self.banned_for(address[0]) is not None

    def banned_for(self, host: str) -> float | None:
        """Seconds for which no session with a host is wanted yet, `None` if it is not banned."""
        return self._penalties.remaining(host, asyncio.get_running_loop().time())

    def contact(self, address: Address) -> Contact:
        """What the sessions with a peer have told of it, and the bytes of those that are open as well."""
        return self._shared.contact(address)

    def lag(self, address: Address, *, away: bool) -> Lag | None:
        """How far a peer and this node are apart, `None` if unknown; `away`: nobody reaches it."""
        contact = self.contact(address)
        away = away or contact.away
        if not away and not contact.differed and self.neighbours.agrees(address):
            return Lag()
        return contact.lag(self._state.digest(), away=away)

    def _ended(self, address: Address, result: Result) -> None:
        """Account for the end of a session, whoever began it."""
        now = asyncio.get_running_loop().time()
        self._shared.contacts.ended(address, result, now)
        self._report(address, result, now)
        if result.counters.rejected and not result.misbehaved:
            if result.counters.offends:
                # Nor may hanging up in time help.
                self._penalties.punish(address[0], now)
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
        left_out = self._throttle.allow((address[0], what), now)
        if left_out is not None:
            more = f" ({left_out} more like this since the last line)" if left_out else ""
            log.info("%s:%d: %s: %s%s", *address, what, why, more)
