"""What is remembered of each peer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from basefs.log.interface import Digest
from basefs.sync.net.peers import Contact, Contacts, Lag
from basefs.sync.session.result import Reason, Result, SessionCounters

PEER = ("10.0.0.1", 1)


def ended(reason=Reason.COMPLETE, *, equal=True, stood=False, sent=0, received=0):
    return Result(reason, "why", equal, SessionCounters(bytes_sent=sent, bytes_received=received), stood=stood)


def test_an_unknown_peer_has_no_past():
    assert Contacts().get(PEER) == Contact()


def test_bytes_add_up_and_the_last_comparison_counts():
    contacts = Contacts()
    contacts.ended(PEER, ended(equal=False, sent=10, received=1), 5.0)
    contacts.ended(PEER, ended(equal=True, sent=20, received=2), 7.0)
    assert contacts.get(PEER) == Contact(7.0, True, 30, 3, "", equal_at=7.0)


def test_a_session_that_stood_compared_nothing_when_it_ended():
    contacts = Contacts()
    contacts.ended(PEER, ended(), 5.0)
    contacts.ended(PEER, ended(equal=False, stood=True, sent=100), 500.0)
    assert contacts.get(PEER) == Contact(5.0, True, 100, 0, "", equal_at=5.0)


def test_trouble_is_remembered_until_a_session_goes_well():
    contacts = Contacts()
    contacts.ended(PEER, ended(), 5.0)
    contacts.ended(PEER, ended(Reason.LOST), 6.0)
    assert contacts.get(PEER).trouble == "connection lost: why"
    assert contacts.get(PEER).compared_at == 5.0
    contacts.ended(PEER, ended(), 7.0)
    assert contacts.get(PEER).trouble == ""


def test_trouble_is_over_when_the_peer_is_heard_again():
    # A session that follows may last for hours, and nothing else is told of it before it ends.
    contacts = Contacts()
    contacts.ended(PEER, ended(Reason.UNREACHABLE), 6.0)
    assert contacts.get(PEER).away
    contacts.told(PEER, Digest(b"p" * 28, 7), OURS)
    assert contacts.get(PEER).trouble == "" and not contacts.get(PEER).away


@pytest.mark.parametrize(
    ("reason", "by_peer", "trouble", "away"),
    [
        (Reason.UNREACHABLE, False, "why", True),
        (Reason.LOST, False, "connection lost: why", True),
        (Reason.TIMEOUT, False, "time-out: why", True),
        (Reason.RUBBISH, False, "rubbish: why", False),
        (Reason.BANNED, True, "it turned this node away: banned: why", False),
        (Reason.BUSY, True, "it turned this node away: busy: why", False),
    ],
)
def test_trouble_tells_whose_word_it_is_and_whether_anything_was_heard(reason, by_peer, trouble, away):
    contacts = Contacts()
    contacts.ended(PEER, replace(ended(reason), by_peer=by_peer), 6.0)
    found = contacts.get(PEER)
    assert (found.trouble, found.away) == (trouble, away)
    contacts.ended(PEER, ended(), 7.0)
    assert (contacts.get(PEER).trouble, contacts.get(PEER).away) == ("", False)


def test_when_they_were_equal_is_remembered_while_they_differ():
    contacts = Contacts()
    contacts.ended(PEER, ended(), 5.0)
    contacts.ended(PEER, ended(equal=False), 9.0)
    assert (contacts.get(PEER).compared_at, contacts.get(PEER).equal_at) == (9.0, 5.0)


# How far we are apart

OURS = Digest(b"o" * 28, 100)
LATER = Digest(b"l" * 28, 120)


def told(entries, root=b"p" * 28, ours=OURS):
    contacts = Contacts()
    contacts.told(PEER, Digest(root, entries), ours)
    return contacts.get(PEER)


def test_who_has_told_nothing_has_no_lag():
    assert Contact().lag(OURS, away=False) is None
    assert Contact().lag(OURS, away=True) is None


def test_numbers_of_entries_tell_who_lacks_something():
    assert told(70).lag(OURS, away=False) == Lag(behind=30, differs=True)
    assert told(130).lag(OURS, away=False) == Lag(ahead=30, differs=True)
    assert told(100).lag(OURS, away=False) == Lag(differs=True)
    assert told(100, OURS.root).lag(OURS, away=False) == Lag()


def test_equal_trees_are_no_lag_whatever_is_arriving():
    for entries in (99, 101):
        assert told(entries, OURS.root).lag(OURS, away=False) == Lag()
        assert told(entries, OURS.root).lag(LATER, away=False) == Lag()


def test_what_came_here_since_then_is_no_longer_lacking_here():
    assert told(130).lag(LATER, away=False) == Lag(ahead=10, differs=True)
    assert told(110).lag(LATER, away=False) == Lag(), "as many are here: whether they are the same is not known"
    assert told(120, LATER.root).lag(LATER, away=False) == Lag()


def test_what_came_here_since_then_reached_who_can_be_reached():
    assert told(100, OURS.root).lag(LATER, away=False) == Lag()
    assert told(100, OURS.root).lag(LATER, away=True) == Lag(behind=20, differs=True)
    assert told(70).lag(LATER, away=False) == Lag(behind=30, differs=True)
    assert told(70).lag(LATER, away=True) == Lag(behind=50, differs=True)


def test_the_last_word_counts_and_bytes_stay():
    contacts = Contacts()
    contacts.ended(PEER, ended(sent=10), 5.0)
    contacts.told(PEER, Digest(b"p" * 28, 70), OURS)
    contacts.told(PEER, OURS, OURS)
    assert contacts.get(PEER).lag(OURS, away=False) == Lag()
    assert contacts.get(PEER).sent == 10
