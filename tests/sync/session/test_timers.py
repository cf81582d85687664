"""Time-outs: at the limit, and just above."""

from __future__ import annotations

from basefs.sync.net.transport import SessionContext
from basefs.sync.session.inflight import PATIENCE
from basefs.sync.session.protocol import Awake, Timers
from basefs.sync.wire.limits import Limits

LIMITS = Limits(greeting_timeout=10, idle_timeout=60, stall_timeout=300)


def test_time_in_which_this_node_did_nothing_does_not_count():
    awake = Awake(2.0)
    assert [awake.time(now) for now in (1000.0, 1001.0, 1003.0, 1063.0, 1064.0)] == [0.0, 1.0, 3.0, 5.0, 6.0]


def test_the_time_of_a_node_goes_on_when_its_oldest_session_has_ended():
    shared = SessionContext()
    for now in range(1000, 1600):
        shared.requests.tick(shared.awake.time(now))
    silent, other = object(), object()
    shared.requests.asks(silent)
    assert not shared.requests.may_ask(other)
    for now in range(1600, 1600 + int(PATIENCE) + 2):
        shared.requests.tick(shared.awake.time(now))
    assert shared.requests.may_ask(other)


def test_greeting():
    timers = Timers(LIMITS)
    assert timers.tick(1000, greeted=False, gained=0) is None
    timers.moved()
    assert timers.tick(1010, greeted=False, gained=0) is None
    assert "greeting" in timers.tick(1010.1, greeted=False, gained=0)


def test_idle():
    timers = Timers(LIMITS)
    timers.tick(0, greeted=True, gained=0)
    timers.moved()
    assert timers.tick(50, greeted=True, gained=0) is None
    assert timers.tick(110, greeted=True, gained=0) is None
    assert "moved" in timers.tick(110.1, greeted=True, gained=0)


def test_stall():
    timers = Timers(LIMITS)
    for now in range(0, 301, 10):
        timers.moved()
        assert timers.tick(now, greeted=True, gained=0) is None
    timers.moved()
    assert timers.tick(301, greeted=True, gained=1) is None
    for now in range(310, 601, 10):
        timers.moved()
        assert timers.tick(now, greeted=True, gained=1) is None
    timers.moved()
    assert "gained" in timers.tick(601.1, greeted=True, gained=1)


def test_what_the_peer_takes_from_the_kernel_moves():
    timers = Timers(LIMITS)
    timers.tick(0, greeted=True, gained=0, on_the_way=5000)
    for now in range(50, 201, 50):
        assert timers.tick(now, greeted=True, gained=0, on_the_way=5000 - now) is None
    # It has stopped.
    assert timers.tick(260, greeted=True, gained=0, on_the_way=4800) is None
    assert "moved" in timers.tick(260.1, greeted=True, gained=0, on_the_way=4800)


def test_a_session_that_stands_needs_a_word_of_the_peer():
    timers = Timers(LIMITS)
    timers.tick(0, greeted=True, gained=0, standing=True, on_the_way=5000)
    assert "moved" in timers.tick(60.1, greeted=True, gained=0, standing=True, on_the_way=100)
