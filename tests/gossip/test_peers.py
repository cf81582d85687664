"""The file of known addresses."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from basefs.errors import RemoteProtocolError
from basefs.gossip.members import MAX_PEERS, Peer, PeerBook
from basefs.gossip.queries import MAX_CLAIMS, Claim, PeerState, decode_claims, digest_of, queries

DAY = 24 * 3600.0


def test_addresses_survive_and_the_last_seen_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    book = PeerBook(path)
    book.add(["192.0.2.1:1", "192.0.2.2:2"])
    book.add(["[2001:db8::1]:3"])
    assert book.changed
    book.save()
    assert not book.changed
    assert PeerBook(path).addresses == ["[2001:db8::1]:3", "192.0.2.2:2", "192.0.2.1:1"]
    book.add(["192.0.2.1:1"])
    assert book.addresses[0] == "192.0.2.1:1"
    assert not book.changed
    assert os.listdir(tmp_path) == ["peers.json"]


@pytest.mark.parametrize(("count", "kept"), [(MAX_PEERS, MAX_PEERS), (MAX_PEERS + 1, MAX_PEERS)])
def test_the_oldest_is_dropped(tmp_path: Path, count: int, kept: int) -> None:
    book = PeerBook(tmp_path / "peers.json")
    every = [f"192.0.2.1:{n + 1}" for n in range(count)]
    book.add(every)
    book.save()
    assert PeerBook(tmp_path / "peers.json").addresses == every[::-1][:kept]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1",
        b"[1]",
        b'["1.2.3.4:5"]',
        b"[{}]",
        b'[{"address": "1.2.3.4:5", "state": "lost"}]',
        b'[{"address": 5}]',
        b'[{"address": "1.2.3.4:0"}]',
        b"\xff\xfe",
        b"[" * 99_999,
    ],
)
def test_a_damaged_file_costs_a_warning(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "peers.json"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        book = PeerBook(path)
    assert book.addresses == []
    assert str(path) in caplog.text
    assert (tmp_path / "peers.json.damaged").read_bytes() == content
    book.add(["192.0.2.1:1"])
    book.save()
    assert [peer["address"] for peer in json.loads(path.read_bytes())] == ["192.0.2.1:1"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    directory = tmp_path / "home"
    directory.mkdir()
    path = directory / "peers.json"
    book = PeerBook(path)
    book.add(["192.0.2.1:1"])
    book.save()
    directory.rename(tmp_path / "away")
    book.add(["192.0.2.2:2"])
    with pytest.raises(OSError):
        book.save()
    (tmp_path / "away").rename(directory)
    assert book.changed
    assert PeerBook(path).addresses == ["192.0.2.1:1"]


def peer(name: str, host: str) -> Peer:
    return Peer(name, host, 1, 2, "alive")


def claim(name: str, state: PeerState, since: float) -> Claim:
    return Claim(digest_of(name), state, since)


def missed(book: PeerBook) -> list[str]:
    return [each.name for each in book.missed]


def test_a_peer_is_missed_until_it_leaves_or_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    book = PeerBook(path)
    book.add(["192.0.2.1:1"])
    book.see([peer("a", "192.0.2.1"), peer("b", "192.0.2.2"), peer("c", "192.0.2.3")], 10.0)
    book.settle("b", PeerState.LEFT, 20.0)
    book.settle("stranger", PeerState.LEFT, 20.0)
    assert book.changed
    book.save()
    for found in (book, PeerBook(path)):
        assert missed(found) == ["c", "a"]
        assert found.addresses == ["192.0.2.2:1", "192.0.2.3:1", "192.0.2.1:1"], "a peer that has left is still tried"
    book.settle("c", PeerState.GONE, 30.0)
    book.settle("c", PeerState.LEFT, 40.0)
    book.see([peer("b", "192.0.2.9")], 30.0)
    book.save()
    for found in (book, PeerBook(path)):
        assert missed(found) == ["b", "a"] and found.state("c") is PeerState.GONE
        assert found.addresses == ["192.0.2.9:1", "192.0.2.1:1"], "a peer has one address, and a gone one none"


def test_members_are_dropped_last(tmp_path: Path) -> None:
    book = PeerBook(tmp_path / "peers.json")
    book.see([peer(f"p{n}", f"192.0.{n // 256}.{n % 256}") for n in range(MAX_PEERS)], 10.0)
    book.settle("p1000", PeerState.GONE, 20.0)
    book.see([peer("new", "198.51.100.1")], 30.0)
    assert len(book.missed) == MAX_PEERS and book.state("p1000") is None


def test_the_newer_of_two_claims_is_right(tmp_path: Path) -> None:
    """One node was off while the other two saw a peer leave, and it come back."""
    off, on = PeerBook(tmp_path / "off.json"), PeerBook(tmp_path / "on.json")
    for book in (off, on):
        book.see([peer("a", "192.0.2.1"), peer("b", "192.0.2.2")], 10.0)
    on.settle("a", PeerState.LEFT, 20.0)
    on.settle("b", PeerState.GONE, 20.0)
    asked = [claim("a", PeerState.MEMBER, 10.0), claim("b", PeerState.MEMBER, 10.0), claim("x", PeerState.MEMBER, 0)]
    answer = on.news_for(asked)
    assert answer == [claim("a", PeerState.LEFT, 20.0), claim("b", PeerState.GONE, 20.0)]
    off.learn(answer, alive={"b"}, now=30.0)
    assert off.state("a") is PeerState.LEFT and missed(off) == ["b"], "what is alive here is not gone"
    off.learn(answer, alive=(), now=30.0)
    assert missed(off) == []

    # It is back, which only one of them sees; the other one says nothing that is older.
    on.see([peer("a", "192.0.2.1")], 15.0)
    assert off.news_for([claim("a", PeerState.MEMBER, on.missed[0].since)]) == []
    on.learn([claim("a", PeerState.LEFT, 20.0)], alive=(), now=30.0)
    assert missed(on) == ["a"]
    # A claim that a peer is a member changes nothing, and this node itself is never gone.
    on.note_own("own", "192.0.2.9:1", 10.0)
    on.learn([claim("b", PeerState.MEMBER, 99.0), claim("own", PeerState.GONE, 99.0)], alive=(), now=100.0)
    assert missed(on) == ["a"] and on.state("own") is PeerState.OWN


@pytest.mark.parametrize("ahead", [DAY + 1, float("inf"), float("nan")])
def test_a_claim_of_the_future_is_ignored(tmp_path: Path, ahead: float) -> None:
    """It could not be overtaken by what is so."""
    book = PeerBook(tmp_path / "peers.json")
    book.see([peer("a", "192.0.2.1")], 10.0)
    book.learn([claim("a", PeerState.GONE, 20.0 + ahead)], alive=(), now=20.0)
    assert missed(book) == ["a"]
    book.learn([claim("a", PeerState.GONE, 20.0 + DAY)], alive=(), now=20.0)
    assert missed(book) == []


def test_a_former_name_of_this_node_is_gone_for_others(tmp_path: Path) -> None:
    book = PeerBook(tmp_path / "peers.json")
    book.note_own("n@192.0.2.1:1", "192.0.2.1:1", 10.0)
    book.note_own("n@192.0.2.2:1", "192.0.2.2:1", 20.0)
    book.save()
    book = PeerBook(tmp_path / "peers.json")
    assert book.former == {"n@192.0.2.1:1"} and missed(book) == [] and book.addresses == []
    asked = [claim("n@192.0.2.1:1", PeerState.MEMBER, 15.0)]
    assert book.news_for(asked) == [claim("n@192.0.2.1:1", PeerState.GONE, 20.0)]
    book.see([peer("n@192.0.2.1:1", "192.0.2.1")], 30.0)
    assert book.former, "that Serf still calls it alive means nothing yet"
    book.settle("n@192.0.2.1:1", PeerState.GONE, 40.0)
    assert not book.former and book.news_for(asked)
    # It has its old address again.
    book.note_own("n@192.0.2.1:1", "192.0.2.1:1", 50.0)
    assert book.former == {"n@192.0.2.2:1"} and book.news_for(asked) == []


@pytest.mark.parametrize("payload", [b"x", b"\0" * 16 + b"\3", b"\0" * 17 * (MAX_CLAIMS + 1)])
def test_a_broken_query_is_refused(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_claims(payload)


def test_many_claims_travel_in_several_queries() -> None:
    claims = [claim(f"p{n}", PeerState.MEMBER, float(n)) for n in range(2 * MAX_CLAIMS + 1)]
    payloads = list(queries(claims))
    assert len(payloads) == 3 and max(map(len, payloads)) <= 700
    assert [each for payload in payloads for each in decode_claims(payload)] == claims
