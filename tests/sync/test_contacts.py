"""What is remembered of each peer."""

from __future__ import annotations

from basefs.sync.contacts import Contact, Contacts
from basefs.sync.result import Counters, Reason, Result

PEER = ("10.0.0.1", 1)


def ended(reason=Reason.COMPLETE, *, equal=True, stood=False, sent=0, received=0):
    return Result(reason, "why", equal, Counters(bytes_sent=sent, bytes_received=received), stood=stood)


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


def test_when_they_were_equal_is_remembered_while_they_differ():
    contacts = Contacts()
    contacts.ended(PEER, ended(), 5.0)
    contacts.ended(PEER, ended(equal=False), 9.0)
    assert (contacts.get(PEER).compared_at, contacts.get(PEER).equal_at) == (9.0, 5.0)
