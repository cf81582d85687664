"""Serf has the gossip key of the log; who adds a secret where a revoke has brought none."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from basefs.daemon.gossipkeys import GossipKeys, first_key
from basefs.daemon.membership import Membership
from basefs.gossip.events import Address
from basefs.gossip.members import Peer
from basefs.log.entries import Action, Entry
from basefs.log.keys import SigningKey
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Replica
from basefs.tasks import cancel
from tests.simulation.loop import PROCESS, Loop, Process
from tests.support.helpers import ROOT_KEY, copy_replica, path

READER, WEB, GUEST = (SigningKey.generate() for _ in range(3))


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """A closed filesystem with a reader, and a member for one directory that has let in another one."""
    made = bootstrap(tmp_path, [(b"root", ROOT_KEY)], [])
    made.commit(lambda author: author.make_directory(path("/web")))
    made.commit(lambda author: author.grant(path("/web"), b"web", WEB.public))
    made.commit(lambda author: author.admit(path("/"), b"reader", READER.public))
    made.commit(lambda author: author.key_holder.renew_gossip_key())
    with_guest = copy_replica(made, tmp_path / "web", [WEB])
    made.apply(with_guest.commit(lambda author: author.grant(path("/web"), b"guest", GUEST.public)).entries, [])
    with_guest.close()
    yield made
    made.close()


@pytest.fixture
def web(replica: Replica, tmp_path: Path) -> Iterator[Replica]:
    """The log of the member for one directory."""
    made = copy_replica(replica, tmp_path / "of web", [WEB])
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


class Daemon:
    """What keeps the key of one node."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.gossip, self.membership = Gossiping(), Membership(replica)
        started: Any = self.gossip
        self.compared: list[Address] = []
        self.keys = GossipKeys(replica, started, self.membership, self.compared.append)

    def tasks(self) -> list[asyncio.Task[None]]:
        async def trust(members: frozenset[bytes], own: SigningKey) -> None:
            self.membership.credentials.update(members, own)

        sync: Any = SimpleNamespace(trust=trust, turn_away=lambda members: None, prefer=lambda keys: None)
        return [asyncio.create_task(self.keys.watch_members(sync)), asyncio.create_task(self.keys.watch())]


def play(daemons: Sequence[Daemon], story: Callable[[], Awaitable[object]]) -> None:
    """Run daemons and what happens meanwhile, in virtual time."""
    loop = Loop()

    async def main() -> None:
        PROCESS.set(Process("127.0.0.1", random.Random(1)))
        tasks = [task for daemon in daemons for task in daemon.tasks()]
        await story()
        await cancel(tasks)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def serf_key(replica: Replica) -> str:
    return base64.b64encode(replica.gossip_key() or b"").decode()


def secrets(replica: Replica) -> list[Entry]:
    return [entry for entry in map(Entry.decode, replica.walk(())) if entry.action is Action.GOSSIP_KEY]


def revoke(replica: Replica, where: str, name: bytes, key: SigningKey) -> Sequence[Entry]:
    return replica.commit(lambda author: author.revoke(path(where), name, key.fingerprint)).entries


def test_serf_starts_with_the_key_of_the_log_and_follows_it(replica: Replica) -> None:
    assert first_key(replica) == serf_key(replica)
    daemon = Daemon(replica)

    async def story() -> None:
        await asyncio.sleep(10.0)
        assert daemon.gossip.keys == []
        revoke(replica, "/web", b"web", WEB)
        await asyncio.sleep(2.0)
        assert daemon.gossip.keys == [serf_key(replica)]
        await asyncio.sleep(60.0)

    play([daemon], story)
    assert daemon.gossip.keys == [serf_key(replica)], "once is enough"
    assert len(secrets(replica)) == 2


def test_a_node_with_a_key_for_the_root_adds_a_secret_where_the_revoke_of_another_key_has_brought_none(
    replica: Replica, web: Replica
) -> None:
    maker, other = Daemon(replica), Daemon(web)

    async def story() -> None:
        await asyncio.sleep(2.0)
        entries = revoke(web, "/web", b"guest", GUEST)
        assert all(entry.action is not Action.GOSSIP_KEY for entry in entries), "it would not count"
        await asyncio.sleep(30.0)
        assert not other.gossip.keys, "it makes none itself"
        replica.apply(entries, [])
        await asyncio.sleep(15.0)
        web.apply(list(map(Entry.decode, replica.walk(()))), [])
        await asyncio.sleep(2.0)

    play([maker, other], story)
    revoked = next(entry for entry in map(Entry.decode, replica.walk(())) if entry.action is Action.REVOKE)
    assert [entry.parent for entry in secrets(replica)][1:] == [revoked.hash]
    assert maker.gossip.keys == other.gossip.keys == [serf_key(replica)]


def test_a_secret_that_was_due_is_added_after_a_restart(replica: Replica, web: Replica) -> None:
    replica.apply(revoke(web, "/web", b"guest", GUEST), [])
    play([Daemon(replica)], lambda: asyncio.sleep(15.0))
    assert len(secrets(replica)) == 2
    play([Daemon(replica)], lambda: asyncio.sleep(15.0))
    assert len(secrets(replica)) == 2, "once is enough"


def test_a_log_without_a_secret_gets_one_from_a_node_with_a_key_for_the_root(tmp_path: Path) -> None:
    """As after an import of an archive."""
    replica = bootstrap(tmp_path, [(b"root", ROOT_KEY)], [])
    assert first_key(replica) != first_key(replica), "nobody else has it"
    daemon = Daemon(replica)
    play([daemon], lambda: asyncio.sleep(15.0))
    assert daemon.gossip.keys == [serf_key(replica)]
    replica.close()


def test_a_newcomer_takes_no_part_in_gossip_as_a_member_before_it_is_adopted(replica: Replica) -> None:
    """So the end of an invitation changes no key."""
    name = b"invite gamma until 2099-01-01T00:00:00Z"
    guest = SigningKey.generate()
    replica.commit(lambda author: author.grant(path("/web"), name, guest.public))
    daemon = Daemon(replica)

    async def story() -> None:
        await asyncio.sleep(2.0)
        revoke(replica, "/web", name, guest)
        await asyncio.sleep(30.0)

    play([daemon], story)
    assert not daemon.gossip.keys


def test_logs_are_compared_with_members_that_gossip_does_not_reach(web: Replica) -> None:
    """Their logs may have another gossip key."""
    daemon = Daemon(web)
    away, alive = (Peer(status, "127.0.0.1", 0, 7, status) for status in ("failed", "alive"))
    alone = Address("127.0.0.1", 18375)

    async def story() -> None:
        daemon.gossip.candidates = ["127.0.0.1:18374"]
        daemon.gossip.expected = [away, alive]
        await asyncio.sleep(6.0)
        assert set(daemon.compared) == {away.sync_address}
        daemon.gossip.expected = [away]
        await asyncio.sleep(6.0)
        assert set(daemon.compared) == {away.sync_address, alone}, "nobody is left, so those that are named as well"

    play([daemon], story)
