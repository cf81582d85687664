"""The file of known addresses."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from basefs.gossip.members import MAX_PEERS, Peer, PeerBook

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
        b'[{"address": "1.2.3.4:5", "left": 1}]',
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


def peer(machine: str, host: str) -> Peer:
    return Peer(f"{machine}@{host}:1", host, 1, 2, "alive", machine)


def missed(book: PeerBook) -> list[str]:
    return [each.machine for each in book.missed]


def test_a_machine_is_missed_until_it_leaves_or_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    book = PeerBook(path)
    book.add(["192.0.2.1:1"])
    for machine, host in (("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "192.0.2.3")):
        book.see(peer(machine, host), 10.0, 10.0)
    book.leave("b")
    book.leave("stranger")
    assert book.changed
    book.save()
    for found in (book, PeerBook(path)):
        assert missed(found) == ["c", "a"]
        assert found.addresses == ["192.0.2.2:1", "192.0.2.3:1", "192.0.2.1:1"], "a peer that has left is still tried"
    book.forget("c")
    book.see(peer("b", "192.0.2.9"), 30.0, 30.0)
    book.save()
    for found in (book, PeerBook(path)):
        assert missed(found) == ["b", "a"] and found.get("c") is None
        assert found.addresses == ["192.0.2.9:1", "192.0.2.1:1"], "a machine has one address, and a forgotten one none"


def test_machines_that_have_left_are_dropped_first(tmp_path: Path) -> None:
    book = PeerBook(tmp_path / "peers.json")
    for n in range(MAX_PEERS):
        book.see(peer(f"p{n}", f"192.0.{n // 256}.{n % 256}"), 10.0, 10.0)
    book.leave("p1000")
    book.see(peer("new", "198.51.100.1"), 30.0, 30.0)
    assert len(book.missed) == MAX_PEERS and book.get("p1000") is None


def test_whoever_was_at_the_address_of_another_makes_room_once_that_has_answered_there(tmp_path: Path) -> None:
    book = PeerBook(tmp_path / "peers.json")
    book.see(peer("old", "192.0.2.1"), 10.0, 5.0)
    book.see(peer("liar", "192.0.2.1"), 20.0, 5.0)
    assert missed(book) == ["liar", "old"]
    book.see(peer("new", "192.0.2.1"), 30.0, 25.0)
    assert missed(book) == ["new"]


def test_a_machine_knows_what_its_agent_was_called_before(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    book = PeerBook(path)
    assert book.note_own("k", "n@192.0.2.1:1", "192.0.2.1:1") == ""
    book.save()
    book = PeerBook(path)
    assert book.note_own("k", "n@192.0.2.2:1", "192.0.2.2:1") == "n@192.0.2.1:1"
    assert book.note_own("k", "n@192.0.2.2:1", "192.0.2.2:1") == ""
    assert book.missed == [] and book.addresses == []
