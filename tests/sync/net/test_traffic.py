"""What all sessions of a node have moved."""

from __future__ import annotations

from types import SimpleNamespace

from basefs.sync.net.peers import Traffic
from basefs.sync.session.result import SessionCounters

PEER, OTHER = ("10.0.0.1", 1), ("10.0.0.2", 1)


class Session(SimpleNamespace):
    """As far as traffic knows one; two are never the same."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def test_open_sessions_count_as_they_go_and_ended_ones_stay():
    traffic = Traffic()
    # Equal ones, which must not be taken for the same.
    one, two = (Session(address=PEER, counters=SessionCounters(bytes_sent=5)) for _ in range(2))
    for session in (one, two):
        traffic.began(session)
    one.counters.bytes_sent += 100
    one.counters.rejected += 1
    assert (traffic.total().bytes_sent, traffic.total().rejected) == (110, 1)
    traffic.ended(one)
    two.counters.bytes_received += 7
    assert (traffic.total().bytes_sent, traffic.total().bytes_received) == (110, 7)
    traffic.ended(two)
    assert traffic.total() == SessionCounters(bytes_sent=110, bytes_received=7, rejected=1)


def test_what_is_open_with_a_peer():
    traffic = Traffic()
    sessions = [Session(address=peer, counters=SessionCounters(bytes_sent=5)) for peer in (PEER, PEER, OTHER)]
    for session in sessions:
        traffic.began(session)
    assert traffic.open_with(PEER).bytes_sent == 10
    traffic.ended(sessions[0])
    assert traffic.open_with(PEER).bytes_sent == 5
    # Who has come is known by its port when it has told it.
    sessions[2].address = PEER
    assert traffic.open_with(PEER).bytes_sent == 10 and traffic.open_with(OTHER).bytes_sent == 0
