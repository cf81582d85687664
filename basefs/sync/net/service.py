"""Synchronization as a part of a node: a server, a periodic session, and sessions at once when asked for."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from basefs.log.interface import LogState
from basefs.sync.net.neighbours import NeighbourSet
from basefs.sync.net.peers import Contact, Lag, PenaltyBox, Throttle, Traffic
from basefs.sync.net.schedule import Address, PeerSchedule
from basefs.sync.net.seeker import Seeker
from basefs.sync.net.server import SyncServer
from basefs.sync.net.transport import CONNECT_TIMEOUT, Session, SessionContext, patience, sync_with
from basefs.sync.session.inflight import CONTENTS_SECONDS, PATIENCE
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.states import Phase
from basefs.sync.wire.limits import DEFAULT_LIMITS, Limits

log = logging.getLogger(__name__)

#: Sessions that this node opens at once.  More would fetch the same news from several peers.
MAX_OUTGOING = 4
#: Requests that wait for one of them; further ones are dropped, the periodic session makes up for it.
MAX_WAITING = 256

#: Ends that a person should hear of, once in a while.
_TURNED_AWAY = frozenset({Reason.WRONG_FILESYSTEM, Reason.WRONG_VERSION, Reason.RUBBISH, Reason.ACCUSED})


class SyncService:
    """Keeps one log in step with its peers.  All methods are called in the event loop's thread.

    Attributes:
        kept: the sessions that stay open for news.
    """

    def __init__(
        self,
        state: LogState,
        host: str,
        port: int,
        *,
        peers: Callable[[], Sequence[Address]],
        interval: float,
        max_sessions: int,
        probability: float = 1.0,
        on_result: Callable[[Address, Result], None] | None = None,
        rng: random.Random | None = None,
        limits: Limits = DEFAULT_LIMITS,
        max_outgoing: int = MAX_OUTGOING,
        connect_timeout: float = CONNECT_TIMEOUT,
        degree: int = 0,
        on_gap: Callable[[Address], None] | None = None,
        on_progress: Callable[[Address, Phase], None] | None = None,
    ) -> None:
        """`peers` lists where others listen, without ourselves; it is called at each decision.

        `on_result` gets every session's end, incoming (with the peer's own sync port, 0 if unknown) and outgoing.
        `interval` in seconds, 0: no periodic sessions; each time there is one with this `probability`.  `max_sessions`:
        that others may have with this node at once.  `degree`: sessions that stay open for news, 0: none.
        `on_gap` is told of a peer that has something which was not sent over such a session, and requests a session; by
        default that is all that happens.  `on_progress` is told when something came in a session that this node opened,
        and what the session brings.
        """
        self._state = state
        self._peers = peers
        self._on_result = on_result
        self._on_progress = on_progress
        self._rng = rng or random.Random()
        self._limits = limits
        self._interval = interval
        self._connect_timeout = connect_timeout
        self._penalties = PenaltyBox()
        self._throttle = Throttle()
        self._shared = SessionContext()
        self._schedule = PeerSchedule(self._rng, probability)
        #: The sessions that this node opened and that move something, by peer.
        self._talking: dict[Address, Session] = {}
        self.kept = NeighbourSet(peers, self._stand, self._began, on_gap or self._fetch, self._rng, degree)
        self._server = SyncServer(
            state,
            host,
            port,
            limits=limits,
            max_sessions=max_sessions,
            penalties=self._penalties,
            on_result=self._ended,
            keeper=self.kept,
            shared=self._shared,
        )
        self._slots = asyncio.Semaphore(max_outgoing)
        self._jobs: dict[Address, asyncio.Task[None]] = {}
        #: When the sessions that were requested began.
        self._running: dict[Address, float] = {}
        self._again: dict[Address, str] = {}
        self._moved_at = 0.0
        self._seeker = Seeker(state, self._shared.claims, self._welcome, self._rng, self._jobs, self.request)
        self._loop_task: asyncio.Task[None] | None = None

    @property
    def traffic(self) -> Traffic:
        """What all sessions have moved, those that are open included."""
        return self._shared.traffic

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    async def start(self) -> None:
        """Listen, and begin the periodic sessions.  Raises `OSError` if the address is taken."""
        await self._server.start()
        if self._interval > 0:
            self._loop_task = asyncio.create_task(self._periodic())
        self.kept.start()

    async def stop(self) -> None:
        """End everything; afterwards no task of this service is left."""
        tasks = [*self._jobs.values(), *([self._loop_task] if self._loop_task else [])]
        for task in tasks:
            task.cancel()
        self._seeker.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._jobs.clear()
        self._loop_task = None
        await self.kept.stop()
        await self._server.stop()

    @property
    def standing(self) -> list[Address]:
        """The peers with which sessions stay open for news."""
        return self.kept.addresses

    def contact(self, address: Address) -> Contact:
        """What the sessions with a peer have told of it, and the bytes of those that are open as well."""
        return self._shared.contact(address)

    def lag(self, address: Address, *, away: bool) -> Lag | None:
        """How far a peer and this node are apart, `None` if unknown; `away`: nobody reaches it."""
        contact = self.contact(address)
        away = away or contact.away
        if not away and not contact.differed and self.kept.agrees(address):
            return Lag()
        return contact.lag(self._state.digest(), away=away)

    def banned_for(self, host: str) -> float | None:
        """Seconds for which no session with a host is wanted yet, `None` if it is not banned."""
        return self._penalties.remaining(host, asyncio.get_running_loop().time())

    def _welcome(self) -> list[Address]:
        """The peers that are not banned."""
        now = asyncio.get_running_loop().time()
        return [peer for peer in self._peers() if not self._penalties.banned(peer[0], now)]

    def request(self, address: Address, reason: str, *, jitter: float = 0.0) -> bool:
        """Have a session with this peer soon: after a random part of `jitter` seconds, when a slot is free.

        A request for a peer that waits for its session already adds nothing; one that comes during the session leads
        to another session, because the news may have come too late for this one.  Returns whether there will be one:
        not where too many wait.
        """
        if address in self._running:
            self._again[address] = reason
        elif address not in self._jobs:
            if len(self._jobs) >= MAX_WAITING:
                return False
            self._jobs[address] = asyncio.create_task(self._job(address, reason, jitter))
        return True

    def abandon(self, address: Address) -> None:
        """End the session that this node opened with a peer: somebody else has brought what it should bring."""
        session = self._talking.get(address)
        if session is not None and session.push is None:
            session.end(Reason.ENOUGH)

    async def _job(self, address: Address, reason: str | None, jitter: float) -> None:
        try:
            if jitter > 0:
                await asyncio.sleep(self._rng.uniform(0, jitter))
            while reason is not None:
                async with self._slots:
                    self._running[address] = asyncio.get_running_loop().time()
                    try:
                        await self._session(address, reason)
                    finally:
                        del self._running[address]
                reason = self._again.pop(address, None)
        except Exception:
            log.exception("a session with %s:%d failed", *address)
        finally:
            self._again.pop(address, None)
            self._jobs.pop(address, None)
            self._seeker.left(address)

    async def _session(self, address: Address, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._penalties.banned(address[0], now):
            log.debug("no session with %s:%d: banned", *address)
            return
        log.debug("session with %s:%d: %s", *address, reason)
        await self._connect(address, None)

    async def _stand(self, address: Address) -> Reason:
        if self._penalties.banned(address[0], asyncio.get_running_loop().time()):
            return Reason.BANNED
        return await self._connect(address, self.kept)

    async def _connect(self, address: Address, keeper: NeighbourSet | None) -> Reason:
        try:
            result = await sync_with(
                self._state,
                *address,
                own_port=self.port,
                limits=self._limits,
                connect_timeout=patience(self._connect_timeout, self.kept.longest_round_trip),
                progress=lambda session: self._progress(address, session),
                keeper=keeper,
                shared=self._shared,
            )
        finally:
            self._talking.pop(address, None)
        now = asyncio.get_running_loop().time()
        self._schedule.talked(address, now)
        if result.misbehaved:
            self._penalties.punish(address[0], now)
        self._ended(address, result)
        return result.reason

    def _progress(self, address: Address, session: Session) -> None:
        self._talking[address] = session
        now = asyncio.get_running_loop().time()
        if session.phase is Phase.COMPARING or now - self._running.get(address, 0.0) < CONTENTS_SECONDS:
            self._moved_at = now
        self._seeker.progress(session.phase is Phase.WAITING)
        if self._on_progress:
            self._on_progress(address, session.phase)

    def _began(self, session: Session) -> None:
        """A session stands: what it has moved so far counts like any other session's."""
        counters = replace(session.counters, bytes_sent=0, bytes_received=0)  # of the whole session, when it ends
        self._ended(session.address, Result(Reason.COMPLETE, "it stands", True, counters))

    def _fetch(self, address: Address) -> None:
        self.request(address, "a gap in what it sends")

    def _ended(self, address: Address, result: Result) -> None:
        """Account for the end of a session, whoever began it."""
        now = asyncio.get_running_loop().time()
        if result.reason is Reason.COMPLETE:
            self._schedule.talked(address, now)
        self._shared.contacts.ended(address, result, now)
        self._report(address, result, now)
        self._seeker.ended(result)
        if result.counters.rejected and not result.misbehaved:
            if result.counters.offends:
                # Nor may hanging up in time help.
                self._penalties.punish(address[0], now)
            self._say(address, "refused", result.counters.refusal, now)
        if self._on_result:
            self._on_result(address, result)

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

    async def _periodic(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                peer = self._schedule.pick(self._welcome(), asyncio.get_running_loop().time())
            except Exception:  # the callback is not ours: one failure must not end all periodic sessions
                log.exception("the list of peers could not be had")
                continue
            if peer is not None and not self._is_fetching:
                self.request(peer, "periodic")

    @property
    def _is_fetching(self) -> bool:
        """Whether logs differ for a reason: a session is bringing something, and not contents for long already."""
        return bool(self._running) and asyncio.get_running_loop().time() - self._moved_at < PATIENCE
