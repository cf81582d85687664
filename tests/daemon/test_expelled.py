"""Which machines are forgotten: those whose keys were revoked, and no other one that has their address by now."""

from __future__ import annotations

import pytest

from basefs.daemon.network import Expelled, key_tag
from basefs.gossip.events import Address
from basefs.gossip.members import TAG_KEY, Member, Peer
from tests.support.helpers import ALICE, BOB

#: Bob was expelled here.
PLACE = Address("10.0.0.2", 18375)


def expelled_at(address: Address) -> bytes:
    return BOB.public if address == PLACE else b""


def machine(name: str, status: str, tag: str = "", host: str = PLACE.host) -> tuple[Member, Peer]:
    """As Serf lists it; without a tag where it has not met it since its start."""
    tags = {TAG_KEY: tag} if tag else {}
    return Member(name, host, 18374, tags, status), Peer(name, host, 18374, PLACE.port, status)


def lost(expelled: Expelled, *machines: tuple[Member, Peer]) -> list[str]:
    members, peers = [member for member, _ in machines], [peer for _, peer in machines]
    return [peer.name for peer in expelled.lost(members, peers, expelled_at)]


@pytest.mark.parametrize("tag", ["", key_tag(BOB.public)])
def test_an_expelled_machine_is_lost_once_it_has_failed(tag: str) -> None:
    expelled = Expelled()
    assert lost(expelled, machine("bob", "alive", tag)) == []
    assert lost(expelled, machine("bob", "failed", tag)) == ["bob"]
    assert lost(expelled, machine("bob", "failed", tag, host="10.0.0.3")) == []


def test_another_machine_at_its_address_is_kept_also_when_serf_has_started_anew() -> None:
    expelled = Expelled()
    new = key_tag(ALICE.public)
    assert lost(expelled, machine("bob", "failed"), machine("alice", "alive", new)) == ["bob"]
    assert lost(expelled, machine("bob", "failed"), machine("alice", "failed", new)) == ["bob"]
    assert lost(expelled, machine("bob", "failed"), machine("alice", "failed")) == ["bob"]


def test_a_machine_of_the_same_name_that_was_set_up_anew_is_kept() -> None:
    expelled = Expelled()
    assert lost(expelled, machine("bob", "alive", key_tag(ALICE.public))) == []
    assert lost(expelled, machine("bob", "failed")) == []
