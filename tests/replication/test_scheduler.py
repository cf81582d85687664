"""Which peer to have a session with next, why, and not before when: played in virtual time."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.replication.scheduler import PullLimits, PullScheduler, Why
from basefs.sync.session.inflight import CONTENTS_SECONDS
from basefs.sync.session.result import Reason, Result, SessionCounters
from basefs.sync.session.states import Phase

PULLS = PullLimits()

PEERS = [(f"10.0.0.{number}", 1) for number in range(1, 7)]
ONE, TWO, THREE, FOUR, FIVE, SIX = PEERS
#: When a gap that is told of at zero may be fetched.
START = PULLS.gap_jitter


class Node:
    """A scheduler in virtual time, and what its sessions know.

    Attributes:
        begun: the pulls so far, with the time of each.
    """

    def __init__(self, peers=PEERS, **options):
        self.now = 0.0
        self.peers = list(peers)
        self.bans = set()
        self.equal = set()
        self.lacks = []
        self.wants_more = self.exchanges = False
        self.blocks = 0
        self.asked_for_blocks = set()
        self.standing = []
        self.degree = 0
        self.begun = []
        self.scheduler = PullScheduler(lambda: self.peers, random.Random(1), **options)
        self.scheduler.start(0.0)

    def avoids(self, peer):
        return peer in self.bans

    def differs(self, peer):
        return peer not in self.equal

    def missing(self):
        return list(self.lacks)

    def brings_blocks(self, peer):
        return peer in self.asked_for_blocks

    def vacancies(self):
        return self.degree - len(self.standing)

    def until(self, time):
        """Let time pass; returns the pulls that begin meanwhile."""
        before = len(self.begun)
        while (due := self.scheduler.due) is not None and due <= time:
            self.now = max(self.now, due)
            while (pull := self.scheduler.next(self.now, self)) is not None:
                self.begun.append((self.now, pull))
        self.now = time
        return [pull for _, pull in self.begun[before:]]

    def peers_until(self, time):
        return [pull.peer for pull in self.until(time)]

    def ends(self, pull):
        self.scheduler.ended(pull, self.now, self)

    def ended(self, peer, reason=Reason.COMPLETE, blocks=0):
        counters = SessionCounters(blocks_received=blocks)
        self.scheduler.result(peer, Result(reason, "", False, counters), self.now, self)

    def news(self, peer, jitter=0.0):
        return self.scheduler.news(peer, "news", self.now, jitter)

    def gap(self, peer):
        self.scheduler.gap(peer, self.now)

    def progress(self, peer, phase):
        return self.scheduler.progress(peer, phase, self.now, self)


# News


def test_news_is_fetched_at_once_and_with_jitter_a_little_later():
    node = Node()
    node.news(ONE)
    (pull,) = node.until(0.0)
    assert (pull.peer, pull.why, pull.text) == (ONE, Why.NEWS, "news")
    node.news(TWO, jitter=1.0)
    assert node.until(0.0) == []
    assert node.peers_until(1.0) == [TWO]


def test_a_peer_in_the_queue_is_asked_once_and_one_that_is_being_asked_once_more():
    node = Node()
    for _ in range(10):
        node.news(ONE)
    (pull,) = node.until(0.0)
    for _ in range(10):
        node.news(ONE)
    assert node.until(100.0) == []
    node.ends(pull)
    (again,) = node.until(100.0)
    node.ends(again)
    assert again.peer == ONE and node.until(200.0) == []


def test_only_so_many_sessions_run_at_once():
    node = Node()
    for peer in PEERS:
        node.news(peer)
    first = node.until(10.0)
    assert len(first) == PULLS.sessions
    node.gap(SIX)
    assert node.until(20.0) == []
    node.ends(first[0])
    assert len(node.until(20.0)) == 1


def test_the_queue_is_bounded():
    node = Node()
    queued = [node.news(("10.0.1.1", port), jitter=1000.0) for port in range(1, 2 * PULLS.queued)]
    assert queued.count(True) <= PULLS.queued and queued[-1] is False
    assert node.news(("10.0.1.1", 1)), "it is in the queue"


def test_a_banned_peer_is_not_visited():
    node = Node(interval=5.0)
    node.bans = {ONE, TWO}
    node.degree = 3
    node.news(ONE)
    node.gap(TWO)
    node.lacks = [b"block"]
    node.ended(THREE, blocks=1)
    for _ in range(50):
        for pull in node.until(node.now + 1.0):
            assert pull.peer not in node.bans
            node.ends(pull)


# Gaps


def test_what_is_on_its_way_has_a_moment():
    node = Node()
    node.gap(ONE)
    assert node.until(0.0) == []
    assert node.peers_until(START) == [ONE]
    assert 0.0 < node.begun[0][0] < PULLS.gap_jitter


def test_no_gap_is_fetched_while_news_comes_in():
    node = Node()
    node.gap(ONE)
    node.scheduler.arrived(PULLS.burst_entries + 1, 0.2)
    assert node.until(0.2 + PULLS.quiet - 0.01) == [], "what is missing may be on its way"
    assert node.peers_until(0.2 + PULLS.quiet) == [ONE]


@pytest.mark.parametrize(("entries", "latest"), [(1, PULLS.quiet), (PULLS.burst_entries + 1, PULLS.latest_in_burst)])
def test_news_that_never_ends_keeps_nobody_from_fetching(entries, latest):
    node = Node()
    node.gap(ONE)
    node.gap(TWO)
    while node.now < 5 * latest:
        node.scheduler.arrived(entries, node.now)
        for pull in node.until(node.now + PULLS.quiet / 4):
            node.ends(pull)
            node.gap(pull.peer)
    asked = [time for time, _ in node.begun]
    assert asked[0] == pytest.approx(latest, abs=PULLS.quiet / 2)
    assert 4 <= len(asked) <= 6


def test_one_gap_at_a_time_and_only_what_is_still_missing():
    node = Node()
    for peer in (ONE, TWO, THREE):
        node.gap(peer)
    (first,) = node.until(1.0)
    node.ends(first)
    node.equal = set(PEERS)
    assert node.until(100.0) == [], "it brought everything"


def test_a_session_in_which_nothing_moves_is_not_waited_for():
    node = Node()
    node.gap(ONE)
    node.gap(TWO)
    (first,) = node.until(1.0)
    node.progress(first.peer, Phase.COMPARING)
    assert node.until(1.0 + PULLS.gap_patience - 0.01) == []
    (second,) = node.until(1.0 + PULLS.gap_patience)
    assert {first.peer, second.peer} == {ONE, TWO}


def test_contents_that_take_long_keep_nobody_else_waiting():
    node = Node()
    node.gap(ONE)
    node.gap(TWO)
    (first,) = node.until(START)
    while node.now < 60.0:
        node.progress(first.peer, Phase.CONTENTS)
        if second := node.until(node.now + 0.5):
            break
    assert {first.peer, second[0].peer} == {ONE, TWO}
    assert node.begun[1][0] == pytest.approx(node.begun[0][0] + CONTENTS_SECONDS + PULLS.gap_patience, abs=0.6)


def test_a_peer_that_lets_us_wait_is_left_for_another_one():
    node = Node()
    node.gap(ONE)
    node.gap(TWO)
    (first,) = node.until(START)
    assert node.progress(first.peer, Phase.WAITING) == []
    (second,) = node.until(START)
    assert node.progress(second.peer, Phase.COMPARING) == [first.peer], "superfluous once the other one sends"
    node.ends(first)
    assert node.progress(second.peer, Phase.COMPARING) == []


def test_a_session_for_another_reason_changes_nothing():
    node = Node()
    node.news(THREE)
    node.until(0.0)
    node.progress(THREE, Phase.COMPARING)
    node.gap(ONE)
    assert node.peers_until(START) == [ONE]


def test_a_peer_that_tells_again_is_asked_again():
    node = Node()
    node.gap(ONE)
    (first,) = node.until(START)
    node.gap(ONE)
    assert node.until(100.0) == [], "not while it is being asked"
    node.ends(first)
    assert node.peers_until(100.0) == [ONE]


# The rest of a content


def test_one_after_the_other_is_asked_for_a_content_and_not_for_ever():
    node = Node()
    node.lacks = [b"block"]
    node.ended(ONE, blocks=1)
    asked = []
    for _ in range(100):
        for pull in node.until(node.now + 1.0):
            assert pull.why is Why.CONTENT
            asked.append(pull.peer)
            node.ends(pull)
    assert len(asked) == PULLS.content_tries
    assert all(one != two for one, two in itertools.pairwise(asked)), "nobody twice in succession"
    assert [time for time, _ in node.begun][1] >= 3 * PULLS.content_pause, "later each time"
    node.ended(ONE, blocks=1)
    assert node.until(node.now + 100.0) == [], "it brought something else"
    node.lacks = [b"another"]
    node.ended(ONE, blocks=1)
    assert len(node.until(node.now + 1.0)) == 1, "a content has moved on"


def test_many_blocks_later_others_are_asked_again():
    node = Node()
    node.wants_more = True
    node.progress(ONE, Phase.CONTENTS)
    for _ in range(50):
        for pull in node.until(node.now + 1.0):
            node.ends(pull)
    assert len(node.begun) == PULLS.content_tries
    node.blocks = PULLS.moved_on
    node.progress(ONE, Phase.CONTENTS)
    assert len(node.until(node.now + 1.0)) == 1


def test_nobody_is_asked_for_a_content_with_whom_there_is_a_session():
    node = Node(PEERS[:4])
    node.asked_for_blocks = {ONE}
    node.news(TWO)
    node.until(0.0)
    node.news(THREE, jitter=1000.0)
    node.lacks = [b"block"]
    node.progress(TWO, Phase.WAITING)
    assert node.peers_until(1.0) == [FOUR]


def test_a_content_that_has_come_meanwhile_is_not_looked_for():
    node = Node()
    node.lacks = [b"block"]
    node.ended(ONE, blocks=1)
    node.lacks = []
    assert node.until(100.0) == []


# Periodic sessions


def test_periodic_sessions_meet_everybody_the_longest_unmet_first():
    node = Node(interval=5.0)
    met = []
    for _ in range(600):
        for pull in node.until(node.now + 5.0):
            assert pull.why is Why.PERIODIC
            met.append(pull.peer)
            node.ends(pull)
    assert len(met) == 600
    assert all(60 < met.count(peer) < 140 for peer in PEERS)
    again = sum(one == two for one, two in itertools.pairwise(met))
    assert again < 60, "seldom the one that was met last"


def test_periodic_sessions_have_a_probability_and_may_be_off():
    node = Node(interval=5.0, probability=0.5)
    for _ in range(400):
        for pull in node.until(node.now + 5.0):
            node.ends(pull)
    assert 150 < len(node.begun) < 250
    assert Node().until(1000.0) == []


def test_no_periodic_session_while_another_one_brings_something():
    node = Node(interval=5.0)
    node.news(ONE)
    (first,) = node.until(0.0)
    for _ in range(10):
        node.until(node.now + 1.0)
        node.progress(ONE, Phase.COMPARING)
    assert len(node.begun) == 1
    node.ends(first)
    assert len(node.until(node.now + 5.0)) == 1


def test_no_periodic_session_while_neighbours_exchange_blocks():
    node = Node(interval=5.0)
    node.exchanges = True
    assert node.until(CONTENTS_SECONDS) == []
    node.exchanges = False
    assert node.until(CONTENTS_SECONDS + 5.0)


@pytest.mark.parametrize("comes", ["blocks of neighbours", "entries", "contents"])
def test_what_comes_without_end_puts_periodic_sessions_off_for_a_while_only(comes):
    node = Node(interval=5.0)
    node.exchanges = comes == "blocks of neighbours"
    if not node.exchanges:
        node.news(ONE)
        node.until(0.0)
    others = []
    while node.now < 200.0:
        for pull in node.until(node.now + 1.0):
            others.append(pull)
            node.ends(pull)
        if not node.exchanges:
            node.progress(ONE, Phase.COMPARING if comes == "entries" else Phase.CONTENTS)
    assert len(others) >= 200 // (2 * (CONTENTS_SECONDS + 5.0))
    assert all(pull.why is Why.PERIODIC for pull in others)


def test_another_content_is_looked_for_while_neighbours_exchange_one():
    node = Node()
    node.lacks = [b"1"]
    node.news(ONE)
    (first,) = node.until(0.0)
    node.exchanges = True
    node.ended(ONE, blocks=1)
    node.ends(first)
    assert [pull.why for pull in node.until(1.0)] == [Why.CONTENT]


# Lost peers


def test_a_lost_peer_is_tried_soon_and_then_less_often():
    node = Node()
    node.scheduler.lost(ONE, 0.0)
    times = []
    for _ in range(10):
        (pull,) = node.until(node.now + PULLS.lost_longest)
        assert pull.why is Why.LOST
        times.append(node.begun[-1][0])
        node.now = times[-1]
        node.ends(pull)
        node.scheduler.lost(ONE, node.now)
    waits = [later - earlier for earlier, later in itertools.pairwise([0.0, *times])]
    assert waits[0] == pytest.approx(PULLS.lost_first) and waits[-1] == pytest.approx(PULLS.lost_longest)
    assert waits == sorted(waits)


def test_an_attempt_that_nobody_reports_is_made_again():
    node = Node()
    node.scheduler.lost(ONE, 0.0)
    assert node.peers_until(PULLS.lost_first) == [ONE]
    assert node.peers_until(PULLS.lost_first + 4 * PULLS.lost_longest) == [ONE]


def test_lost_peers_take_no_places_of_sessions():
    node = Node()
    for number in range(2 * PULLS.sessions):
        node.scheduler.lost(("10.0.1.1", number), 0.0)
    assert len(node.until(PULLS.lost_first)) == 2 * PULLS.sessions
    node.news(ONE)
    assert node.peers_until(PULLS.lost_first) == [ONE]


def test_a_peer_that_is_back_is_forgotten():
    node = Node()
    node.scheduler.lost(ONE, 0.0)
    assert node.scheduler.is_lost(ONE)
    assert node.scheduler.found(ONE) and not node.scheduler.found(ONE)
    assert node.until(1000.0) == []


def test_only_so_many_are_tried_those_that_were_lost_last():
    node = Node()
    addresses = [("10.0.0.1", 1000 + number) for number in range(PULLS.lost + 5)]
    for address in addresses:
        node.scheduler.lost(address, 0.0)
    assert node.peers_until(PULLS.lost_first) == addresses[5:]


# Neighbours


def test_as_many_neighbours_as_are_missing_and_each_once():
    node = Node()
    node.degree = 3
    pulls = node.until(0.0)
    assert len({pull.peer for pull in pulls}) == 3 and {pull.why for pull in pulls} == {Why.NEIGHBOUR}
    node.standing = [pull.peer for pull in pulls]
    assert node.until(100.0) == []
    node.standing.pop()
    node.ends(pulls[-1])
    (other,) = node.until(101.0)
    assert other.peer not in node.standing and other.peer != pulls[-1].peer


def test_a_peer_that_does_not_want_to_be_a_neighbour_is_asked_again_later():
    node = Node([ONE])
    node.degree = 1
    for _ in range(200):
        for pull in node.until(node.now + 0.5):
            node.ends(pull)
    assert 100 / PULLS.refused <= len(node.begun) <= 60


def test_neighbours_take_no_places_of_sessions():
    node = Node()
    node.degree = 3
    node.until(0.0)
    for peer in PEERS:
        node.news(peer)
    assert len(node.until(0.0)) == PULLS.sessions


def test_a_list_of_peers_that_cannot_be_had_ends_nothing():
    node = Node(interval=5.0)
    node.peers = None
    with pytest.raises(TypeError):
        node.until(5.0)
    node.peers = [ONE]
    assert node.peers_until(10.0) == [ONE]


# All of them together


@given(st.integers(0, 10_000))
def test_whatever_happens_the_limit_holds_no_peer_has_two_sessions_and_all_news_is_fetched(seed):
    rng = random.Random(seed)
    node = Node(interval=5.0)
    node.degree = 2
    running = []
    owed = set()
    for _ in range(200):
        peer = rng.choice(PEERS)
        happening = rng.randrange(9)
        if happening == 0:
            node.gap(peer)
        elif happening == 1:
            owed.add(peer)
            node.news(peer, rng.random())
        elif happening == 2:
            node.scheduler.lost(peer, node.now)
        elif happening == 3:
            node.scheduler.found(peer)
        elif happening == 4:
            node.lacks = [rng.randbytes(4)]
            node.ended(peer, blocks=1)
        elif happening == 5:
            node.progress(peer, rng.choice(list(Phase)))
        elif happening == 6:
            node.scheduler.arrived(rng.randrange(40), node.now)
        elif running:
            node.ends(running.pop(rng.randrange(len(running))))
        running += node.until(node.now + rng.random())
        comparing = [pull.peer for pull in running if pull.why not in (Why.LOST, Why.NEIGHBOUR)]
        assert len(comparing) == len(set(comparing)) <= PULLS.sessions
        owed -= {pull.peer for pull in running if pull.why is Why.NEWS}
    for _ in range(100):
        while running:
            node.ends(running.pop())
        running = node.until(node.now + 1.0)
        owed -= {pull.peer for pull in running if pull.why is Why.NEWS}
    assert not owed
