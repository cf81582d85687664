"""Timing: when the working set is published (docs/fs.md).

A change costs whoever makes it little, and publishing it five times as much; while both compete for the interpreter,
each operation waits for it.  So who changes very many names has it first, and they are published afterwards.
"""

from __future__ import annotations

#: Seconds after which it is published however busy the node is.
MAX_SECONDS = 1.0
#: Seconds after an existing file was rewritten in place: tools set its mode and time just after they close it.
URGENT_SECONDS = 0.005
#: Seconds after a new file was closed, where it is all that has changed and the machine is not busy.  Nearly always
#: that was all; 50 ms are for programs that pause between two steps of a save.
CLOSED_SECONDS = 0.02
#: Seconds for which that counts as too short, after something came that what was published so soon should have waited
#: for: a machine whose programs are slow has one more entry in a while, not one in each save.
PATIENT_SECONDS = 60.0
#: More names than this are a burst: a tree that is copied, unpacked or removed.  So many take 0.1 s to publish, which
#: nobody who makes them would notice.
BURST_NAMES = 64
#: Seconds after which a burst is published though it goes on, and the names at which it is, so that memory is bounded:
#: what a name has of up to 8 KiB is kept there.
BURST_SECONDS = 10.0
MAX_NAMES = 12_000


class Timing:
    """When what is pending is due.  Times are seconds on one monotonic clock; it reads none itself."""

    def __init__(self, quiet: float) -> None:
        """`quiet`: seconds without a change after which what is pending is published."""
        self._quiet = quiet
        #: The first change that is not published, and the last change.
        self._first: float | None = None
        self._last = 0.0
        self._urgent = False
        #: Whether a new file was closed, and whether that was the last change.
        self._has_closed = self._closed = False
        #: Until when a change shows that the last publication should have waited; until when others do for that reason.
        self._too_soon_until = self._patient_until = 0.0
        self._held: float | None = None
        #: The first change of what is being published.
        self._since = 0.0

    def change(self, now: float, *, urgent: bool = False, closed: bool = False) -> bool:
        """Something has changed; returns whether it may be due earlier than was said before.

        `urgent`: an existing file was rewritten in place; `closed`: a new one is complete.
        """
        self._last = now
        self._closed = closed
        if now < self._too_soon_until:
            self._patient_until = now + PATIENT_SECONDS
        is_sooner = closed and not self._has_closed
        self._has_closed = self._has_closed or closed
        return self.ask(now, urgent=urgent) or is_sooner

    def ask(self, now: float, *, urgent: bool = False) -> bool:
        """Something should be tried, though nothing has changed; returns the same as `change`."""
        is_sooner = self._first is None or (urgent and not self._urgent)
        if self._first is None:
            self._first = now
        self._urgent = self._urgent or urgent
        return is_sooner

    def hold(self, until: float | None) -> None:
        """What is held back is due then."""
        self._held = until

    def due(self, names: int, *, busy: bool = False) -> float | None:
        """When something is to be published, `None` while nothing is.

        `names`: how many are pending that were not left behind the last time; `busy`: whether the machine is.
        """
        if self._first is None:
            return self._held
        if BURST_NAMES < names <= MAX_NAMES:
            return min(self._last + self._quiet, self._first + BURST_SECONDS)
        quiet = self._quiet
        if self._urgent:
            quiet = min(quiet, URGENT_SECONDS)
        elif self._closed and names <= 1 and not busy and self._last >= self._patient_until:
            quiet = min(quiet, CLOSED_SECONDS)
        soon = min(self._last + quiet, self._first + MAX_SECONDS)
        return soon if self._held is None else min(soon, self._held)

    def begin(self, now: float) -> None:
        """What is pending is being published."""
        self._since = now if self._first is None else self._first
        if self._first is not None and not self._urgent:
            self._too_soon_until = self._last + self._quiet
        self._first, self._urgent, self._has_closed, self._held = None, False, False, None

    def gives_way(self, now: float, names: int) -> bool:
        """Whether what is being published should wait, because a burst goes on; it is then due as it was before."""
        if self._first is None or not BURST_NAMES < names <= MAX_NAMES:
            return False
        if now >= min(self._last + self._quiet, self._since + BURST_SECONDS):
            return False
        self._first = self._since
        return True
