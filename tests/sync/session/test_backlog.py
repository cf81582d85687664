"""News that waits for a connection: how much goes at a time, in which order, and when it is given up."""

from __future__ import annotations

import pytest

from basefs.sync.session.push import (
    LEAST_WINDOW,
    MOST_ENTRIES,
    MOST_SECONDS,
    MOST_WINDOW,
    PATIENCE,
    QUICK,
    PushQueue,
    QueuedPush,
)
from basefs.sync.wire.limits import ENTRIES_PER_SLICE

KILOBYTE = 1024


def backlog_of(count, size=4 * KILOBYTE, since=0.0):
    backlog = PushQueue()
    backlog.add(QueuedPush(b"%d" % number, size, since) for number in range(count))
    return backlog


def test_as_much_as_may_be_on_the_way_goes_in_order():
    backlog = backlog_of(10)
    assert backlog.take(0, 0.0) == ([b"0", b"1", b"2", b"3"], False)
    assert backlog.take(LEAST_WINDOW, 0.01) == ([], False), "nothing was acknowledged"
    assert backlog.take(LEAST_WINDOW // 2 + 1, 0.02) == ([], False), "not enough to go on"
    assert backlog.take(LEAST_WINDOW // 2, QUICK) == ([b"4", b"5"], False)


def test_a_link_that_acknowledges_quickly_gets_twice_as_much_up_to_a_limit():
    backlog = backlog_of(4000, size=LEAST_WINDOW // 4)
    now = 0.0
    most = 0
    for _ in range(200):
        sent = 0
        while entries := backlog.take(sent * LEAST_WINDOW // 4, now)[0]:
            sent += len(entries)
        most = max(most, sent * LEAST_WINDOW // 4)
        now += QUICK / 2
    assert most == MOST_WINDOW


def test_a_link_that_is_slow_to_acknowledge_gets_no_more():
    backlog = backlog_of(100)
    assert len(backlog.take(0, 0.0)[0]) == 4
    for turn in range(1, 10):
        assert len(backlog.take(0, turn * 2 * QUICK)[0]) == 4


def test_one_call_takes_no_longer_than_a_slice():
    assert len(backlog_of(100, size=10).take(0, 0.0)[0]) == ENTRIES_PER_SLICE


def test_what_is_larger_than_may_be_on_the_way_is_left_out():
    backlog = PushQueue()
    backlog.add([QueuedPush(b"large", LEAST_WINDOW + 1, 0.0), QueuedPush(b"small", 100, 0.0)])
    assert backlog.take(0, 0.0) == ([b"small"], True)
    assert not backlog


@pytest.mark.parametrize(("acknowledged", "late"), [(0, True), (LEAST_WINDOW, False)])
def test_a_peer_that_acknowledges_nothing_is_given_up(acknowledged, late):
    backlog = backlog_of(100, since=0.0)
    backlog.take(0, 0.0)
    assert not backlog.is_late(LEAST_WINDOW, PATIENCE)
    assert backlog.is_late(LEAST_WINDOW - acknowledged, PATIENCE + 0.1) == late


def test_what_has_waited_too_long_is_given_up():
    backlog = backlog_of(10, since=1.0)
    assert not backlog.is_late(0, 1.0 + MOST_SECONDS)
    assert backlog.is_late(0, 1.1 + MOST_SECONDS)
    backlog.clear()
    assert not backlog.is_late(0, 1.1 + MOST_SECONDS)


def test_it_is_bounded():
    assert not backlog_of(MOST_ENTRIES).is_late(0, 0.0)
    assert backlog_of(MOST_ENTRIES + 1).is_late(0, 0.0)
