"""Who sets the gossip key of a closed filesystem, and who is given it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from basefs.daemon.gossipkeys import GossipKeys, KeptKey, SentKey, SignedKey
from basefs.daemon.membership import Membership
from basefs.errors import NotPermitted, StoreError
from basefs.gossip.events import Address
from basefs.gossip.key import GossipKey
from basefs.gossip.members import Peer
from basefs.log.entries import Entry
from basefs.log.keys import SigningKey
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Replica
from basefs.sync.net.transport import SessionContext
from basefs.tasks import cancel
from tests.simulation.loop import PROCESS, Loop, Process
from tests.support.asynchronous import HOST
from tests.support.helpers import ROOT_KEY, copy_replica, path
from tests.support.memory import MemoryLog
from tests.support.patience import DEADLINE
from tests.support.syncing import Syncing, running

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
    kept = KeptKey(key or made_by(replica, ROOT_KEY, 1))
    return GossipKeys(kept, replica, started, membership, lambda _: None), gossip, membership


def exchange(keys: GossipKeys, member: SigningKey, theirs: SignedKey) -> SignedKey:
    return SentKey.decode(asyncio.run(keys.exchange(member.public, SentKey(theirs).encode()))).signed


def revoke(replica: Replica, where: str, name: bytes, key: SigningKey) -> None:
    replica.commit(lambda author: author.revoke(path(where), name, key.fingerprint))


def test_a_newer_key_is_taken_from_any_member_and_an_older_one_is_not(replica: Replica) -> None:
    keys, gossip, _ = keys_of(replica)
    newer = made_by(replica, ROOT_KEY)
    for member in (READER, WEB):
        assert exchange(keys, member, newer) == newer
    assert exchange(keys, WEB, made_by(replica, ROOT_KEY, 1)) == newer
    assert gossip.keys == [newer.key.as_serf()]
    assert KeptKey.load(replica.directory).signed == newer


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
@pytest.mark.logs("holds no gossip key")
def test_a_damaged_file_is_replaced_by_what_others_have(replica: Replica, damage: Callable[[bytes], bytes]) -> None:
    KeptKey(made_by(replica, ROOT_KEY)).save(replica.directory)
    file = replica.directory / "gossip.key"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(damage(file.read_bytes()))
    keys, _, _ = keys_of(replica, KeptKey.load(replica.directory).signed)
    newer = made_by(replica, ROOT_KEY, 1)
    assert exchange(keys, WEB, newer) == newer


class Run:
    """A node from one start to its end, which may come at any moment."""

    def __init__(self, replica: Replica) -> None:
        """It goes on with what is on its disk."""
        self.gossip, self.membership = Gossiping(), Membership(replica)
        started: Any = self.gossip
        self.compared: list[Address] = []
        kept = KeptKey.load(replica.directory)
        self.keys = GossipKeys(kept, replica, started, self.membership, self.compared.append)

    def lets_in(self, member: SigningKey) -> bool:
        """Whether this key is a member's, as far as the node has heard."""
        return member.public in (self.membership.credentials.trusted or ())

    async def gives_key_to(self, member: SigningKey) -> bool:
        """Whether it gives the gossip key to a member."""
        try:
            await self.keys.exchange(member.public, SentKey(SignedKey(GossipKey.of(0))).encode())
        except PermissionError:
            return False
        return True

    async def has_new_key(self) -> bool:
        """Whether Serf has got another key since the start."""
        return bool(self.gossip.keys)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Run until something is so, and end there and then."""

        async def trust(members: frozenset[bytes], own: SigningKey) -> None:
            self.membership.credentials.update(members, own)

        async def wait() -> None:
            while not await condition():
                await asyncio.sleep(0.005)

        sync: Any = SimpleNamespace(trust=trust, turn_away=lambda members: None, prefer=lambda keys: None)
        tasks = [asyncio.create_task(self.keys.watch_members(sync)), asyncio.create_task(self.keys.watch())]
        try:
            await asyncio.wait_for(wait(), DEADLINE)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def generation(replica: Replica) -> int:
    """Of the key on disk."""
    return KeptKey.load(replica.directory).signed.key.generation


@pytest.fixture
def member_with_key(replica: Replica) -> Replica:
    """The same, after the member for one directory was given the first gossip key."""
    KeptKey(made_by(replica, ROOT_KEY, 1)).save(replica.directory)
    run = Run(replica)
    asyncio.run(run.until(lambda: run.gives_key_to(WEB)))
    return replica


def test_a_revoke_changes_the_key_also_where_no_daemon_ran_then(member_with_key: Replica) -> None:
    revoke(member_with_key, "/web", b"web", WEB)
    run = Run(member_with_key)
    asyncio.run(run.until(run.has_new_key))
    assert generation(member_with_key) == 2


def test_a_revoke_changes_the_key_also_where_the_daemon_dies_before_it_has(member_with_key: Replica) -> None:
    run = Run(member_with_key)

    async def has_heard() -> bool:
        if run.lets_in(WEB) and WEB.public in member_with_key.members():
            await asyncio.to_thread(revoke, member_with_key, "/web", b"web", WEB)
        return not run.lets_in(WEB)

    asyncio.run(run.until(has_heard))
    assert generation(member_with_key) == 1, "it died before"
    again = Run(member_with_key)
    asyncio.run(again.until(again.has_new_key))
    assert generation(member_with_key) == 2
    # Once is enough.
    third = Run(member_with_key)
    asyncio.run(third.until(lambda: third.gives_key_to(READER)))
    assert not third.gossip.keys and generation(member_with_key) == 2


def test_a_key_that_a_member_gave_away_before_it_heard_of_a_revoke_is_changed_by_another_one(
    replica: Replica, tmp_path: Path
) -> None:
    """It has no key for the root, so it makes none itself; who made the last one does not know that it has leaked."""
    second = made_by(replica, ROOT_KEY)
    other = copy_replica(replica, tmp_path / "web", [WEB])
    KeptKey(second).save(other.directory)
    revoke(replica, "/", b"reader", READER)
    KeptKey(second, replica.members()).save(replica.directory)

    async def main() -> None:
        maker, web = Run(replica), Run(other)
        shared = SessionContext(credentials=maker.membership.credentials, keys=maker.keys.exchange)
        node = Syncing(MemoryLog(bytes(28)), shared=shared)
        async with running(node):
            web.gossip.expected = [Peer("maker", HOST, 0, node.port, "alive")]
            assert await web.gives_key_to(READER)
            other.apply([Entry.decode(raw) for raw in replica.walk(())], [])
            await asyncio.gather(maker.until(maker.has_new_key), web.until(maker.has_new_key))

    asyncio.run(main())
    assert generation(replica) == 3
    assert KeptKey.load(replica.directory).known_to == replica.members()
    other.close()


def test_logs_are_compared_with_a_member_that_gossip_does_not_reach(replica: Replica, tmp_path: Path) -> None:
    """Each may have a gossip key whose maker counts in its own log alone, and then neither takes the other one's."""
    other = copy_replica(replica, tmp_path / "web", [WEB])
    KeptKey(made_by(replica, ROOT_KEY)).save(replica.directory)
    KeptKey(made_by(other, WEB)).save(other.directory)

    async def main() -> None:
        here, web = Run(replica), Run(other)
        shared = SessionContext(credentials=here.membership.credentials, keys=here.keys.exchange)
        node = Syncing(MemoryLog(bytes(28)), shared=shared)
        async with running(node):
            away, alive = Peer("away", HOST, 0, node.port, "failed"), Peer("alive", HOST, 0, node.port + 1, "alive")
            web.gossip.expected = [away, alive]

            async def has_compared() -> bool:
                return bool(web.compared)

            await asyncio.gather(here.until(has_compared), web.until(has_compared))
            assert set(web.compared) == {away.sync_address}

    asyncio.run(main())
    other.close()


def test_a_key_is_replaced_when_its_maker_may_make_none_any_more_and_stays_a_member(replica: Replica) -> None:
    """Nobody who comes takes the old one."""
    replica.commit(lambda author: author.grant(path("/"), b"second", STRANGER.public))
    KeptKey(made_by(replica, STRANGER), replica.members()).save(replica.directory)
    revoke(replica, "/", b"second", STRANGER)
    replica.commit(lambda author: author.admit(path("/"), b"second", STRANGER.public))
    assert STRANGER.public in replica.members()
    run = Run(replica)
    asyncio.run(run.until(run.has_new_key))
    kept = KeptKey.load(replica.directory).signed
    assert kept.key.generation == 3
    assert kept.is_valid(replica.identity, frozenset([ROOT_KEY.public]))


def test_a_node_without_a_key_waits_for_that_of_others(replica: Replica) -> None:
    loop = Loop()
    keys, gossip, _ = keys_of(replica, SignedKey(GossipKey.of(0)))

    async def main() -> None:
        PROCESS.set(Process(HOST, random.Random(1)))
        watch = asyncio.create_task(keys.watch())
        await asyncio.sleep(60.0)
        await cancel([watch])

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert not gossip.keys


def test_a_leak_is_believed_of_the_key_of_now_from_a_member_and_once_a_minute(replica: Replica) -> None:
    """Each new key starts all agents again, so nobody has one made as often as he likes."""
    loop = Loop()
    keys, gossip, _ = keys_of(replica)

    async def count_after(seconds: float, member: SigningKey, key: SignedKey) -> int:
        """New keys so many seconds after a member has said that a key has leaked."""
        with contextlib.suppress(PermissionError):
            await keys.exchange(member.public, SentKey(key, has_leaked=True).encode())
        await asyncio.sleep(seconds)
        return len(gossip.keys)

    def current() -> SignedKey:
        return KeptKey.load(replica.directory).signed

    async def main() -> list[int]:
        PROCESS.set(Process(HOST, random.Random(1)))
        watch = asyncio.create_task(keys.watch())
        await keys.exchange(READER.public, SentKey(made_by(replica, ROOT_KEY, 2)).encode())
        found = [
            await count_after(30.0, READER, made_by(replica, ROOT_KEY, 1)),
            await count_after(30.0, STRANGER, current()),
            await count_after(15.0, READER, current()),
            await count_after(30.0, READER, current()),
            await count_after(30.0, WEB, current()),
            await count_after(15.0, WEB, current()),
        ]
        await cancel([watch])
        return found

    try:
        assert loop.run_until_complete(main()) == [1, 1, 2, 2, 2, 3]
    finally:
        loop.close()


def test_a_member_that_cannot_be_written_down_is_given_no_key(replica: Replica) -> None:
    """As on a full disk: nobody would know after a crash that it had the key."""
    keys, _, _ = keys_of(replica)
    (replica.directory / "gossip.key").mkdir()
    with pytest.raises(OSError):
        exchange(keys, WEB, SignedKey(GossipKey.of(0)))


def test_a_new_key_on_demand_is_known_to_the_members_of_now(replica: Replica) -> None:
    KeptKey(made_by(replica, ROOT_KEY, 4)).save(replica.directory)
    run = Run(replica)
    renewed = asyncio.run(run.keys.renew())
    assert (renewed.number, renewed.told, renewed.others) == (5, 0, 0)
    kept = KeptKey.load(replica.directory)
    assert kept.signed.is_valid(replica.identity, frozenset([ROOT_KEY.public]))
    assert kept.known_to == replica.members()
    assert run.gossip.keys == [kept.signed.key.as_serf()]


def test_a_node_without_a_key_for_the_root_makes_none(replica: Replica) -> None:
    replica.keys = [WEB]
    run = Run(replica)
    with pytest.raises(NotPermitted, match="valid at /"):
        asyncio.run(run.keys.renew())
    assert not run.gossip.keys


def test_what_the_disk_does_not_take_is_no_new_key(replica: Replica) -> None:
    keys, gossip, _ = keys_of(replica)
    (replica.directory / "gossip.key").mkdir()
    with pytest.raises(StoreError, match="gossip"):
        asyncio.run(keys.renew())
    assert not gossip.keys
