"""Which lost peers to try again, and when (docs/architecture.md: sync at once after a heal).  No I/O and no clock.

Serf notices a failure late and a return later still: it tries a failed member every 30 s, and a short cut it never
notices at all.  So a peer that a session could not reach is tried again by ourselves, soon at first; what that costs is
one TCP SYN each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from basefs.gossip.events import Address

#: Seconds until the first new attempt, and at most between two.  A heal is noticed within the second one.
FIRST_DELAY = 1.0
LONGEST_DELAY = 4.0
#: From one delay to the next.
GROWTH = 1.5
#: Peers that are tried, those that were lost last; with more of them lost, the rest is left to Serf and to the periodic
#: sync.
MAX_LOST = 32


@dataclass(slots=True)
class _Lost:
    due: float
    delay: float


class Reconnects:
    """The peers that could not be reached."""

    def __init__(self) -> None:
        self._lost: dict[Address, _Lost] = {}

    def __contains__(self, address: Address) -> bool:
        return address in self._lost

    def failed(self, address: Address, now: float) -> None:
        """This peer could not be reached; `now` in seconds."""
        lost = self._lost.get(address)
        if lost is not None:
            lost.delay = min(lost.delay * GROWTH, LONGEST_DELAY)
            lost.due = now + lost.delay
        else:
            if len(self._lost) >= MAX_LOST:
                # Machines that are off for good must not keep those from being tried that will be back.
                self._lost.pop(next(iter(self._lost)))
            self._lost[address] = _Lost(now + FIRST_DELAY, FIRST_DELAY)

    def forget(self, address: Address) -> bool:
        """This peer is there again, or has left for good; returns whether it was lost."""
        return self._lost.pop(address, None) is not None

    def due(self, now: float) -> list[Address]:
        """The peers to try now.  Each is put off until its attempt has failed, in case that is never told."""
        found = [address for address, lost in self._lost.items() if lost.due <= now]
        for address in found:
            self._lost[address].due = now + 4 * LONGEST_DELAY
        return found
