"""Times as people type them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.daemon.api.messages import Moment
from basefs.errors import UsageError
from basefs.management.times import ACCEPTED, parse_moment, parse_time

NOW = datetime(2026, 11, 22, 19, 4, 30).timestamp()
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
WRITTEN = {
    "s": ("s", "sec", "second", " seconds"),
    "min": ("m", "min", " minutes"),
    "h": ("h", " hour", " hrs"),
    "d": ("d", " day", "days"),
    "w": ("w", " week", " Weeks"),
}


def here(text: str) -> float:
    """UNIX seconds of a complete local time."""
    return datetime.fromisoformat(text).timestamp()


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Several local times."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("now", "2026-11-22 19:04:30"),
        ("18:56", "2026-11-22 18:56"),
        ("19:04:30", "2026-11-22 19:04:30"),
        ("19:05", "2026-11-21 19:05"),
        ("8:03", "2026-11-22 08:03"),
        ("yesterday", "2026-11-21"),
        ("yesterday 18:56", "2026-11-21 18:56"),
        ("today", "2026-11-22"),
        ("today 18:00", "2026-11-22 18:00"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31 12:00", "2026-01-31 12:00"),
        ("2026-01-31T12:00:05.250", "2026-01-31 12:00:05.250"),
        ("1h30m", "2026-11-22 17:34:30"),
        ("5min", "2026-11-22 18:59:30"),
        ("2 hours ago", "2026-11-22 17:04:30"),
        ("1w", "2026-11-15 19:04:30"),
        (" 1 Day  2 hours AGO ", "2026-11-21 17:04:30"),
    ],
)
def test_times_as_people_type_them(zone: str, typed: str, meant: str) -> None:
    now = here("2026-11-22 19:04:30")
    assert parse_time(typed, now) == pytest.approx(here(meant), abs=1e-6), zone


@pytest.mark.parametrize("offset", ["Z", "+01:00", "-0330", "+14", " +01:00", "utc"])
def test_a_time_elsewhere(zone: str, offset: str) -> None:
    hours = {"Z": 0.0, "utc": 0.0, "+01:00": 1.0, " +01:00": 1.0, "-0330": -3.5, "+14": 14.0}[offset]
    meant = datetime(2026, 1, 31, 12, 0, 5, tzinfo=timezone(timedelta(hours=hours))).timestamp()
    assert parse_time(f"2026-01-31 12:00:05{offset}") == meant
    # The last one that was, there as here.
    assert 0 <= NOW - parse_time(f"12:00{offset}", NOW) < 86400


@pytest.mark.parametrize(
    "typed",
    ["", "ago", "1", "12", "1x", "18:5", "24:00", "2026-02-30", "2026-01-31T", "tomorrow", "-5m", "1h30", "@", "@nan"],
)
def test_what_is_no_time_says_what_is(typed: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_time(typed)
    assert str(raised.value) == f"{typed!r} is not a time: write {ACCEPTED}"


@pytest.mark.parametrize("typed", ["1M", "1 M ago", "2h1M", "1M30s"])
def test_a_minute_and_a_month_are_told_apart(typed: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_time(typed)
    assert str(raised.value) == f"{typed!r} is ambiguous: write m for minutes, or 30d for a month"
    assert NOW - parse_time("1 MIN ago", NOW) == 60


@pytest.mark.parametrize("typed", ["2099-01-01", "today 19:05", "2026-11-22 19:05", "@7000000000"])
def test_a_time_in_the_future_is_refused(zone: str, typed: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_time(typed, here("2026-11-22 19:04:30"))
    assert str(raised.value) == f"{typed!r} is in the future: write a time that has passed"


def test_a_moment_in_the_future_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        parse_moment("2999-01-01")
    assert str(raised.value) == "'2999-01-01' is in the future: write a time that has passed"


def test_seconds_since_1970_are_a_time() -> None:
    assert parse_time(f"@{NOW - 60}", NOW) == NOW - 60
    assert "@SECONDS" in ACCEPTED


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(SECONDS))), min_size=1, max_size=4), st.data())
def test_a_length_of_time_is_that_long_ago(parts: list[tuple[int, str]], data: st.DataObject) -> None:
    text = "".join(f"{count}{data.draw(st.sampled_from(WRITTEN[unit]))} " for count, unit in parts)
    expected = NOW - sum(count * SECONDS[unit] for count, unit in parts)
    for typed in (text, f"{text} ago", text.replace(" ", ""), text.upper().replace("M ", "m ")):
        assert parse_time(typed, NOW) == expected


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.sampled_from([" ", "T"]))
def test_a_date_is_read_as_python_reads_it(moment: datetime, between: str) -> None:
    moment = moment.replace(fold=0)
    for precision in ("minutes", "seconds", "microseconds"):
        typed = moment.isoformat(between, precision)
        assert parse_time(typed, here("2100-01-02")) == pytest.approx(here(typed), abs=1e-6)


@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 2**32))
def test_a_clock_time_is_the_last_one_that_was(hour: int, minute: int, now: int) -> None:
    found = parse_time(f"{hour}:{minute:02}", now)
    # A day has 25 hours where the clocks go back.
    assert 0 <= now - found < 25 * 3600
    shown = datetime.fromtimestamp(found)
    assert (shown.hour, shown.minute, shown.second) == (hour, minute, 0)


@given(st.text("0123456789 :-+TZhmdwago@.eys", max_size=24) | st.text(max_size=12))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        assert isinstance(parse_time(text, NOW), float)
    except UsageError as refused:
        assert any(
            why in str(refused) for why in ("is not a time: write 15m", "is in the future: write", "is ambiguous: ")
        )


@given(st.text("0123456789abcdefABCDEF", min_size=8, max_size=56))
def test_eight_digits_are_a_hash(text: str) -> None:
    assert parse_moment(text) == Moment(entry=text)


def test_fewer_are_none() -> None:
    assert parse_moment("2026-01-31") == Moment(time=here("2026-01-31"))
    with pytest.raises(UsageError, match="or at least 8 digits of a hash"):
        parse_moment("abcdef0")


def test_no_time_ago_is_now() -> None:
    """Rounding makes no future of it."""
    assert all(parse_time("0s", NOW + number / 1e7) <= NOW + number / 1e7 for number in range(100))
