"""Bans and silences that grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.sync.net.peers import Pace, PenaltyBox, Throttle


def test_bans_grow_up_to_the_longest():
    box = PenaltyBox(first=5, longest=60)
    now = 0.0
    lengths = []
    for _ in range(6):
        lengths.append(box.punish("a", now))
        assert box.banned("a", now + lengths[-1] - 0.01)
        assert box.remaining("a", now + 1) == lengths[-1] - 1
        now += lengths[-1]
        assert not box.banned("a", now) and box.remaining("a", now) is None
    assert lengths == [5, 10, 20, 40, 60, 60]
    assert not box.banned("b", 0)


def test_offences_during_a_ban_do_not_make_it_longer():
    box = PenaltyBox(first=5, longest=60)
    assert [box.punish("a", now) for now in (0, 0, 0, 4.9)] == [5] * 4
    assert box.remaining("a", 4.9) == pytest.approx(0.1)
    assert box.punish("a", 5) == 10


def test_a_long_peace_is_a_new_beginning():
    box = PenaltyBox(first=5, longest=60)
    box.punish("a", 0)
    assert box.punish("a", 64.9) == 10
    assert box.punish("a", 64.9 + 10 + 60) == 5


def test_bounded():
    box = PenaltyBox(most=3)
    for name in "abcd":
        box.punish(name, 0)
    assert [box.banned(name, 0) for name in "abcd"] == [False, True, True, True]


def test_log_lines_become_rare():
    throttle = Throttle(first=10, longest=3600)
    written = [(now, left_out) for now in range(200) if (left_out := throttle.allow("k", now)) is not None]
    assert written == [(0, 0), (10, 9), (30, 19), (70, 39), (150, 79)]
    assert throttle.allow("other", 0) == 0


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 2)), max_size=200), st.integers(1, 10), st.integers(1, 20)
)
def test_nobody_begins_more_often_than_the_pace(arrivals, a_second, at_once):
    pace = Pace(a_second, at_once)
    now = 0.0
    begins: dict[str, list[float]] = {"a": [], "b": []}
    for host, passed in arrivals:
        now += passed
        begins[host].append(now + pace.delay(host, now))
    for times in begins.values():
        assert times == sorted(times)
        for first, start in enumerate(times):
            for number, end in enumerate(times[first:], 1):
                assert number <= at_once + a_second * (end - start) + 1e-6


@given(st.lists(st.floats(0.1, 10), max_size=100))
def test_who_keeps_to_the_pace_never_waits(pauses):
    pace = Pace(10, 1)
    now = 0.0
    for pause in pauses:
        now += pause
        assert pace.delay("a", now) < 1e-6


def test_a_rest_is_so_long_however_often_it_is_due():
    pace = Pace(10, 60)
    for _ in range(8):
        pace.rest("a", 0, 5)
    assert pace.delay("a", 0) == pytest.approx(5)
    assert pace.delay("a", 1) == pytest.approx(4.1)
    assert pace.delay("a", 12) == 0
    assert pace.delay("b", 0) == 0
    pace = Pace(1, 1)
    for _ in range(8):
        pace.delay("a", 0)
    pace.rest("a", 0, 5)
    assert pace.delay("a", 0) == 8, "who waits longer anyway waits no less"


def test_the_pace_of_one_is_not_that_of_another():
    pace = Pace(1, 2, most=3)
    assert [pace.delay("a", 0) for _ in range(4)] == [0, 0, 1, 2]
    assert pace.delay("b", 0) == 0
    for name in "cde":
        pace.delay(name, 0)
    assert pace.delay("a", 0) == 0, "forgotten"
