"""The choice of the next peer."""

from __future__ import annotations

import random
from collections import Counter

from basefs.sync.net import schedule as module
from basefs.sync.net.schedule import PeerSchedule

A, B, C = ("10.0.0.1", 1), ("10.0.0.2", 1), ("10.0.0.3", 1)


def picks(schedule, now, count=3000):
    return Counter(schedule.pick([A, B, C], now) for _ in range(count))


def test_probability():
    found = picks(PeerSchedule(random.Random(1), 0.25), 0)
    assert 0.70 < found[None] / 3000 < 0.80
    assert picks(PeerSchedule(random.Random(1), 0), 0) == {None: 3000}
    assert None not in picks(PeerSchedule(random.Random(1), 1), 0)
    assert PeerSchedule(random.Random(1), 1).pick([], 0) is None


def test_those_not_talked_to_for_longest_come_first():
    schedule = PeerSchedule(random.Random(2), 1)
    schedule.talked(A, 1000)
    schedule.talked(B, 1090)
    found = picks(schedule, 1100)
    assert found[C] > 20 * found[A] > 20 * found[B] > 0


def test_a_peer_that_never_answers_takes_no_more_than_its_turn():
    """An attempt every five seconds: the sessions that meet somebody find what was lost."""
    schedule = PeerSchedule(random.Random(3), 1)
    found = Counter()
    for second in range(0, 10_000, 5):
        peer = schedule.pick([A, B, C], second)
        found[peer] += 1
        schedule.talked(peer, second)
    assert found[C] < 1.2 * min(found[A], found[B])


def test_bounded(monkeypatch):
    monkeypatch.setattr(module, "_MAX_REMEMBERED", 10)
    schedule = PeerSchedule(random.Random(4), 1)
    for number in range(20):
        schedule.talked(("10.0.0.1", number), number)
    assert len(schedule._talked) == 10
