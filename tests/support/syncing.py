"""The sessions of a node and the scheduler of its pulls, without gossip, on a loopback address."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

from basefs.log.interface import LogState
from basefs.replication.puller import Puller
from basefs.replication.scheduler import DEFAULT_PULLS, PullLimits, PullScheduler
from basefs.sync.net.peers import Address
from basefs.sync.net.service import SyncService
from basefs.sync.session.result import Result
from basefs.sync.session.states import Phase

HOST = "127.0.0.1"


class Syncing:
    """What a node does with its peers; attributes of the service are to be had here, too.

    Attributes:
        ends: the address and the result of each session.
        gaps: how often a push did not bring all.
        log: what it keeps in step.
        peers: lists the others; may be replaced.
    """

    def __init__(
        self,
        log: LogState,
        peers: Sequence[Address] = (),
        *,
        interval: float = 0,
        probability: float = 1.0,
        rng: random.Random | None = None,
        pulls: PullLimits = DEFAULT_PULLS,
        **options: Any,
    ) -> None:
        rng = rng or random.Random(1)
        self.ends: list[tuple[Address, Result]] = []
        self.gaps = 0
        self.log = log
        self.peers = lambda: list(peers)
        self.sync = SyncService(
            log,
            (HOST, 0),
            peers=lambda: self.peers(),
            **{"max_sessions": 16, **options},
        )
        self.scheduler = PullScheduler(
            lambda: self.peers(),
            rng,
            interval=interval,
            probability=probability,
            limits=pulls,
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("sync", "puller"):
            raise AttributeError(name)
        return getattr(self.sync, name)

    async def start(self) -> None:
        await self.sync.start(self)
        self.puller = Puller(self.scheduler, self.sync, asyncio.get_running_loop())
        self.puller.start()

    async def stop(self) -> None:
        await self.puller.stop()
        await self.sync.stop()

    def request(self, address: Address, text: str, *, jitter: float = 0.0) -> bool:
        return self.puller.request(address, text, jitter=jitter)

    def on_result(self, address: Address, result: Result) -> None:
        self.ends.append((address, result))
        self.puller.result(address, result)

    def on_gap(self, address: Address) -> None:
        self.gaps += 1
        self.puller.gap(address)

    def on_progress(self, address: Address, phase: Phase) -> None:
        self.puller.progress(address, phase)


@contextlib.asynccontextmanager
async def running(*services: Syncing) -> AsyncIterator[None]:
    """Start them, and stop them at the end."""
    for each in services:
        await each.start()
    try:
        yield
    finally:
        for each in services:
            await each.stop()
