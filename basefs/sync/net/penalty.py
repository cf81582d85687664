"""Whom to refuse, whom to let wait, and what not to repeat in the log.  Time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

#: Seconds of the first ban.  Long enough to make flooding pointless, short enough for an address that a bad node shares
#: with good ones (NAT, several nodes on one machine).
FIRST_BAN = 5.0
#: Seconds of the longest ban, reached with the eleventh offence in a row.
LONGEST_BAN = 3600.0
#: Seconds in which the second line of a kind is not logged; doubles like a ban.
FIRST_SILENCE = 10.0
LONGEST_SILENCE = 3600.0
#: Sessions that one host may begin a second, and at once.  Thirty nodes behind one address begin six, one each in five
#: seconds; comparing equal logs costs 1 ms.
BEGINNINGS = 10.0
BEGINNINGS_AT_ONCE = 60
#: Keys remembered, about 200 bytes each, of bans, of lines in the log and of beginnings: beyond that the one of the
#: oldest ban, line or beginning is forgotten, also where the ban has not ended.
MAX_KEYS = 4096


@dataclass(slots=True)
class _Interval:
    """When it ends, how long it is, and how often it was asked about meanwhile."""

    until: float
    length: float
    asked: int = 0


class _Intervals:
    """Growing intervals by key: twice as long each time, forgotten when as long as the longest has passed in peace."""

    def __init__(self, first: float, longest: float, max_keys: int) -> None:
        self._first = first
        self._longest = longest
        self._max_keys = max_keys
        self._found: OrderedDict[object, _Interval] = OrderedDict()

    def __len__(self) -> int:
        """Keys remembered."""
        return len(self._found)

    def running(self, key: object, now: float) -> _Interval | None:
        """The interval of a key, if it has not ended."""
        found = self._found.get(key)
        return found if found is not None and now < found.until else None

    def begin(self, key: object, now: float) -> _Interval:
        """Start the next interval of a key."""
        old = self._found.pop(key, None)
        if old is None or now >= old.until + self._longest:
            length = self._first
        else:
            length = min(2 * old.length, self._longest)
        self._found[key] = new = _Interval(now + length, length)
        while len(self._found) > self._max_keys:
            self._found.popitem(last=False)
        return new

    def asked(self, key: object) -> int:
        """How often `running` of the last interval was counted."""
        found = self._found.get(key)
        return found.asked if found else 0


class PenaltyBox:
    """Addresses that are refused for a while."""

    def __init__(self, first: float = FIRST_BAN, longest: float = LONGEST_BAN, max_keys: int = MAX_KEYS) -> None:
        self._bans = _Intervals(first, longest, max_keys)

    def punish(self, address: str, now: float) -> float:
        """Ban an address, longer than the last time.  Returns the seconds."""
        return self._bans.begin(address, now).length

    def banned(self, address: str, now: float) -> bool:
        """Whether an address is refused now."""
        return self._bans.running(address, now) is not None

    def remaining(self, address: str, now: float) -> float | None:
        """Seconds for which an address is refused still, `None` if it is not."""
        ban = self._bans.running(address, now)
        return None if ban is None else ban.until - now


class Pace:
    """How often each key may begin something: a number at once, then evenly (a leaky bucket for each)."""

    def __init__(
        self, a_second: float = BEGINNINGS, at_once: int = BEGINNINGS_AT_ONCE, max_keys: int = MAX_KEYS
    ) -> None:
        self._step = 1 / a_second
        self._slack = (at_once - 1) * self._step
        self._max_keys = max_keys
        #: When the next beginning of a key would be due, were they all even.
        self._due: OrderedDict[object, float] = OrderedDict()

    def delay(self, key: object, now: float) -> float:
        """Count a beginning; returns the seconds that it has to wait."""
        due = max(self._due.pop(key, now), now)
        self._due[key] = due + self._step
        while len(self._due) > self._max_keys:
            self._due.popitem(last=False)
        return max(due - self._slack - now, 0.0)


class Throttle:
    """Which of many equal log lines to write."""

    def __init__(
        self, first: float = FIRST_SILENCE, longest: float = LONGEST_SILENCE, max_keys: int = MAX_KEYS
    ) -> None:
        self._silences = _Intervals(first, longest, max_keys)

    def allow(self, key: object, now: float) -> int | None:
        """None if the line should not be written; otherwise how many were left out since the last one."""
        running = self._silences.running(key, now)
        if running is not None:
            running.asked += 1
            return None
        left_out = self._silences.asked(key)
        self._silences.begin(key, now)
        return left_out
