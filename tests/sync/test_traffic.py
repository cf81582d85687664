"""What all sessions of a node have moved."""

from __future__ import annotations

from basefs.sync.result import Counters
from basefs.sync.traffic import Traffic


def test_open_sessions_count_as_they_go_and_ended_ones_stay():
    traffic = Traffic()
    # Equal ones, which must not be taken for the same.
    one, two = Counters(bytes_sent=5), Counters(bytes_sent=5)
    for counters in (one, two):
        traffic.began(counters)
    one.bytes_sent += 100
    one.rejected += 1
    assert (traffic.total().bytes_sent, traffic.total().rejected) == (110, 1)
    traffic.ended(one)
    two.bytes_received += 7
    assert (traffic.total().bytes_sent, traffic.total().bytes_received) == (110, 7)
    traffic.ended(two)
    assert traffic.total() == Counters(bytes_sent=110, bytes_received=7, rejected=1)
