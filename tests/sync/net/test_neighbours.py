"""What becomes of what was sent to the neighbours, and which of them give way."""

from __future__ import annotations

import functools
import itertools
import random

import pytest

from basefs.sync.net.neighbours import Acknowledged, NeighbourSet
from basefs.sync.session.push import Notice
from basefs.sync.session.states import Role
from tests.support.asynchronous import run


class Line:
    """A session as the neighbour set sees it here: bytes sent and acknowledged, which a test sets."""

    numbers = itertools.count(1)
    key = b""
    push = None
    role = Role.INITIATOR

    def __init__(self, sent=1000, acknowledged=1000):
        self.sent = sent
        self.acknowledged = acknowledged
        self.address = "10.0.0.2", next(self.numbers)
        self.ends = False

    def end(self, reason):
        self.ends = True


def in_a_loop(test):
    """Run a test in an event loop, whose clock the neighbour set reads."""

    @functools.wraps(test)
    def runs(**arguments):
        async def main():
            test(**arguments)

        run(main())

    return runs


def keeper(*lines, peers=(), rng=None):
    """A neighbour set with sessions that stand; in an event loop."""
    kept = NeighbourSet(lambda: peers, lambda session: None, lambda address: None, rng or random.Random(1), 3)
    for line in lines:
        kept.notice(line, Notice.STANDS)
    return kept


@in_a_loop
def test_what_was_sent_and_acknowledged_has_arrived():
    one, two = Line(), Line(sent=1500)
    kept = keeper(one, two)
    assert kept.arrival(kept.mark())[0] is Acknowledged.STUCK
    mark = kept.mark()
    two.acknowledged = 1500
    assert kept.arrival(mark)[0] is Acknowledged.ARRIVED
    two.sent = 1800
    assert kept.arrival(mark)[0] is Acknowledged.ARRIVED, "that was sent later"


@in_a_loop
def test_what_was_not_written_yet_has_not_arrived():
    line = Line(sent=None)
    kept = keeper(line)
    mark = kept.mark()
    assert kept.arrival(mark)[0] is Acknowledged.STUCK
    line.sent = 1200
    assert kept.arrival(mark)[0] is Acknowledged.STUCK, "written since, and not acknowledged"
    line.acknowledged = 1100
    arrival, mark = kept.arrival(mark)
    assert arrival is Acknowledged.MOVING
    line.sent, line.acknowledged = 1500, 1200
    assert kept.arrival(mark)[0] is Acknowledged.ARRIVED, "more was sent later"


@in_a_loop
def test_a_narrow_link_is_no_stuck_one():
    line = Line(sent=12_000)
    kept = keeper(line, Line())
    mark = kept.mark()
    for _ in range(10):
        line.acknowledged += 1000
        arrival, mark = kept.arrival(mark)
        assert arrival is Acknowledged.MOVING
    assert kept.arrival(mark)[0] is Acknowledged.STUCK
    line.acknowledged = 12_000
    assert kept.arrival(mark)[0] is Acknowledged.ARRIVED


@in_a_loop
def test_one_stuck_link_of_several_is_enough():
    lines = [Line(sent=5000) for _ in range(5)]
    kept = keeper(*lines)
    mark = kept.mark()
    for line in lines[1:]:
        line.acknowledged = 5000
    assert kept.arrival(mark)[0] is Acknowledged.STUCK


@in_a_loop
def test_of_a_session_that_has_ended_nobody_knows():
    line = Line()
    kept = keeper(line)
    mark = kept.mark()
    assert kept.arrival(mark)[0] is Acknowledged.ARRIVED
    kept.notice(line, None)
    assert kept.arrival(mark)[0] is Acknowledged.STUCK
    assert kept.arrival({})[0] is Acknowledged.ARRIVED


@pytest.mark.parametrize(("arrived", "least", "most"), [(0, 0, 0), (1, 3, 40), (15, 220, 300), (29, 500, 500)])
@in_a_loop
def test_of_the_sessions_of_all_nodes_as_many_give_way_as_members_have_come(arrived, least, most):
    """In a cluster of 30, played 500 times."""
    rng = random.Random(7)
    gave_way = 0
    for _ in range(500):
        lines = [Line(), Line(), Line()]
        kept = keeper(*lines, peers=[("10.0.0.1", port) for port in range(29)], rng=rng)
        kept.make_room(arrived)
        assert kept.vacancies() == 0 and len(kept.addresses) == 3
        gave_way += sum(line.ends for line in lines)
    assert least <= gave_way <= most


@in_a_loop
def test_who_has_too_few_sessions_keeps_them_all():
    line = Line()
    kept = keeper(line, peers=[("10.0.0.1", 1)])
    kept.make_room(1)
    assert kept.vacancies() == 2 and not line.ends
