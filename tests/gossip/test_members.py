"""Members and which of them are peers."""

from __future__ import annotations

import logging

import pytest

from basefs.errors import RemoteProtocolError
from basefs.gossip.events import Address
from basefs.gossip.members import Member, Peer, PeerFilter, parse_member, split_host_port

FSID = bytes(28)
RECORD = {"Name": "a", "Addr": b"\x7f\x00\x00\x01", "Port": 7946, "Tags": {"fs": "x"}, "Status": "alive"}


def member(name: str, **tags: str) -> Member:
    return Member(name, "192.0.2.1", 7946, tags, "alive")


def test_a_member_is_parsed() -> None:
    assert parse_member(RECORD) == Member("a", "127.0.0.1", 7946, {"fs": "x"}, "alive")
    mapped = bytes(10) + b"\xff\xff\xc0\x00\x02\x01"
    assert parse_member({**RECORD, "Addr": mapped, "Tags": None}).gossip_address == "192.0.2.1:7946"
    assert parse_member({**RECORD, "Addr": bytes(15) + b"\x01"}).gossip_address == "[::1]:7946"


@pytest.mark.parametrize("change", [{"Addr": b"123"}, {"Addr": None}, {"Port": "x"}, {"Port": None}, {"Tags": 7}])
def test_a_broken_member_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_member({**RECORD, **change})
    with pytest.raises(RemoteProtocolError):
        parse_member({key: value for key, value in RECORD.items() if key not in change})


def test_only_peers_of_this_filesystem(caplog: pytest.LogCaptureFixture) -> None:
    fs = FSID.hex()
    some = [
        member("self", fs=fs, sync="1"),
        member("b", fs=fs, sync="65535"),
        member("a", fs=fs, sync="1"),
        member("other", fs="00", sync="1"),
        member("none"),
        member("badport", fs=fs, sync="65536"),
        member("badtext", fs=fs, sync="x"),
    ]
    peers = PeerFilter(FSID)
    with caplog.at_level(logging.INFO):
        found = peers.peers(some, "self")
        assert found == peers.peers(some, "self")
    assert found == [Peer("a", "192.0.2.1", 7946, 1, "alive", "a"), Peer("b", "192.0.2.1", 7946, 65535, "alive", "b")]
    assert found[0].sync_address == Address("192.0.2.1", 1)
    assert peers.foreign == 4
    assert len(caplog.records) == 4  # one for each name, although it looked twice
    assert {record.levelno for record in caplog.records} == {logging.INFO}


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:0", "a:65536", "::1:5", "a:+5", "a:٣"])
def test_no_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match="ADDRESS"):
        split_host_port(text)


def test_host_and_port() -> None:
    assert split_host_port("example.org:5") == ("example.org", 5)
    assert split_host_port("[::1]:65535") == ("::1", 65535)
