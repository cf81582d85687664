"""The file of known addresses."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from basefs.gossip.members import MAX_PEERS, Peer, PeerBook


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


def test_a_peer_is_missed_until_it_leaves_or_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    book = PeerBook(path)
    book.add(["192.0.2.1:1"])
    book.see([peer("a", "192.0.2.1"), peer("b", "192.0.2.2"), peer("c", "192.0.2.3")])
    book.leave("b")
    book.leave("stranger")
    assert book.changed
    book.save()
    for found in (book, PeerBook(path)):
        assert [each.name for each in found.missed] == ["c", "a"]
        assert found.addresses == ["192.0.2.3:1", "192.0.2.2:1", "192.0.2.1:1"], "who has left is still tried"
    book.forget("c")
    book.see([peer("b", "192.0.2.9")])
    assert [each.name for each in book.missed] == ["b", "a"] and "c" not in book
    assert book.addresses == ["192.0.2.9:1", "192.0.2.1:1"], "a peer has one address"
