"""Looking for somebody else who has the rest of a content: while it arrives, nobody tells that he has a part of it.

Also where somebody brings it: a large content comes in parts, and each peer that has them adds its own connection.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Container, Sequence

from basefs.log.hashes import BlockHash
from basefs.log.interface import LogState
from basefs.sync.net.schedule import Address
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.result import Result
from basefs.sync.wire.limits import DEFAULT_LIMITS

#: Seconds until a peer is asked, doubled for each that had nothing: it may have what it is asked for in a moment.
FIRST_PAUSE = 0.05
#: Peers asked in vain until it is left to the sessions that there are anyway, or until something else is missing.
MAX_TRIES = 7
#: Parts that have come until others are looked for again who may bring some of them: while a content is new to all, the
#: others have nothing of what comes next.
MOVED_ON = 64


class Seeker:
    """Asks one peer after the other, at random, while blocks are missing that no session is bringing."""

    def __init__(
        self,
        state: LogState,
        claims: RequestTable,
        peers: Callable[[], Sequence[Address]],
        rng: random.Random,
        jobs: Container[Address],
        request: Callable[[Address, str], bool],
    ) -> None:
        """`peers`: those that may be asked; `jobs`: those with which there is, or will be, a session; `request` has one
        with another peer, and tells whether it will."""
        self._state = state
        self._claims = claims
        self._peers = peers
        self._rng = rng
        self._jobs = jobs
        self._request = request
        self._tries = 0
        #: The blocks that were asked for in vain.
        self._sought: set[BlockHash] = set()
        self._parts_then = 0
        self._last: Address | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def progress(self, waits: bool) -> None:
        """Something has come in a session that this node opened, if only that it has to wait."""
        if waits or self._claims.wanted:
            self._look()

    def _look(self) -> None:
        if self._stopped or self._timer is not None:
            return
        moved_on = self._claims.parts.came - self._parts_then >= MOVED_ON
        if self._tries and (moved_on or not self._sought.issuperset(self._missing())):
            # A content has moved on, or another one is missing.  What nobody can complete is not looked for again only
            # because a session brings something else: on a busy cluster that would never end.
            self._tries = 0
            self._sought.clear()
        if self._tries < MAX_TRIES:
            self._timer = asyncio.get_running_loop().call_later(FIRST_PAUSE * 2**self._tries, self._ask)

    def ended(self, result: Result) -> None:
        """A session has ended."""
        if result.counters.blocks_received > 0:
            self._look()

    def left(self, address: Address) -> None:
        """A session that was requested has ended, or there was none: its peer was banned meanwhile, or it failed."""
        if address == self._last:
            self._look()

    def stop(self) -> None:
        """Ask nobody any more, whatever sessions end from now on."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self) -> None:
        self._timer = None
        missing = self._missing()
        if not missing and not self._claims.wanted:
            return
        self._sought.update(missing)
        self._parts_then = self._claims.parts.came
        others = [peer for peer in self._peers() if not self._is_asked(peer) and peer != self._last]
        self._tries += 1
        self._last = self._rng.choice(others) if others else None
        if self._last is None or not self._request(self._last, "the rest of a content"):
            self._last = None
            self._look()

    def _is_asked(self, peer: Address) -> bool:
        return peer in self._jobs or self._claims.parts.asks(peer)

    def _missing(self) -> list[BlockHash]:
        """What no session is bringing."""
        missing = self._state.missing_blocks(DEFAULT_LIMITS.missing_blocks)
        return [hash for hash in missing if not self._claims.is_coming(hash)]
