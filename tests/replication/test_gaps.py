"""One session at a time for news that several peers tell of."""

from __future__ import annotations

import random

import pytest

from basefs.replication.gaps import AT_LATEST, AT_LATEST_ELSE, BURST_ENTRIES, JITTER, PATIENCE, QUIET, Gaps
from basefs.sync.session.inflight import CONTENTS_SECONDS

ONE, TWO, THREE = ((f"10.0.0.{number}", 1) for number in (1, 2, 3))
#: When whatever is told at zero may be fetched.
START = JITTER


def gaps_told_by(*addresses):
    gaps = Gaps(random.Random(1))
    for address in addresses:
        gaps.told(address, 0.0)
    return gaps


def always(address):
    return True


def test_what_is_on_its_way_has_a_moment():
    gaps = gaps_told_by(ONE)
    assert 0.0 < gaps.due < JITTER
    assert gaps.next(0.0, always) is None
    assert gaps.next(gaps.due, always) == ONE
    assert gaps.due is None


def test_nothing_is_fetched_while_news_comes_in():
    gaps = gaps_told_by(ONE)
    gaps.arrived(BURST_ENTRIES + 1, 0.2)
    assert gaps.next(0.1 + QUIET, always) is None, "what is missing may be on its way"
    assert gaps.due == 0.2 + QUIET
    assert gaps.next(0.2 + QUIET, always) == ONE


@pytest.mark.parametrize(("entries", "latest"), [(1, AT_LATEST_ELSE), (BURST_ENTRIES + 1, AT_LATEST)])
def test_news_that_never_ends_keeps_nobody_from_fetching(entries, latest):
    gaps = gaps_told_by(ONE, TWO)
    now = 0.0
    asked = []
    while now < 5 * latest:
        gaps.arrived(entries, now)
        if (address := gaps.next(now, always)) is not None:
            asked.append(now)
            gaps.ended(address)
            gaps.told(address, now)
        now += QUIET / 4
    assert asked[0] == pytest.approx(latest, abs=QUIET / 2)
    assert 4 <= len(asked) <= 5


def test_one_at_a_time_and_only_what_is_still_missing():
    gaps = gaps_told_by(ONE, TWO, THREE)
    first = gaps.next(START, always)
    assert first in (ONE, TWO, THREE)
    assert gaps.next(1.0, always) is None, "the first one is at it"
    assert gaps.due == START + PATIENCE
    gaps.ended(first)
    assert gaps.next(1.0, lambda address: False) is None, "it brought everything"
    assert gaps.due is None


def test_a_session_in_which_nothing_moves_is_not_waited_for():
    gaps = gaps_told_by(ONE, TWO)
    first = gaps.next(START, always)
    gaps.moved(first, 1.0, comparing=True)
    gaps.moved(THREE, 1.5, comparing=True)
    assert gaps.next(PATIENCE, always) is None
    assert gaps.due == 1.0 + PATIENCE
    second = gaps.next(1.0 + PATIENCE, always)
    assert {first, second} == {ONE, TWO}
    assert gaps.next(1.0 + PATIENCE, always) is None


def test_contents_that_take_long_keep_nobody_else_waiting():
    gaps = gaps_told_by(ONE, TWO)
    first = gaps.next(START, always)
    gaps.moved(first, 10.0, comparing=False)
    assert gaps.due == 10.0 + PATIENCE, "over a narrow link"
    gaps.moved(first, 100.0, comparing=False)
    assert gaps.due == START + CONTENTS_SECONDS + PATIENCE
    assert {first, gaps.next(100.0, always)} == {ONE, TWO}


def test_who_lets_us_wait_is_left_for_somebody_else():
    gaps = gaps_told_by(ONE, TWO)
    first = gaps.next(START, always)
    gaps.waits(first)
    second = gaps.next(START, always)
    assert {first, second} == {ONE, TWO}
    assert gaps.moved(second, START + 1, comparing=True) == [first], "and superfluous once the other one sends"
    gaps.ended(first)
    assert gaps.moved(second, START + 2, comparing=True) == []


@pytest.mark.parametrize("event", [Gaps.ended, Gaps.waits])
def test_a_session_with_somebody_else_changes_nothing(event):
    gaps = gaps_told_by(ONE)
    event(gaps, TWO)
    assert gaps.next(START, always) == ONE


def test_who_tells_again_is_asked_again():
    gaps = gaps_told_by(ONE)
    assert gaps.next(START, always) == ONE
    gaps.told(ONE, START)
    gaps.ended(ONE)
    assert gaps.next(START + JITTER, always) == ONE
