"""When a node lets in those who become members, and turns away those who are no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from basefs.daemon.membership import Membership
from basefs.daemon.network import keep_forgetting, key_tag
from basefs.gossip.members import Peer
from basefs.log.keys import SigningKey
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Replica
from basefs.tasks import cancel
from tests.support.asynchronous import run, until
from tests.support.helpers import ROOT_KEY, path

LEAVES, COMES, FOLLOWS = (SigningKey.generate() for _ in range(3))


class Door:
    """A server that takes its time to let in others.

    Attributes:
        begun: how often it began to.
        let_in: the keys of each time, from its end on.
        times: its beginning and its end, by the clock of the event loop.
        first: the keys that come first.
        left: the keys that were not turned away, the last time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.begun = 0
        self.let_in: list[frozenset[bytes]] = []
        self.times: list[tuple[float, float]] = []
        self.left: frozenset[bytes] | None = None
        self.first: frozenset[bytes] | None = None

    def turn_away(self, keys: frozenset[bytes]) -> None:
        self.left = keys

    def prefer(self, keys: frozenset[bytes]) -> None:
        self.first = keys

    async def trust(self, keys: frozenset[bytes], own: SigningKey) -> None:
        self.begun += 1
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(self._seconds)
        self.times.append((began, asyncio.get_running_loop().time()))
        self.let_in.append(keys)


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """A closed filesystem with one member besides its root key."""
    made = bootstrap(tmp_path, [(b"root", ROOT_KEY)], [])
    made.commit(lambda author: author.grant(path("/"), b"leaves", LEAVES.public))
    yield made
    made.close()


async def unchanged() -> None:
    """Of the members, nothing else is kept here."""


def test_new_members_take_a_bounded_share_of_the_time(replica: Replica) -> None:
    async def main() -> None:
        door: Any = Door(0.1)
        watching = asyncio.ensure_future(Membership(replica).watch(door, unchanged))
        for key in (COMES, FOLLOWS):
            await until(lambda: door.let_in)
            del door.let_in[:]
            grant(replica, key)
        await until(lambda: door.let_in and FOLLOWS.public in door.let_in[-1])
        await cancel([watching])
        for (began, ended), (following, _) in zip(door.times, door.times[1:], strict=False):
            assert following >= ended + 9 * (ended - began)

    run(main())


def test_a_revoke_does_not_wait_for_the_turn_of_new_members(replica: Replica) -> None:
    async def main() -> None:
        door: Any = Door(1.0)
        watching = asyncio.ensure_future(Membership(replica).watch(door, unchanged))
        await until(lambda: door.let_in)
        grant(replica, COMES)
        replica.commit(lambda author: author.revoke(path("/"), b"leaves", LEAVES.fingerprint))
        await until(lambda: LEAVES.public not in door.left)
        assert door.begun == 1, "nobody is let in meanwhile"
        await cancel([watching])

    run(main())


def test_a_revoked_key_is_no_member_before_its_sessions_have_ended(replica: Replica) -> None:
    """So the gossip key that comes with a revoke is not sent to it meanwhile."""

    async def main() -> None:
        door: Any = Door(0.0)
        membership = Membership(replica)
        watching = asyncio.ensure_future(membership.watch(door, unchanged))
        await until(lambda: door.let_in)
        assert membership.lets_in(LEAVES.public) and not membership.lets_in(COMES.public)
        replica.commit(lambda author: author.revoke(path("/"), b"leaves", LEAVES.fingerprint))
        assert not membership.lets_in(LEAVES.public) and membership.lets_in(ROOT_KEY.public)
        await cancel([watching])

    run(main())


def test_machines_are_forgotten_that_were_expelled_and_not_those_that_the_log_does_not_know_yet(
    replica: Replica,
) -> None:
    """A node that was off hears of newcomers from gossip before their grants arrive."""
    forgotten: list[str] = []

    async def forget(name: str) -> None:
        forgotten.append(name)

    def peer(name: str, key: SigningKey, status: str = "failed") -> Peer:
        return Peer(name, "127.0.0.1", 1, 2, status, key_tag(key.public))

    async def main() -> None:
        replica.commit(lambda author: author.admit(path("/"), b"reader", FOLLOWS.public))
        replica.commit(lambda author: author.revoke(path("/"), b"leaves", LEAVES.fingerprint))
        replica.commit(lambda author: author.revoke(path("/"), b"reader", FOLLOWS.fingerprint))
        expected = [peer("comes", COMES), peer("root", ROOT_KEY), peer("reads", FOLLOWS), peer("leaves", LEAVES)]
        gossip: Any = SimpleNamespace(expected=[*expected, peer("runs", LEAVES, "alive")], forget=forget)
        watching = asyncio.ensure_future(keep_forgetting(gossip, Membership(replica)))
        await until(lambda: "leaves" in forgotten)
        await cancel([watching])

    run(main())
    assert set(forgotten) == {"reads", "leaves"}


def test_the_keys_of_the_root_come_first(replica: Replica) -> None:
    replica.commit(lambda author: author.make_directory(path("/d")))
    replica.commit(lambda author: author.grant(path("/d"), b"comes", COMES.public))

    async def main() -> None:
        door: Any = Door(0.0)
        watching = asyncio.ensure_future(Membership(replica).watch(door, unchanged))
        await until(lambda: door.let_in)
        await cancel([watching])
        assert door.let_in[-1] == {ROOT_KEY.public, LEAVES.public, COMES.public}
        assert door.first == {ROOT_KEY.public, LEAVES.public}

    run(main())


def grant(replica: Replica, key: SigningKey) -> None:
    replica.commit(lambda author: author.grant(path("/"), key.public.hex().encode()[:20], key.public))
