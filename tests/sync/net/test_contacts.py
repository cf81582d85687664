"""What is remembered of each peer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from basefs.log.interface import Digest
from basefs.sync.net.peers import FRESH_SECONDS, FULL_SECONDS, ON_THE_WAY_SECONDS, Contact, Contacts, Lag, LogPast
from basefs.sync.session.result import Reason, Result, SessionCounters

PEER = ("10.0.0.1", 1)


def ended(reason=Reason.COMPLETE, *, equal=True, stood=False, sent=0, received=0):
    return Result(reason, "why", equal, SessionCounters(bytes_sent=sent, bytes_received=received), stood=stood)


def test_an_unknown_peer_has_no_past():
    assert Contacts().get(PEER) == Contact()


def test_bytes_add_up():
    contacts = Contacts()
    contacts.ended(PEER, ended(equal=False, sent=10, received=1), 5.0)
    contacts.ended(PEER, ended(stood=True, sent=20, received=2), 7.0)
    assert contacts.get(PEER) == Contact(30, 3)


def test_trouble_is_remembered_until_a_session_goes_well():
    contacts = Contacts()
    contacts.ended(PEER, ended(), 5.0)
    contacts.ended(PEER, ended(Reason.LOST), 6.0)
    assert contacts.get(PEER).trouble == "connection lost: why"
    contacts.ended(PEER, ended(), 7.0)
    assert contacts.get(PEER).trouble == ""


def test_a_full_disk_is_no_trouble_of_a_session_and_lasts_until_the_peer_says_so():
    contacts = Contacts()
    contacts.ended(PEER, replace(ended(Reason.FULL), by_peer=True), 6.0)
    contacts.ended(PEER, ended(), 7.0)
    assert (contacts.get(PEER).full_at, contacts.get(PEER).trouble) == (6.0, "")
    contacts.has_room(PEER, False, 8.0)
    assert contacts.get(PEER).full_at == 8.0
    contacts.has_room(PEER, True, 9.0)
    assert contacts.get(PEER).full_at is None
    contacts.ended(PEER, ended(Reason.FULL), 10.0)
    assert contacts.get(PEER).full_at is None, "the disk of this node is full"


def test_a_peer_with_a_full_disk_is_left_alone_for_a_while_once_it_has_nothing_more():
    here = Here()
    contacts, log = here.contacts, Digest(ELSEWHERE, 130)
    here.told(log, 10.0)
    contacts.has_room(PEER, False, 10.0)
    assert not contacts.only_lacks(PEER, 10.0), "it has something"
    contacts.ended(PEER, ended(Reason.ENOUGH), 11.0)
    assert not contacts.only_lacks(PEER, 11.0), "nothing was compared"
    contacts.ended(PEER, ended(equal=False), 12.0)
    assert contacts.only_lacks(PEER, 12.0), "all was compared"
    assert not contacts.only_lacks(PEER, 10.0 + FULL_SECONDS)
    here.told(log._replace(entries=131), 13.0)
    assert not contacts.only_lacks(PEER, 13.0), "there is more"
    here.grows(14.0)
    here.told(OURS, 14.0)
    assert contacts.only_lacks(PEER, 14.0), "a log that was here"
    contacts.has_room(PEER, True, 15.0)
    assert not contacts.only_lacks(PEER, 15.0)


def test_trouble_is_over_when_the_peer_is_heard_again():
    # A session that follows may last for hours, and nothing else is told of it before it ends.
    contacts = Contacts()
    contacts.ended(PEER, ended(Reason.UNREACHABLE), 6.0)
    assert contacts.get(PEER).away
    contacts.told(PEER, Digest(b"p" * 28, 7), OURS, 7.0)
    assert contacts.get(PEER).trouble == "" and not contacts.get(PEER).away


def test_an_answer_does_not_end_the_trouble_of_a_peer_that_fails_behind_its_greeting():
    contacts = Contacts()
    contacts.ended(PEER, ended(Reason.RUBBISH), 6.0)
    contacts.told(PEER, Digest(b"p" * 28, 7), OURS, 7.0, asked_at=6.5)
    contacts.ended(PEER, ended(Reason.ENOUGH), 7.0)
    assert contacts.get(PEER).trouble == "rubbish: why"
    contacts.ended(PEER, ended(), 8.0)
    assert contacts.get(PEER).trouble == ""


@pytest.mark.parametrize(
    ("reason", "by_peer", "trouble", "away"),
    [
        (Reason.UNREACHABLE, False, "why", True),
        (Reason.LOST, False, "connection lost: why", True),
        (Reason.TIMEOUT, False, "time-out: why", True),
        (Reason.RUBBISH, False, "rubbish: why", False),
        (Reason.BANNED, True, "it turned this node away: banned: why", False),
        (Reason.ENOUGH, True, "", False),
        (Reason.BUSY, True, "it turned this node away: busy: why", False),
    ],
)
def test_trouble_tells_whose_word_it_is_and_whether_anything_was_heard(reason, by_peer, trouble, away):
    contacts = Contacts()
    contacts.ended(PEER, replace(ended(reason), by_peer=by_peer), 6.0)
    found = contacts.get(PEER)
    assert (found.trouble, found.away, found.refuses) == (trouble, away, bool(trouble) and by_peer)
    contacts.ended(PEER, ended(), 7.0)
    found = contacts.get(PEER)
    assert (found.trouble, found.away, found.refuses) == ("", False, False)


# How far we are apart

OURS = Digest(b"o" * 28, 100)
LATER = Digest(b"l" * 28, 120)
ELSEWHERE = b"p" * 28


class Here:
    """A node whose log was `OURS` from second 0 on."""

    def __init__(self):
        self.contacts = Contacts()
        self.contacts.past.note(OURS, 0.0)
        self.log = OURS

    def grows(self, now):
        self.log = LATER
        self.contacts.past.note(LATER, now)

    def told(self, log, now, asked_at=None):
        self.contacts.told(PEER, log, self.log, now, asked_at)

    def lag(self, now):
        return self.contacts.lag(PEER, self.log, now)


def test_a_peer_that_has_told_nothing_has_no_lag():
    assert Here().lag(1.0) is None


def test_in_step_is_a_peer_that_answered_a_moment_ago():
    here = Here()
    here.told(OURS, 10.2, asked_at=10.0)
    assert here.lag(10.0 + FRESH_SECONDS) == Lag(in_step=True)
    assert here.lag(10.1 + FRESH_SECONDS) == Lag(), "it may have written something since"


def test_what_was_not_asked_for_may_be_old():
    here = Here()
    here.told(OURS, 10.0)
    assert here.lag(10.0) == Lag()


def test_entries_are_on_their_way_for_a_moment_only():
    here = Here()
    here.told(OURS, 10.0, asked_at=10.0)
    here.grows(10.1)
    assert here.lag(10.1 + ON_THE_WAY_SECONDS) == Lag(in_step=True)
    assert here.lag(11.5) == Lag(behind=20, since=pytest.approx(1.4))
    here.told(OURS, 60.0, asked_at=60.0)
    assert here.lag(60.0) == Lag(behind=20, since=pytest.approx(49.9)), "since the first of them was here"


def test_what_a_peer_had_when_it_was_asked_counts_when_it_is_here():
    here = Here()
    here.told(LATER, 10.0, asked_at=10.0)
    assert here.lag(10.0) == Lag(ahead=20, since=0.0)
    assert here.lag(10.5) == Lag(ahead=20, since=0.5)
    here.grows(11.0)
    assert here.lag(11.0) == Lag(in_step=True)


def test_a_later_word_does_not_hide_what_it_had_when_it_was_asked():
    here = Here()
    here.told(Digest(ELSEWHERE, 130), 10.0, asked_at=10.0)
    here.told(OURS, 10.1)
    assert here.lag(10.1) == Lag(), "that word was long on its way"


def test_a_peer_where_contents_wait_is_not_in_step_from_then_on():
    here = Here()
    here.told(OURS._replace(waiting=2, missing=2), 10.0, asked_at=10.0)
    here.told(OURS._replace(waiting=3, missing=3), 15.0, asked_at=15.0)
    assert here.lag(15.0) == Lag(missing=3, waiting=3, since=5.0)
    here.grows(16.0)
    assert here.lag(16.5) == Lag(behind=20, missing=3, waiting=3, since=0.5)
    here.told(LATER, 17.0, asked_at=17.0)
    assert here.lag(17.0) == Lag(in_step=True)
    here.told(LATER._replace(waiting=1, missing=1), 18.0, asked_at=18.0)
    assert here.lag(19.0) == Lag(missing=1, waiting=1, since=1.0)


def test_a_peer_where_contents_are_missing_is_not_in_step():
    here = Here()
    here.told(OURS._replace(missing=2), 10.0, asked_at=10.0)
    here.told(OURS._replace(missing=1), 15.0, asked_at=15.0)
    assert here.lag(15.0) == Lag(missing=1, since=5.0)
    here.told(OURS, 16.0, asked_at=16.0)
    assert here.lag(16.0) == Lag(in_step=True)


def test_a_node_where_contents_wait_compares_its_entries_alone():
    here = Here()
    here.log = OURS._replace(waiting=2, missing=2)
    here.told(OURS, 10.0, asked_at=10.0)
    assert here.lag(10.0) == Lag(incomplete=True), "the peer has all that is here, and more"
    here.grows(11.0)
    assert here.lag(12.5) == Lag(behind=20, since=1.5)


LOST = {"missing": 2, "lacks": b"x" * 28}


def test_nodes_that_lack_the_same_contents_are_in_step():
    here = Here()
    here.log = OURS._replace(**LOST)
    here.told(OURS._replace(**LOST), 10.0, asked_at=10.0)
    assert here.lag(10.0) == Lag(in_step=True)
    assert here.lag(10.1 + FRESH_SECONDS) == Lag(), "it may have received them since"


@pytest.mark.parametrize("theirs", [{"missing": 2, "lacks": b"y" * 28}, {**LOST, "missing": 3}, {"missing": 2}])
def test_nodes_that_may_lack_different_contents_are_not_in_step(theirs):
    here = Here()
    here.log = OURS._replace(**LOST)
    here.told(OURS._replace(**theirs), 10.0, asked_at=10.0)
    assert here.lag(12.0) == Lag(missing=theirs["missing"], since=2.0)
    here.log = OURS._replace(missing=2)
    assert not here.lag(10.0).in_step, "it is not known here yet which they are"


def test_a_later_word_does_not_hide_the_contents_that_a_peer_had_when_it_was_asked():
    here = Here()
    here.log = OURS._replace(**LOST)
    here.told(OURS, 10.0, asked_at=10.0)
    here.told(OURS._replace(**LOST), 10.1)
    assert here.lag(10.1) == Lag(incomplete=True), "that word was long on its way"


def test_equal_trees_are_not_equal_logs():
    here = Here()
    for entries, lag in ((99, Lag(behind=1, since=0.0)), (101, Lag(ahead=1, since=0.0))):
        here.told(Digest(OURS.root, entries), 10.0, asked_at=10.0)
        assert here.lag(10.0) == lag


def test_apart_is_counted_from_the_first_log_that_was_never_here():
    here = Here()
    for second in (10.0, 20.0):
        here.told(Digest(ELSEWHERE, 100 + int(second)), second, asked_at=second)
    assert here.lag(25.0) == Lag(ahead=20, since=15.0)
    here.told(OURS, 30.0, asked_at=30.0)
    here.told(Digest(ELSEWHERE, 100), 40.0, asked_at=40.0)
    assert here.lag(45.0) == Lag(since=5.0), "as many and others"


def test_a_log_that_is_forgotten_is_one_that_never_was():
    past = LogPast(most=2)
    for number in range(4):
        past.note(Digest(b"%28d" % number, number), float(number))
    assert [past.left(Digest(b"%28d" % number, number)) for number in range(4)] == [None, 2.0, 3.0, None]
