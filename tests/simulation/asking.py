"""Somebody who asks a node now and then who is in step with it, and knows whether that is true."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

from tests.simulation.bus import SYNC_PORT
from tests.simulation.loop import PROCESS, Loop, Process
from tests.simulation.node import Node

#: Seconds between two questions on average, and seconds for which "in step" may be wrong (docs/operations.md).
_PAUSE = 3.0
_LATE = 2.0


class Asker:
    """Asks, and remembers when each node took what.

    Attributes:
        found: answers that were wrong.
    """

    def __init__(self, loop: Loop, nodes: Sequence[Node], seed: int) -> None:
        self._loop, self._nodes = loop, nodes
        self._rng = random.Random(f"{seed} asker")
        #: When a process took what it has; what it began with is as old as can be.
        self._taken: dict[str, tuple[Process, dict[bytes, float]]] = {}
        self.found: list[str] = []

    def committed(self, node: Node) -> None:
        """The log of a node has grown, or a node has been started."""
        if not node.running:
            return
        process, taken = self._taken.get(node.host, (None, {}))
        now = self._loop.time()
        if process is not node.process:
            taken, now = {}, float("-inf")
        for hash in list(node.entries)[len(taken) :]:
            taken[hash] = now
        self._taken[node.host] = node.process, taken

    async def run(self, seconds: float) -> None:
        """Ask for so long."""
        end = self._loop.time() + seconds
        while (pause := self._rng.expovariate(1 / _PAUSE)) + self._loop.time() < end:
            await asyncio.sleep(pause)
            node = self._rng.choice(self._nodes)
            if node.running:
                question = self._loop.create_task(self._ask(node))
                node.end_with_process(question)
                with contextlib.suppress(asyncio.CancelledError):
                    await question

    async def _ask(self, node: Node) -> None:
        process = node.process
        PROCESS.set(process)
        others = {(other.host, SYNC_PORT): other for other in self._nodes if other is not node}
        before = {other.host: other.process for other in others.values() if other.running}
        await node.sync.confirm(others)
        if not process.alive or not node.running:
            return
        for address, other in others.items():
            lag = node.sync.lag(address)
            # One that was killed meanwhile may have lost what it had told of.
            if lag is not None and lag.in_step and other.running and before.get(other.host) is other.process:
                self._compare(node, other)

    def _compare(self, node: Node, other: Node) -> None:
        old = self._loop.time() - _LATE
        for one, another in ((node, other), (other, node)):
            taken = self._taken[one.host][1]
            lacking = [hash for hash, at in taken.items() if at < old and hash not in another.entries]
            if lacking:
                which = (
                    f"{lacking[0].hex()[:8]}, which {one.host} took {self._loop.time() - taken[lacking[0]]:.1f} s ago"
                )
                self.found.append(f"{node.host} calls {other.host} in step: {another.host} lacks {which}")
