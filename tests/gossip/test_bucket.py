"""The token bucket and the pace of events; time is an argument, so nothing waits here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.gossip.outgoing import BURST_MIN, QUEUE_HIGH, QUEUE_LOW, Pacer, TokenBucket, sustained_rate


@pytest.mark.parametrize(
    ("profile", "nodes", "expected"),
    [("wan", 2, 1.0), ("wan", 5, 4.0), ("wan", 9, 4.0), ("wan", 30, 2.0), ("wan", 99, 2.0), ("wan", 100, 16 / 12),
     ("lan", 30, 3.75), ("local", 30, 7.5), ("wan", 1, 1.0), ("wan", 0, 1.0)],
)  # fmt: skip
def test_sustained_rate(profile: str, nodes: int, expected: float) -> None:
    assert sustained_rate(profile, nodes) == pytest.approx(expected)


def test_bucket_table() -> None:
    bucket = TokenBucket(rate=2.0, burst=3.0, now=10.0)
    for now, expected in [(10.0, 0.0), (10.0, 0.0), (10.0, 0.0), (10.0, 0.5), (10.25, 0.25), (10.5, 0.0), (10.5, 0.5),
                          (9.0, 0.5), (100.0, 0.0), (100.0, 0.0), (100.0, 0.0), (100.0, 0.5)]:  # fmt: skip
        assert bucket.take(now) == pytest.approx(expected, abs=1e-6), now


def test_waiting_as_long_as_it_says_is_enough() -> None:
    bucket = TokenBucket(rate=0.3, burst=1.0, now=0.0)
    now = 0.0
    for _ in range(1000):
        now += bucket.take(now)
        assert bucket.take(now) == 0.0 or now == 0.0


@given(
    st.floats(0.01, 100.0),
    st.floats(1.0, 50.0),
    st.lists(st.floats(-1.0, 20.0), max_size=200),
)
def test_never_more_than_burst_and_rate_allow(rate: float, burst: float, steps: list[float]) -> None:
    bucket = TokenBucket(rate, burst, 0.0)
    now = highest = 0.0
    taken = 0
    for step in steps:
        now += step
        highest = max(highest, now)
        delay = bucket.take(now)
        assert 0.0 <= delay <= 1.0 / rate + 1e-6
        taken += delay == 0.0
        assert taken <= burst + rate * highest + 1e-6 * len(steps)


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.5)])
def test_a_bucket_that_lets_nothing_pass_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="bucket"):
        TokenBucket(rate, burst, 0.0)


def test_the_pacer_follows_the_cluster() -> None:
    pacer = Pacer("wan", 0.0)
    assert (pacer.rate, pacer.burst) == (1.0, BURST_MIN)
    pacer.observe_nodes(30, 0.0)
    assert (pacer.rate, pacer.burst) == (2.0, 16.0)


def test_the_pacer_yields_to_a_full_queue_and_recovers() -> None:
    pacer = Pacer("wan", 0.0)
    pacer.observe_nodes(30, 0.0)
    rates = []
    for depth in [QUEUE_HIGH, QUEUE_HIGH, QUEUE_HIGH, QUEUE_LOW + 1, QUEUE_HIGH - 1, QUEUE_LOW] + [0] * 8:
        pacer.observe_depth(depth, 0.0)
        rates.append(pacer.rate)
    assert rates == [1.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.0, 4.0]


def test_a_burst_of_an_hour_keeps_the_rate() -> None:
    pacer = Pacer("lan", 0.0)
    now, sent = 0.0, 0
    while now < 3600.0:
        delay = pacer.take(now)
        sent += delay == 0.0
        now += delay
    assert sent == pytest.approx(BURST_MIN + 3600.0 * sustained_rate("lan", 1), abs=2)
