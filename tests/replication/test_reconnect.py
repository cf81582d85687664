"""Lost peers are tried again soon, then less often, and never for ever at once."""

from __future__ import annotations

import itertools

from basefs.gossip.events import Address
from basefs.replication.reconnect import FIRST_DELAY, LONGEST_DELAY, MAX_LOST, Reconnects

PEER = Address("10.0.0.1", 18375)


def test_a_lost_peer_is_due_after_the_first_delay_and_once() -> None:
    lost = Reconnects()
    lost.failed(PEER, 100.0)
    assert PEER in lost
    assert lost.due(100.0 + FIRST_DELAY - 0.01) == []
    assert lost.due(100.0 + FIRST_DELAY) == [PEER]
    assert lost.due(100.0 + FIRST_DELAY) == []


def test_delays_grow_up_to_the_longest() -> None:
    lost = Reconnects()
    now, waits = 0.0, []
    lost.failed(PEER, now)
    for _ in range(10):
        start = now
        while not lost.due(now):
            now += 0.01
        waits.append(now - start)
        lost.failed(PEER, now)
    assert all(later > earlier - 0.02 for earlier, later in itertools.pairwise(waits))
    assert waits[0] < FIRST_DELAY + 0.02
    assert LONGEST_DELAY - 0.02 < waits[-1] < LONGEST_DELAY + 0.02


def test_an_attempt_that_is_never_told_of_is_made_again() -> None:
    lost = Reconnects()
    lost.failed(PEER, 0.0)
    assert lost.due(10.0) == [PEER]
    assert lost.due(10.0 + 4 * LONGEST_DELAY) == [PEER]


def test_a_peer_that_is_back_is_forgotten() -> None:
    lost = Reconnects()
    lost.failed(PEER, 0.0)
    assert lost.forget(PEER)
    assert not lost.forget(PEER)
    assert lost.due(1000.0) == []


def test_only_so_many_are_tried_those_that_were_lost_last() -> None:
    lost = Reconnects()
    addresses = [Address("10.0.0.1", 1000 + number) for number in range(MAX_LOST + 5)]
    for address in addresses:
        lost.failed(address, 0.0)
    assert lost.due(1000.0) == addresses[5:]
