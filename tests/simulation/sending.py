"""Gossip events on their way out of a simulated node: the real queue, at the real pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from basefs.gossip.outgoing import Outbox, Pacer
from basefs.gossip.service import Counters
from tests.simulation.loop import Loop, Process


class Sender:
    """What a process gossips."""

    def __init__(
        self, loop: Loop, process: Process, pacer: Pacer, counters: Counters, spread: Callable[[bytes], object]
    ) -> None:
        """`spread` is given each event when its turn has come; nothing more once the process was killed."""
        self._loop = loop
        self._process = process
        self._pacer = pacer
        self._counters = counters
        self._spread = spread
        self._outbox = Outbox()
        self._sending: asyncio.TimerHandle | None = None

    def send(self, payloads: Sequence[bytes], on_overflow: Callable[[], None]) -> None:
        """As `Gossip.send`; `on_overflow` is called if some are dropped."""
        if dropped := self._outbox.put(payloads):
            self._counters.dropped += dropped
            on_overflow()
        if self._sending is None:
            self._drain()

    def stop(self) -> None:
        """Send nothing more."""
        if self._sending is not None:
            self._sending.cancel()

    def _drain(self) -> None:
        self._sending = None
        now = self._loop.time()
        while self._process.alive and (payload := self._outbox.peek()) is not None:
            if delay := self._pacer.take(now):
                self._sending = self._loop.call_later(delay, self._drain)
                return
            self._spread(payload)
            self._outbox.done(payload)
            self._counters.sent += 1
