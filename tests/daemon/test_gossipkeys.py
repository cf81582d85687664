"""Who sets the gossip key of a closed filesystem, and who is given it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from basefs.daemon.gossipkeys import GossipKeys, SignedKey
from basefs.daemon.membership import Membership
from basefs.gossip.key import GossipKey
from basefs.log.keys import SigningKey
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Replica
from tests.support.asynchronous import until
from tests.support.helpers import ROOT_KEY, path

READER, WEB, STRANGER = (SigningKey.generate() for _ in range(3))


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """A closed filesystem with a reader, and a member for one directory."""
    made = bootstrap(tmp_path, [(b"root", ROOT_KEY)], [])
    made.commit(lambda author: author.make_directory(path("/web")))
    made.commit(lambda author: author.grant(path("/web"), b"web", WEB.public))
    made.commit(lambda author: author.admit(path("/"), b"reader", READER.public))
    yield made
    made.close()


class Gossiping:
    """What Serf would be told."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.expected: list[Any] = []
        self.candidates: list[str] = []

    async def encrypt(self, key: str) -> None:
        self.keys.append(key)


def made_by(replica: Replica, signer: SigningKey, generation: int = 2) -> SignedKey:
    return SignedKey.make(generation, signer, replica.identity)


def keys_of(replica: Replica, key: SignedKey | None = None) -> tuple[GossipKeys, Gossiping, Membership]:
    gossip, membership = Gossiping(), Membership(replica)
    started: Any = gossip
    return GossipKeys(key or made_by(replica, ROOT_KEY, 1), replica, started, membership), gossip, membership


def exchange(keys: GossipKeys, member: SigningKey, theirs: SignedKey) -> SignedKey:
    return SignedKey.decode(asyncio.run(keys.exchange(member.public, theirs.encode())))


def revoke(replica: Replica, where: str, name: bytes, key: SigningKey) -> None:
    replica.commit(lambda author: author.revoke(path(where), name, key.fingerprint))


def test_a_newer_key_is_taken_from_any_member_and_an_older_one_is_not(replica: Replica) -> None:
    keys, gossip, _ = keys_of(replica)
    newer = made_by(replica, ROOT_KEY)
    for member in (READER, WEB):
        assert exchange(keys, member, newer) == newer
    assert exchange(keys, WEB, made_by(replica, ROOT_KEY, 1)) == newer
    assert gossip.keys == [newer.key.as_serf()]
    assert SignedKey.load(replica.directory) == newer


def test_nobody_but_holders_of_a_key_for_the_root_sets_it(replica: Replica) -> None:
    keys, gossip, _ = keys_of(replica)
    for signer in (READER, WEB, STRANGER):
        forged = made_by(replica, signer, 2**64 - 1)
        assert exchange(keys, READER, forged) != forged
    true = made_by(replica, ROOT_KEY, 7)
    assert exchange(keys, READER, SignedKey(GossipKey.of(9), true.signer, true.signature)).key.generation == 1
    assert exchange(keys, READER, SignedKey.make(5, ROOT_KEY, bytes(28))).key.generation == 1
    assert gossip.keys == []


def test_the_last_generation_of_somebody_who_was_revoked_gives_way(replica: Replica) -> None:
    replica.commit(lambda author: author.grant(path("/"), b"second", STRANGER.public))
    keys, _, _ = keys_of(replica)
    last = made_by(replica, STRANGER, 2**64 - 1)
    assert exchange(keys, READER, last) == last
    assert exchange(keys, READER, made_by(replica, ROOT_KEY)) == last
    revoke(replica, "/", b"second", STRANGER)
    newer = made_by(replica, ROOT_KEY)
    assert exchange(keys, READER, newer) == newer
    assert exchange(keys, READER, last) == newer


def test_who_is_no_member_any_more_neither_gets_nor_gives_one(replica: Replica) -> None:
    """Its connection may have been there before."""
    keys, gossip, membership = keys_of(replica)
    membership.credentials.update([ROOT_KEY.public])
    with pytest.raises(PermissionError):
        exchange(keys, READER, made_by(replica, ROOT_KEY))
    assert gossip.keys == []


def test_an_invitation_gets_none(replica: Replica) -> None:
    name = b"invite gamma until 2099-01-01T00:00:00Z"
    replica.commit(lambda author: author.grant(path("/web"), name, STRANGER.public))
    keys, _, _ = keys_of(replica)
    with pytest.raises(PermissionError):
        exchange(keys, STRANGER, made_by(replica, ROOT_KEY))


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-9], lambda data: b"x" * 172])
@pytest.mark.logs("holds no key of gossip")
def test_a_damaged_file_is_replaced_by_what_others_have(replica: Replica, damage: Callable[[bytes], bytes]) -> None:
    made_by(replica, ROOT_KEY).save(replica.directory)
    file = replica.directory / "gossip.key"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(damage(file.read_bytes()))
    keys, _, _ = keys_of(replica, SignedKey.load(replica.directory))
    newer = made_by(replica, ROOT_KEY, 1)
    assert exchange(keys, WEB, newer) == newer


async def run_node(replica: Replica, until_it: Callable[[Gossiping], bool]) -> None:
    """A node from its start until something is so."""
    keys, gossip, membership = keys_of(replica)

    async def trust(members: frozenset[bytes], own: SigningKey) -> None:
        membership.credentials.update(members, own)

    sync: Any = SimpleNamespace(trust=trust)
    tasks = [asyncio.create_task(keys.watch_members(sync)), asyncio.create_task(keys.watch())]
    try:
        await until(lambda: until_it(gossip))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_revoke_changes_the_key_also_where_no_daemon_ran_then(replica: Replica) -> None:
    known = replica.directory / "members"
    asyncio.run(run_node(replica, lambda gossip: known.exists()))
    revoke(replica, "/web", b"web", WEB)
    asyncio.run(run_node(replica, lambda gossip: len(gossip.keys) == 1 and WEB.public.hex() not in known.read_text()))
    assert SignedKey.load(replica.directory).key.generation == 2
