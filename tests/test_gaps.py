"""One session at a time for news that several peers tell of."""

from __future__ import annotations

import random

from basefs.gaps import PATIENCE, Gaps

ONE, TWO, THREE = ((f"10.0.0.{number}", 1) for number in (1, 2, 3))


def gaps_told_by(*addresses):
    gaps = Gaps(random.Random(1))
    for address in addresses:
        gaps.told(address)
    return gaps


def test_one_at_a_time_and_only_what_is_still_missing():
    gaps = gaps_told_by(ONE, TWO, THREE)
    first = gaps.next(0.0, lambda address: True)
    assert first in (ONE, TWO, THREE)
    assert gaps.next(1.0, lambda address: True) is None, "the first one is at it"
    gaps.ended(first)
    assert gaps.next(1.0, lambda address: False) is None, "it brought everything"
    assert not gaps.waiting


def test_a_session_in_which_nothing_moves_is_not_waited_for():
    gaps = gaps_told_by(ONE, TWO)
    first = gaps.next(0.0, lambda address: True)
    gaps.moved(first, 1.0)
    gaps.moved(THREE, 1.5)
    assert gaps.next(PATIENCE, lambda address: True) is None
    second = gaps.next(1.0 + PATIENCE, lambda address: True)
    assert {first, second} == {ONE, TWO}
    assert gaps.next(1.0 + PATIENCE, lambda address: True) is None


def test_who_tells_again_is_asked_again():
    gaps = gaps_told_by(ONE)
    assert gaps.next(0.0, lambda address: True) == ONE
    gaps.told(ONE)
    gaps.ended(ONE)
    assert gaps.waiting
    assert gaps.next(0.1, lambda address: True) == ONE


def test_a_session_with_somebody_else_changes_nothing():
    gaps = gaps_told_by(ONE)
    gaps.ended(TWO)
    assert gaps.next(0.0, lambda address: True) == ONE
