"""How long a session may go on without use: in seconds, given from outside, and in bytes."""

from __future__ import annotations

from basefs.sync.session.claims import Claims
from basefs.sync.session.result import Counters, Reason
from basefs.sync.wire.limits import Limits
from basefs.sync.wire.messages import Refusal

#: Seconds between two looks of a session at the time: the time-outs are ten times as long at least.
TICK = 1.0


class Awake:
    """A clock that stands still while this node itself does nothing, because its machine is busy or was suspended.

    What a peer has sent meanwhile lies unread, so that time is no delay of the peer's.  All sessions of a node go by
    one: they tell it to what they share.
    """

    def __init__(self, longest: float = 2 * TICK) -> None:
        """`longest`: seconds between two looks that count at the most."""
        self._longest = longest
        self._looked_at: float | None = None
        self._passed = 0.0

    def time(self, now: float) -> float:
        """Seconds since the first look, `now` in seconds of any steady clock."""
        if self._looked_at is not None:
            self._passed += min(now - self._looked_at, self._longest)
        self._looked_at = now
        return self._passed


class Timers:
    """When something last moved, and when something was last gained."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._began: float | None = None
        self._moved_at = 0.0
        self._gained_at = 0.0
        self._gained = 0
        self._moved = False
        self._on_the_way = 0

    def moved(self) -> None:
        """Bytes came in or went out."""
        self._moved = True

    def tick(
        self, now: float, *, greeted: bool, gained: int, standing: bool = False, on_the_way: int = 0
    ) -> str | None:
        """Tell the time (seconds).  Returns what was too late, if anything.

        `greeted`: the peer's first line is complete; `gained`: a counter of what was useful; `standing`: the session
        waits for news, so that nothing may be gained for long.  `on_the_way`: bytes that the peer has not received; as
        long as they become fewer it is at work, for kernels hold some MiB, which a slow machine verifies for minutes.
        """
        if on_the_way < self._on_the_way and not standing:
            self._moved = True
        self._on_the_way = on_the_way
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


class _Since:
    """How much a counter has grown since another one did."""

    def __init__(self) -> None:
        self._other = 0
        self._began = 0

    def grown(self, counter: int, other: int) -> int:
        if other != self._other:
            self._other = other
            self._began = counter
        return counter - self._began


class Progress:
    """What was received since something was last gained.

    Others may have been quicker: an answer that was asked for is on its way whatever they bring, and its sender cannot
    know.  So what comes in vain is no offence where others have brought half as much since the session began.
    """

    def __init__(self, limits: Limits, claims: Claims) -> None:
        """`claims`: of all sessions of this node."""
        self._limits = limits
        self._claims = claims
        self._before = (claims.accepted, claims.accepted_bytes)
        self._useless_bytes = _Since()
        self._known = _Since()

    def check(self, counters: Counters) -> tuple[Refusal, Reason, str] | None:
        """Why the session has to end, if it has to: what the peer is told, the reason, and a text."""
        size = self._useless_bytes.grown(counters.bytes_received, counters.gained)
        known = self._known.grown(counters.entries_received, counters.accepted)
        if size > self._limits.useless_bytes:
            others = self._claims.accepted_bytes - self._before[1] - counters.accepted_bytes
            return _judged(f"{self._limits.useless_bytes} bytes and nothing new", overtaken=2 * others >= size)
        if known > self._limits.known:
            others = self._claims.accepted - self._before[0] - counters.accepted
            return _judged(f"{self._limits.known} entries and none of them new", overtaken=2 * others >= known)
        if counters.barren > self._limits.barren:
            return _judged(f"{self._limits.barren} times it had nothing where it had listed something")
        return None


def _judged(text: str, *, overtaken: bool = False) -> tuple[Refusal, Reason, str]:
    return (Refusal.ENOUGH, Reason.ENOUGH, text) if overtaken else (Refusal.USELESS, Reason.USELESS, text)
