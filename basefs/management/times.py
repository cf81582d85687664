"""Times as people type them: `18:56`, `yesterday`, `1h30m`, `2 hours ago`, `2026-01-31 12:00`."""

from __future__ import annotations

import re
import time
from datetime import date, datetime, timedelta, timezone

from basefs.daemon.api.messages import LEAST_DIGITS, Moment
from basefs.errors import UsageError

#: What errors and `--help` name.
ACCEPTED = (
    "15m, 1h30m, '2 hours ago', 18:56, yesterday, 'yesterday 18:56', '2026-01-31 12:00[:30][+01:00]', @SECONDS or now"
)

#: No time has this form.
_HASH = re.compile(rf"[0-9a-fA-F]{{{LEAST_DIGITS},56}}", re.ASCII)

#: Name of a unit -> seconds.
_UNITS = {
    name: seconds
    for names, seconds in (
        ("s sec secs second seconds", 1),
        ("m min mins minute minutes", 60),
        ("h hr hrs hour hours", 3600),
        ("d day days", 86400),
        ("w week weeks", 604800),
    )
    for name in names.split()
}
#: A minute where case does not count, a month where it does.
_CAPITAL_M = re.compile(r"\d ?M(?![A-Za-z])", re.ASCII)
_SPAN = re.compile(r"(?:\d+ ?[a-z]+ ?)+", re.ASCII)
_MOMENT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d|today|yesterday)?(?:(?:(?<!^)[ t]|^)"
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?P<fraction>\.\d{1,9})?)?"
    r" ?(?P<zone>z|utc|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)


def parse_time(text: str, now: float | None = None) -> float:
    """UNIX seconds of a time in the past, as of `now` (UNIX seconds, by default the clock's).

    A length of time is that long ago, a day without a clock time its midnight, and a clock time without a day the last
    one that was.  Without an offset from UTC times are local.  Raises `UsageError`, also for a time in the future.
    """
    return _parsed(text, time.time() if now is None else now, ACCEPTED)


def parse_span(text: str) -> float:
    """Seconds of a length of time, such as `24h` or `1h30m`.  Raises `UsageError`."""
    if _CAPITAL_M.search(text):
        raise UsageError(f"{text!r} is ambiguous: write m for minutes, or 30d for a month")
    typed = " ".join(text.lower().split())
    try:
        if _SPAN.fullmatch(typed):
            return float(sum(int(count) * _UNITS[unit] for count, unit in re.findall(r"(\d+) ?([a-z]+)", typed)))
    except (KeyError, OverflowError, ValueError):
        # No such unit, or a number with thousands of digits.
        pass
    raise UsageError(f"{text!r} is not a length of time: write 30m, 24h, 7d or 1h30m")


def parse_moment(text: str) -> Moment:
    """A time, or the first digits of an entry's hash, `LEAST_DIGITS` at least.  Raises `UsageError`."""
    if _HASH.fullmatch(text):
        return Moment(entry=text)
    return Moment(time=_parsed(text, time.time(), f"{ACCEPTED}, or at least {LEAST_DIGITS} digits of a hash"))


def _parsed(text: str, now: float, accepted: str) -> float:
    if _CAPITAL_M.search(text):
        raise UsageError(f"{text!r} is ambiguous: write m for minutes, or 30d for a month")
    try:
        found = _seconds(" ".join(text.lower().split()), now)
    except (KeyError, ValueError, OverflowError, OSError):
        # No such unit, day or hour, or one beyond all calendars.
        raise UsageError(f"{text!r} is not a time: write {accepted}") from None
    if found > now:
        raise UsageError(f"{text!r} is in the future: write a time that has passed")
    return found


def _seconds(typed: str, now: float) -> float:
    if typed == "now":
        return now
    if typed.startswith("@"):
        return datetime.fromtimestamp(float(typed[1:])).timestamp()
    if span := _SPAN.fullmatch(typed.removesuffix(" ago")):
        parts = re.findall(r"(\d+) ?([a-z]+)", span[0])
        # By way of a date, which refuses what is beyond all calendars, and rounds.
        ago = datetime.fromtimestamp(now - sum(int(count) * _UNITS[unit] for count, unit in parts)).timestamp()
        return min(ago, now)
    if typed and (found := _MOMENT.fullmatch(typed)):
        return _moment(found, now)
    raise ValueError(typed)


def _moment(found: re.Match[str], now: float) -> float:
    zone = None if found["zone"] is None else _zone(found["zone"])
    present = datetime.fromtimestamp(now, zone)
    day = date.fromisoformat(found["day"]) if (found["day"] or "")[:1].isdigit() else present.date()
    if found["day"] == "yesterday":
        day -= timedelta(days=1)
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    moment = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=zone)
    if found["day"] is None and moment.timestamp() > now:
        moment -= timedelta(days=1)
    return moment.timestamp() + float(found["fraction"] or 0)


def _zone(text: str) -> timezone:
    """An offset from UTC: `z`, `utc`, `+01`, `+0100`, `-01:30`."""
    if text[0] not in "+-":
        return timezone.utc
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)
