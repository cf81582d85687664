"""Parties: what counts as one peer."""

from __future__ import annotations

from basefs.sync.net.parties import Parties, prefixes_of


def test_places() -> None:
    assert prefixes_of("10.0.0.1") == prefixes_of("::ffff:10.0.0.1") != prefixes_of("10.0.0.2")
    assert prefixes_of("10.0.0.1")[1] == prefixes_of("10.0.0.2")[1] != prefixes_of("10.0.1.1")[1]
    assert prefixes_of("2001:db8::1") == prefixes_of("2001:db8::ffff:1") != prefixes_of("2001:db8:0:1::1")
    assert prefixes_of("2001:db8::1")[1] == prefixes_of("2001:db8:0:1::1")[1] != prefixes_of("2001:db8:1::1")[1]
    assert prefixes_of("fe80::1%eth0") == prefixes_of("fe80::2")
    assert prefixes_of("?") == (b"?", b"?")


def test_a_proved_key_is_a_party_wherever_it_is() -> None:
    assert Parties().of("10.0.0.1", b"a") == Parties().of("10.0.0.2", b"a") != Parties().of("10.0.0.1", b"b")


def test_the_keys_of_the_root_come_first_and_all_others_share() -> None:
    parties = Parties()
    assert parties.comes_first(parties.of("10.0.0.1", b"b")), "nobody has said who does"
    parties.prefer(frozenset((b"a",)))
    one, other, third = (parties.of("10.0.0.1", key) for key in (b"a", b"b", b"c"))
    assert len({one, other, third}) == 3
    assert parties.comes_first(one) and not parties.comes_first(other)
    assert parties.sharing("10.0.0.1", b"a") == one
    assert parties.sharing("10.0.0.1", b"b") == parties.sharing("10.0.0.2", b"c") not in (one, other, third)
    assert parties.sharing("10.0.0.1", b"") == parties.of("10.0.0.1", b"")
    assert parties.answering(("10.0.0.2", 1), b"b") == other, "a ban is for a key alone"


def test_without_a_key_each_endpoint_is_answered_by_a_party_of_its_own() -> None:
    parties = Parties()
    assert (
        parties.answering(("10.0.0.1", 1), b"")
        != parties.answering(("10.0.0.1", 2), b"")
        != parties.of("10.0.0.1", b"")
    )


def test_without_a_key_a_machine_a_machine_is_one_party_whichever_of_its_addresses_it_uses() -> None:
    assert Parties().of("2001:db8::1", b"") == Parties().of("2001:db8::2", b"") != Parties().of("2001:db8:0:1::1", b"")
    assert Parties().of("10.0.0.1", b"") == Parties().of("::ffff:10.0.0.1", b"") != Parties().of("10.0.0.2", b"")
