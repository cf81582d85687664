"""Bans and silences that grow."""

from __future__ import annotations

from basefs.sync.penalty import PenaltyBox, Throttle


def test_bans_grow_up_to_the_longest():
    box = PenaltyBox(first=5, longest=60)
    now = 0.0
    lengths = []
    for _ in range(6):
        lengths.append(box.punish("a", now))
        assert box.banned("a", now + lengths[-1] - 0.01)
        now += lengths[-1]
        assert not box.banned("a", now)
    assert lengths == [5, 10, 20, 40, 60, 60]
    assert not box.banned("b", 0)


def test_a_long_peace_is_a_new_beginning():
    box = PenaltyBox(first=5, longest=60)
    box.punish("a", 0)
    assert box.punish("a", 64.9) == 10
    assert box.punish("a", 64.9 + 10 + 60) == 5


def test_forgiveness():
    box = PenaltyBox()
    box.punish("a", 0)
    box.forgive("a")
    assert not box.banned("a", 0)


def test_bounded():
    box = PenaltyBox(max_keys=3)
    for name in "abcd":
        box.punish(name, 0)
    assert not box.banned("a", 0) and box.banned("b", 0)
    assert len(box._bans) == 3


def test_log_lines_become_rare():
    throttle = Throttle(first=10, longest=3600)
    written = [(now, left_out) for now in range(200) if (left_out := throttle.allow("k", now)) is not None]
    assert written == [(0, 0), (10, 9), (30, 19), (70, 39), (150, 79)]
    assert throttle.allow("other", 0) == 0
