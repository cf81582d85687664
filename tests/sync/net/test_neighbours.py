"""What the keeper of standing sessions concludes from what the kernel tells of their connections."""

from __future__ import annotations

import random

import pytest

from basefs.sync.net.neighbours import NeighbourSet
from basefs.sync.net.uplink import Flow


class Line:
    """A session as the keeper sees it here: the state of its connection, which a test sets."""

    def __init__(self, **flow):
        self.now = Flow(outstanding=0, acknowledged=1000, segments=10)
        self.after(**flow)

    def after(self, **flow):
        self.now = Flow(**{**{name: getattr(self.now, name) for name in Flow.__dataclass_fields__}, **flow})

    def flow(self):
        return self.now


def keeper(*lines):
    kept = NeighbourSet(list, lambda session: None, lambda address: None, random.Random(1), 3)
    kept._sessions = dict.fromkeys(lines, 0.0)
    return kept


def test_what_was_sent_and_acknowledged_is_not_lacking():
    one, two = Line(), Line(outstanding=500)
    kept = keeper(one, two)
    mark = kept.mark()
    assert kept.lacks(mark)
    two.after(outstanding=0, acknowledged=1500, segments=12, repeated=2)
    assert not kept.lacks(mark)
    assert not kept.loses(mark), "packets were lost, but it has arrived"
    two.after(outstanding=300)
    assert not kept.lacks(mark), "that was sent later"


def test_a_narrow_link_is_no_lossy_one():
    line = Line(outstanding=11_000)
    kept = keeper(line, Line())
    mark = kept.mark()
    line.after(acknowledged=4000, outstanding=8000, segments=18, repeated=2)
    assert kept.lacks(mark) and not kept.loses(mark)
    line.after(segments=18, repeated=5)
    assert kept.loses(mark)
    line.after(latest=0.8)
    assert kept.loses(mark), "the other one is short"
    slow = Line(latest=0.8)
    kept = keeper(line, slow)
    assert not kept.loses(mark), "round trips are long because of a queue, in which packets wait and are sent again"


def test_what_the_queue_of_a_narrow_link_drops_is_not_lost():
    """Two peers have acknowledged something, the others nothing yet, and of what they were sent most was dropped."""
    lines = [Line(outstanding=11_000, shortest=0.001) for _ in range(5)]
    kept = keeper(*lines)
    mark = kept.mark()
    for line in lines:
        line.after(segments=18, repeated=5)
    assert kept.lacks(mark) and kept.loses(mark)
    lines[0].after(latest=0.3)
    assert kept.loses(mark), "this one is behind a narrow link of its own"
    lines[1].after(latest=0.2)
    assert not kept.loses(mark)
    lines[1].after(shortest=0.15)
    assert kept.loses(mark), "this one is far away"


def test_of_a_session_that_has_ended_nobody_knows():
    line = Line()
    kept = keeper(line)
    mark = kept.mark()
    assert not kept.lacks(mark) and not kept.loses(mark)
    kept._sessions.clear()
    assert kept.lacks(mark) and kept.loses(mark)
    assert not kept.lacks({}) and not kept.loses({})


@pytest.mark.parametrize(("arrived", "least", "most"), [(0, 0, 0), (1, 3, 40), (15, 220, 300), (29, 500, 500)])
def test_of_the_sessions_of_all_nodes_as_many_give_way_as_members_have_come(arrived, least, most):
    """In a cluster of 30, played 500 times."""
    rng = random.Random(7)
    gave_way = 0
    for _ in range(500):
        lines = [Line(), Line(), Line()]
        kept = keeper(*lines)
        kept._peers = lambda: [("10.0.0.1", port) for port in range(29)]
        kept._rng = rng
        kept._sessions = dict.fromkeys(lines, 1000.0)
        kept.make_room(arrived)
        gave_way += list(kept._sessions.values()).count(0.0)
        assert len(kept._sessions) == 3
    assert least <= gave_way <= most


def test_who_has_too_few_sessions_keeps_them_all():
    line = Line()
    kept = keeper(line)
    kept._peers = lambda: [("10.0.0.1", 1)]
    kept._sessions = {line: 1000.0}
    kept.make_room(1)
    assert kept._sessions == {line: 1000.0}
