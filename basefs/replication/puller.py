"""Runs what the scheduler of pulls decides: sessions, and probes of lost peers.  Everything runs on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from basefs.gossip.connect import probe
from basefs.replication.scheduler import Pull, PullScheduler, Why
from basefs.sync.net.peers import Address
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import patience
from basefs.sync.session.result import Result
from basefs.sync.session.states import Phase
from basefs.tasks import cancel

log = logging.getLogger(__name__)

#: Says within some seconds whether a host and port take connections (`basefs/gossip/connect.py`).
Probe: TypeAlias = Callable[[str, int, float], Coroutine[Any, Any, object]]


class Puller:
    """Gives the scheduler time and events, and carries out its pulls."""

    def __init__(
        self, scheduler: PullScheduler, sync: SyncService, loop: asyncio.AbstractEventLoop, probe: Probe = probe
    ) -> None:
        """`probe`: whether a lost peer is back."""
        self._takes_connections = probe
        self._scheduler = scheduler
        self._sync = sync
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[object], None] = {}
        self._stopped = False

    def start(self) -> None:
        """Begin with what is done now and then."""
        self._scheduler.start(self._loop.time())
        self._arm()

    async def stop(self) -> None:
        """Pull nothing more; afterwards no task of this object is left."""
        self._stopped = True
        self._cancel()
        self._sync.neighbours.leave()
        await cancel(list(self._tasks))

    def request(self, peer: Address, text: str, *, jitter: float = 0.0) -> bool:
        """See `PullScheduler.news`."""
        queued = self._scheduler.news(peer, text, self._loop.time(), jitter)
        self._arm()
        return queued

    def gap(self, peer: Address) -> None:
        """A neighbour has something that is not here."""
        self._scheduler.gap(peer, self._loop.time())
        self._arm()

    def arrived(self, entries: int) -> None:
        """So many entries of other nodes have come, by whatever way."""
        self._scheduler.arrived(entries, self._loop.time())

    def progress(self, peer: Address, phase: Phase) -> None:
        """Something has come in a session that this node opened."""
        for superfluous in self._scheduler.progress(peer, phase, self._loop.time(), self._sync):
            self._sync.abandon(superfluous)
        self._arm()

    def result(self, peer: Address, result: Result) -> None:
        """A session has ended, or has begun to stand, whichever side opened it."""
        self._scheduler.result(peer, result, self._loop.time(), self._sync)
        self._arm()

    def lost(self, peer: Address) -> None:
        """A peer could not be reached."""
        self._scheduler.lost(peer, self._loop.time())
        self._arm()

    def found(self, peer: Address) -> bool:
        """A peer is there again, or has left for good; returns whether it was lost."""
        return self._scheduler.found(peer)

    def is_lost(self, peer: Address) -> bool:
        """Whether a peer could not be reached, and is tried again."""
        return self._scheduler.is_lost(peer)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._cancel()
        due = self._scheduler.due
        if due is not None and not self._stopped:
            self._timer = self._loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        try:
            while (pull := self._scheduler.next(self._loop.time(), self._sync)) is not None:
                self.run(self._carry_out(pull))
        except Exception:  # the list of peers is not ours: one failure must not end all pulls
            log.exception("cannot choose a peer to sync with")
        self._arm()

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Have a task run until it has ended or this object stops."""
        if self._stopped:
            work.close()
            return
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _carry_out(self, pull: Pull) -> None:
        peer = pull.peer
        try:
            if pull.why is Why.LOST:
                await self._probe(peer)
            elif pull.why is Why.NEIGHBOUR:
                await self._sync.keep(peer)
            elif not (pull.why is Why.GAP and self._sync.neighbours.graft(peer)):
                # What a neighbour keeps back comes over the session that stands.
                await self._sync.pull(peer, pull.text)
        except Exception:
            log.exception("sync with %s:%d failed", *peer)
        finally:
            self._scheduler.ended(pull, self._loop.time(), self._sync)
            self._arm()

    async def _probe(self, peer: Address) -> None:
        """A lost peer is compared with if it takes connections again.

        Sessions have few places, and one that is not answered keeps its place for seconds: half a cluster that is cut
        off would leave none for the other half.
        """
        timeout = patience(self._sync.neighbours.longest_round_trip)
        if await self._takes_connections(*peer, timeout) is not None:
            self._scheduler.news(peer, Why.LOST.value, self._loop.time())
        elif self._scheduler.is_lost(peer):
            self._scheduler.lost(peer, self._loop.time())
