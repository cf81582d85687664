"""The connections that have not proved a key yet, in a closed filesystem: any number may come, from any addresses.

They take no place from members, and a bounded part of the processor.  Chance decides among them, so that a member at an
address that nobody knows gets in while others come by the hundred: whoever holds a place or waits for a turn may lose
it, and whoever has just come has as good a chance as those that were there before.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Protocol

from basefs.sync.net.parties import prefixes_of
from basefs.sync.net.peers import Pace

#: Seconds that a stranger has to say who it is: more than a handshake takes over a satellite.
HANDSHAKE_SECONDS = 5.0


class Stranger(Protocol):
    """A connection of which nobody knows yet who is on its other side."""

    def abort(self) -> None:
        """Cut it off."""


class Strangers:
    """The strangers of one server.  Used in the event loop."""

    def __init__(
        self,
        turns: float = 100.0,
        at_once: int = 32,
        most: tuple[int, int, int] = (16, 64, 256),
        rng: random.Random | None = None,
    ) -> None:
        """`turns`: handshakes that are begun a second: each takes the server 1 ms, so they take a tenth of a core.

        `at_once`: the same after a pause.  `most`: connections at once of one address, of the network around it, and of
        all; 128 kB each at the most.  `rng`: draws the connections that are cut off or begin.
        """
        self._rng = rng or random.Random()
        *self._most_of, self._most = most
        #: With the address and the network of each.
        self._found: dict[Stranger, tuple[bytes, bytes]] = {}
        self._counts: Counter[tuple[int, bytes]] = Counter()
        self._waiting: dict[Stranger, asyncio.Future[None]] = {}
        self._pace = Pace(turns, at_once)
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._found)

    def enter(self, stranger: Stranger, host: str) -> None:
        """Let one in; call `leave` in the end.

        Where there are too many then, of its address, of its network or of all, one of these is cut off, at random.
        """
        prefixes = prefixes_of(host)
        self._found[stranger] = prefixes
        self._counts.update(enumerate(prefixes))
        crowd: list[Stranger] = []
        for level, most in enumerate(self._most_of):
            if not crowd and self._counts[level, prefixes[level]] > most:
                crowd = [other for other, theirs in self._found.items() if theirs[level] == prefixes[level]]
        if not crowd and len(self._found) > self._most:
            crowd = list(self._found)
        if crowd:
            unlucky = self._rng.choice(crowd)
            self.leave(unlucky)
            unlucky.abort()

    def leave(self, stranger: Stranger) -> None:
        """It has said who it is, or is gone."""
        for key in enumerate(self._found.pop(stranger, ())):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
        waiting = self._waiting.pop(stranger, None)
        if waiting is not None:
            waiting.cancel()

    async def turn(self, stranger: Stranger) -> None:
        """Wait until its handshake may begin; the next turn goes to anybody who waits.

        Raises ConnectionAbortedError where it has been cut off.
        """
        if stranger not in self._found:
            raise ConnectionAbortedError("cut off for another one")
        loop = asyncio.get_running_loop()
        waiting = self._waiting[stranger] = loop.create_future()
        self._give(loop)
        try:
            await asyncio.wait([waiting])
        finally:
            self._waiting.pop(stranger, None)
        if waiting.cancelled():
            raise ConnectionAbortedError("cut off for another one")

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the turns that are due, and come back for the next one."""
        if self._timer is not None and self._timer.when() > loop.time():
            return
        self._timer = None
        while self._waiting:
            now = loop.time()
            if wait := self._pace.wait("turn", now):
                self._timer = loop.call_at(now + wait, self._give, loop)
                return
            self._pace.delay("turn", now)
            lucky = self._rng.choice(list(self._waiting))
            self._waiting.pop(lucky).set_result(None)
