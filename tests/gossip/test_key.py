"""The key of gossip of a closed filesystem: as a value, and between real agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.errors import AgentError
from basefs.gossip.key import GossipKey
from tests.gossip.helpers import Node, nodes, random_entry, run, until


def test_the_newer_key_replaces_the_older_one_and_nothing_else() -> None:
    substitute, first = GossipKey.substitute(), GossipKey.first()
    second = first.next()
    for older, newer in ((substitute, first), (first, second), (substitute, second), (second, second.next())):
        assert newer.replaces(older)
        assert not older.replaces(newer)
    assert not first.replaces(first)


def test_of_two_keys_of_one_generation_both_sides_take_the_same() -> None:
    one, other = GossipKey.first(), GossipKey.first()
    assert one.replaces(other) is not other.replaces(one)


def test_a_key_that_nobody_could_outdo_is_not_taken() -> None:
    assert not GossipKey(b"\xff" * 32).replaces(GossipKey.first())


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_size_is_none(size: int) -> None:
    with pytest.raises(ValueError):
        GossipKey(bytes(size))


def test_a_key_is_the_same_after_a_file_which_is_for_its_owner_only(tmp_path: Path) -> None:
    path, key = tmp_path / "gossip.key", GossipKey.first()
    assert GossipKey.load(path) is None
    key.save(path)
    assert GossipKey.load(path) == key
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("data", [b"", b"junk", b"AAAA\n", b"\xff" * 44, b"A" * 5000])
def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "gossip.key"
    path.write_bytes(data)
    with pytest.raises(AgentError, match=f"{path}.*delete it"):
        GossipKey.load(path)


@pytest.mark.serf
@pytest.mark.logs("ncrypt", "join", "Unknown child process pid")
def test_who_has_no_key_or_the_old_one_hears_nothing(tmp_path: Path) -> None:
    key = GossipKey.first()

    async def main() -> None:
        a = Node(tmp_path, "a", encrypt_key=key.as_serf())
        b = Node(tmp_path, "b", encrypt_key=key.as_serf(), join=(a.address,))
        stranger = Node(tmp_path, "s", join=(a.address, b.address))
        away = Node(tmp_path, "c", encrypt_key=key.as_serf(), join=(a.address, b.address))
        async with nodes(a, b):
            await until(lambda: a.sees("b") and b.sees("a"), "two peers")
            newer = key.next().as_serf()
            for node in (a, b):
                await node.gossip.encrypt(newer)
            await until(lambda: all(node.gossip.connected for node in (a, b)))
            await until(lambda: a.sees("b") and b.sees("a"), "two peers with the new key")
            entry = random_entry(200)
            b.gossip.send([entry])
            await until(lambda: a.has_entry(entry))
            async with nodes(stranger, away):
                assert not away.sees("a") and not away.sees("b")
                await away.gossip.encrypt(newer)
                await until(lambda: away.sees("a", "b") and a.sees("b", "c"), "the node that was away")
                entry = random_entry(200)
                a.gossip.send([entry])
                await until(lambda: away.has_entry(entry))
                assert not stranger.has_entry(entry) and stranger.peers == []

    run(main())
