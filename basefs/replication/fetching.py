"""Fetches what the peers of standing sessions advertise, from one of them at a time (`basefs/replication/gaps.py`)."""

from __future__ import annotations

import asyncio
import random

from basefs.replication.gaps import Gaps
from basefs.sync.net.schedule import Address
from basefs.sync.net.service import SyncService
from basefs.sync.session.states import Phase


class Fetcher:
    """Closes the gaps that standing sessions leave.  All methods are called in the event loop's thread."""

    def __init__(self, sync: SyncService, loop: asyncio.AbstractEventLoop) -> None:
        self._sync = sync
        self._loop = loop
        self._gaps = Gaps(random.Random())
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def stop(self) -> None:
        """Fetch nothing more, whatever sessions end from now on."""
        self._stopped = True
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def told(self, address: Address) -> None:
        """A peer has told of something that is not here."""
        self._gaps.told(address, self._loop.time())
        self._schedule()

    def arrived(self, entries: int) -> None:
        """So many entries of other nodes have come, whoever brought them."""
        self._gaps.arrived(entries, self._loop.time())

    def progress(self, address: Address, phase: Phase) -> None:
        """Something has come in a session that this node opened, if only that it has to wait."""
        if phase is Phase.WAITING:
            self._gaps.waits(address)
            self._schedule()
            return
        now = self._loop.time()
        for superfluous in self._gaps.moved(address, now, comparing=phase is Phase.COMPARING):
            self._sync.abandon(superfluous)

    def ended(self, address: Address) -> None:
        """A session has ended, whoever began it."""
        self._gaps.ended(address)
        self._schedule()

    def _schedule(self) -> None:
        self._cancel()
        due = self._gaps.due
        if due is not None and not self._stopped:
            self._timer = self._loop.call_at(due, self._fetch)

    def _fetch(self) -> None:
        self._timer = None
        address = self._gaps.next(self._loop.time(), self._sync.kept.differs)
        if address is not None:
            if self._sync.kept.graft(address):
                self._gaps.ended(address)  # what it kept back comes over the session that stands
            else:
                self._sync.request(address, "a gap in what it sends")
        self._schedule()
