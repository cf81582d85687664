"""How long a session may go on without use: in seconds, given from outside, and in bytes."""

from __future__ import annotations

from basefs.sync.limits import Limits


class Timers:
    """When something last moved, and when something was last gained."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._began: float | None = None
        self._moved_at = 0.0
        self._gained_at = 0.0
        self._gained = 0
        self._moved = False

    def moved(self) -> None:
        """Bytes came in or went out."""
        self._moved = True

    def tick(self, now: float, *, greeted: bool, gained: int, standing: bool = False) -> str | None:
        """Tell the time (seconds).  Returns what was too late, if anything.

        `greeted`: the peer's first line is complete; `gained`: a counter of what was useful; `standing`: the session
        waits for news, so that nothing may be gained for long.
        """
        if self._began is None:
            self._began = self._moved_at = self._gained_at = now
        if self._moved:
            self._moved_at = now
            self._moved = False
        if gained != self._gained:
            self._gained = gained
            self._gained_at = now
        if not greeted and now - self._began > self._limits.greeting_timeout:
            return f"no greeting in {self._limits.greeting_timeout:g} s"
        if now - self._moved_at > self._limits.idle_timeout:
            return f"nothing moved for {self._limits.idle_timeout:g} s"
        if not standing and now - self._gained_at > self._limits.stall_timeout:
            return f"nothing gained for {self._limits.stall_timeout:g} s"
        return None


class Progress:
    """Bytes received since something was last gained."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.useless_bytes
        self._gained = 0
        self._useful_at = 0

    def check(self, gained: int, received: int) -> str | None:
        """Given both counters, what is wrong, if anything."""
        if gained != self._gained:
            self._gained = gained
            self._useful_at = received
        return f"{self._limit} bytes and nothing new" if received - self._useful_at > self._limit else None
