"""The gossip key of a closed filesystem: as a value, and between real agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.gossip.key import GossipKey
from tests.gossip.helpers import Node, nodes, random_entry, run, until


def test_the_newer_key_is_the_greater_one() -> None:
    keys = [GossipKey.of(generation) for generation in (0, 1, 2, 255, 256, 2**63, 2**64 - 1)]
    assert keys == sorted(keys)
    assert [key.generation for key in keys] == [0, 1, 2, 255, 256, 2**63, 2**64 - 1]


def test_there_is_no_generation_after_the_last_one() -> None:
    assert GossipKey.of(2**64).generation == 2**64 - 1


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_size_is_none(size: int) -> None:
    with pytest.raises(ValueError):
        GossipKey(bytes(size))


@pytest.mark.serf
@pytest.mark.logs("ncrypt", "join", "Unknown child process pid")
def test_who_has_no_key_or_the_old_one_hears_nothing(tmp_path: Path) -> None:
    key = GossipKey.of(1)

    async def main() -> None:
        a = Node(tmp_path, "a", encrypt_key=key.as_serf())
        b = Node(tmp_path, "b", encrypt_key=key.as_serf(), join=(a.address,))
        stranger = Node(tmp_path, "s", join=(a.address, b.address))
        away = Node(tmp_path, "c", encrypt_key=key.as_serf(), join=(a.address, b.address))
        async with nodes(a, b):
            await until(lambda: a.sees("b") and b.sees("a"), "two peers")
            newer = GossipKey.of(2).as_serf()
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
