"""Whether the disk takes what peers send, once it did not.  Time is an argument."""

from __future__ import annotations

from collections.abc import Callable

#: Bytes that must be free beyond those that did not suffice.  Less would fetch again and again what does not fit.
MORE_BYTES = 256 * 1024
#: Seconds after which it is tried in any case: a quota does not show.
TRY_AGAIN = 300.0


class Room:
    """Full from the moment at which something did not fit until more is free than then."""

    def __init__(self, free: Callable[[], int] = lambda: 0) -> None:
        """`free`: bytes that the disk of the log has free."""
        self._free = free
        self._needed = 0
        self._until = 0.0

    def ran_out(self, now: float) -> None:
        """Something did not fit; `now` in seconds of any steady clock."""
        self._needed = self._free() + MORE_BYTES
        self._until = now + TRY_AGAIN

    def is_full(self, now: float) -> bool:
        """Whether nothing should be sent here."""
        if now < self._until and self._free() >= self._needed:
            self._until = 0.0
        return now < self._until
