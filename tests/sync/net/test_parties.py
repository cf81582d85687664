"""Parties: what counts as one peer."""

from __future__ import annotations

from basefs.sync.net.parties import party, prefixes_of


def test_places() -> None:
    assert prefixes_of("10.0.0.1") == prefixes_of("::ffff:10.0.0.1") != prefixes_of("10.0.0.2")
    assert prefixes_of("10.0.0.1")[1] == prefixes_of("10.0.0.2")[1] != prefixes_of("10.0.1.1")[1]
    assert prefixes_of("2001:db8::1") == prefixes_of("2001:db8::ffff:1") != prefixes_of("2001:db8:0:1::1")
    assert prefixes_of("2001:db8::1")[1] == prefixes_of("2001:db8:0:1::1")[1] != prefixes_of("2001:db8:1::1")[1]
    assert prefixes_of("fe80::1%eth0") == prefixes_of("fe80::2")
    assert prefixes_of("?") == (b"?", b"?")


def test_a_proved_key_is_a_party_wherever_it_is() -> None:
    assert party("10.0.0.1", b"a") == party("10.0.0.2", b"a") != party("10.0.0.1", b"b")


def test_without_a_key_a_machine_is_one_party_whichever_of_its_addresses_it_uses() -> None:
    assert party("2001:db8::1", b"") == party("2001:db8::2", b"") != party("2001:db8:0:1::1", b"")
    assert party("10.0.0.1", b"") == party("::ffff:10.0.0.1", b"") != party("10.0.0.2", b"")
