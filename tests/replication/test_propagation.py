"""What gossip, the members of the cluster and the ends of sessions lead to, with a real replica."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.daemon.config import PULL_JITTER
from basefs.errors import NoSpace
from basefs.gossip.events import Address, Announcement, GossipEvent, decode_event, encode_events
from basefs.gossip.members import Peer
from basefs.gossip.service import Counters
from basefs.log.blocks import GOSSIP_BLOCK_DATA
from basefs.log.interface import AddResult
from basefs.replica.replica import Applied, Replica
from basefs.replication.propagation import BLOCK_PATIENCE, GREETERS, Propagation, PropagationSettings
from basefs.replication.scheduler import PullLimits
from basefs.sync.session import result
from basefs.sync.session.result import Reason, Result
from tests.replication.loop import Loop
from tests.support.helpers import ROOT_KEY, copy_replica, make_replica, noise
from tests.support.mounts import temporary_directory

PULLS = PullLimits()

HERE, ONE, TWO, THREE, NOBODY = (Address(f"10.0.0.{number}", 18375) for number in (1, 2, 3, 4, 99))
OTHER_ROOT = bytes(range(28))


class Network:
    """Gossip and sync as propagation uses them: notes what it asks of them.

    Attributes:
        asked: with whom there was a session, and why.
        sent: what was gossiped.
        joined: whom Serf was told of.
        room: for how many newcomers sessions were to make room; 0: the disk had none.
    """

    standing: Sequence[Address] = ()

    def __init__(self) -> None:
        self.asked: list[tuple[Address, str]] = []
        self.sent: list[GossipEvent] = []
        self.joined: list[str] = []
        self.room: list[int] = []
        self.counters = Counters()
        self.neighbours = SimpleNamespace(make_room=self.room.append, longest_round_trip=0.0, leave=lambda: None)
        self.peers: list[Peer] = []
        self.wants_more = False
        self.blocks = 0

    def changed(self, now: float) -> None:
        pass

    def ran_out_of_room(self) -> None:
        self.room.append(0)

    def missing(self) -> list[bytes]:
        return []

    def vacancies(self) -> int:
        return 0

    def avoids(self, address: Address) -> bool:
        return False

    def has_met(self, address: Address) -> bool:
        return True

    def met(self, address: tuple[str, int]) -> None:
        pass

    async def pull(self, address: Address, reason: str) -> None:
        self.asked.append((address, reason))

    def send(self, payloads: Sequence[bytes]) -> None:
        self.sent += map(decode_event, payloads)

    async def call(self, command: str, body: dict[str, Any]) -> dict[str, Any]:
        self.joined += body["Existing"]
        return {}

    @property
    def whom(self) -> list[Address]:
        """Who was asked since the last look."""
        asked, self.asked = self.asked, []
        return [address for address, _ in asked]


class Node:
    """A node whose network is noted, with an event loop whose clock the tests move.

    Attributes:
        answering: who takes connections; the real ones are in `test_lost_peers`.
    """

    def __init__(self, replica: Replica, *, gossips: bool = True) -> None:
        self.replica = replica
        self.answering = {TWO}
        self.loop: Any = Loop()
        self.loop.call_soon = lambda call, *arguments: call(*arguments)  # type: ignore[attr-defined]
        self.loop.call_soon_threadsafe = self.loop.call_soon  # type: ignore[attr-defined]
        self.loop.create_task = run_at_once  # type: ignore[attr-defined]
        self.network = Network()
        parts: Any = self.network

        async def probe(host: str, port: int, timeout: float) -> object:
            return Address(host, port) if Address(host, port) in self.answering else None

        settings = PropagationSettings(4, PULL_JITTER, gossips=gossips)
        self.propagation = Propagation(replica, parts, parts, lambda: HERE, self.loop, settings, probe=probe)
        self.propagation.start()

    def sees(self, *alive: Address, **others: str) -> None:
        """The members as Serf tells them: `others` with another status, by the last number of their address."""
        peers = [Peer(host, host, port - 1, port, "alive") for host, port in alive]
        peers += [Peer(name, f"10.0.0.{name[1:]}", 18374, 18375, status) for name, status in others.items()]
        self.propagation.on_members(peers)
        self.loop.pass_time(PULL_JITTER)

    def hears(self, event: GossipEvent) -> None:
        """A gossip event comes, and what it leads to."""
        self.propagation.on_event(event)
        self.loop.pass_time(PULL_JITTER)


def run_at_once(work: Coroutine[Any, Any, object]) -> Any:
    """A task that waits for nothing."""
    with contextlib.suppress(StopIteration):
        work.send(None)
        raise AssertionError("it waits")
    return Mock(asyncio.Task)


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return make_replica(tmp_path / "here")


@pytest.fixture
def node(replica: Replica) -> Node:
    node = Node(replica)
    node.sees(ONE, TWO, THREE)
    assert sorted(node.network.whom) == [ONE, TWO, THREE], "who joins is compared with at once"
    return node


def announcement(root: bytes, address: Address | None) -> GossipEvent:
    return GossipEvent(announcements=(Announcement(root, address, ()),))


def test_an_announcement_is_followed_at_once_but_not_by_all_in_the_same_moment(node: Node) -> None:
    node.hears(announcement(OTHER_ROOT, TWO))
    assert node.network.asked == [(TWO, "an announcement")]


def test_an_announcement_of_what_is_here_leads_to_nothing(node: Node) -> None:
    node.hears(announcement(node.replica.root_hash(), TWO))
    assert node.network.asked == []


@pytest.mark.parametrize("address", [NOBODY, None])
def test_an_address_that_anybody_may_have_made_up_is_not_visited(node: Node, address: Address | None) -> None:
    """Nobody signs an event.  Somebody who is a member is asked instead."""
    node.hears(announcement(OTHER_ROOT, address))
    (asked,) = node.network.whom
    assert asked in (ONE, TWO, THREE)


def test_nobody_asks_itself(node: Node) -> None:
    node.hears(announcement(OTHER_ROOT, HERE))
    assert node.network.asked == []


def changes(replica: Replica, directory: Path, count: int) -> list[Applied]:
    """Versions of one file, each of which needs the one before, written on another node."""
    there = copy_replica(replica, directory, (ROOT_KEY,))
    try:
        return [
            there.commit(lambda author, number=number: author.write((b"file",), b"%d" % number))  # type: ignore[misc]
            for number in range(count)
        ]
    finally:
        there.close()


def event_of(applied: Applied, origin: Address | None) -> GossipEvent:
    entries = tuple(entry.encode() for entry in applied.entries)
    return GossipEvent(entries, tuple(block.encode() for block in applied.blocks), (), origin)


def test_a_missed_parent_is_asked_for_where_the_event_comes_from(node: Node, tmp_path: Path) -> None:
    _, second = changes(node.replica, tmp_path / "there", 2)
    node.hears(event_of(second, TWO))
    assert node.network.asked == [(TWO, "a missed parent")]


def test_of_events_taken_together_each_origin_is_asked_that_has_a_missed_parent(node: Node, tmp_path: Path) -> None:
    first, second, third = changes(node.replica, tmp_path / "there", 3)
    elsewhere, after = changes(node.replica, tmp_path / "elsewhere", 2)
    new = copy_replica(node.replica, tmp_path / "new", (ROOT_KEY,))
    alone = new.commit(lambda author: author.write((b"alone",), b"x"))
    new.close()
    node.propagation.on_event(event_of(alone, ONE))
    node.network.asked.clear()
    # The next ones come thick, and are one transaction.
    node.propagation.on_event(event_of(third, THREE))
    node.propagation.on_event(event_of(after, TWO))
    node.propagation.on_event(event_of(alone, ONE))
    node.loop.pass_time(1.0)
    # In any order: each has a random part of the jitter of its own.
    asked = [address for address, reason in node.network.asked if reason == "a missed parent"]
    assert sorted(asked) == [TWO, THREE]
    for applied in (second, first, elsewhere):
        node.propagation.on_event(event_of(applied, THREE))
        node.loop.pass_time(1.0)
    assert node.replica.totals()["orphans"] == 0


class Full(Replica):
    """A log on a disk that may be full."""

    is_full = True

    def add(self, *arguments: Any, **options: Any) -> AddResult:
        if self.is_full:
            raise NoSpace("the disk is full")
        return super().add(*arguments, **options)


def test_a_log_that_takes_nothing_is_told_once(
    replica: Replica, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, for example: sync brings what gossip could not."""
    replica.close()
    full = Full(replica.directory)
    node = Node(full)
    node.sees(ONE, TWO, THREE)
    first, second, third = changes(full, tmp_path / "there", 3)
    for applied in (first, second):
        node.propagation.on_event(event_of(applied, TWO))
        node.loop.pass_time(1.0)
    (said,) = (record.getMessage() for record in caplog.records)
    assert said == "cannot store gossiped entries, relying on sync: the disk is full"
    assert node.network.room[-2:] == [0, 0], "peers are to send nothing for a while"
    full.is_full = False
    for applied in (first, second, third):
        node.propagation.on_event(event_of(applied, TWO))
        node.loop.pass_time(1.0)
    assert node.replica.read((b"file",)) == b"2"


def test_blocks_that_do_not_come_are_fetched_after_a_while(node: Node, tmp_path: Path) -> None:
    there = copy_replica(node.replica, tmp_path / "there", (ROOT_KEY,))
    applied = there.commit(lambda author: author.write((b"file",), noise(1, 2 * GOSSIP_BLOCK_DATA)))
    there.close()
    event = event_of(applied, TWO)
    node.propagation.on_event(GossipEvent(event.entries, event.blocks[:-1], (), TWO))
    node.loop.pass_time(BLOCK_PATIENCE - 0.1)
    assert node.network.asked == []
    node.loop.pass_time(0.2)
    assert node.network.asked == [(TWO, "missed blocks")]


def test_blocks_are_not_looked_for_in_a_log_that_is_closed(replica: Replica, tmp_path: Path) -> None:
    """Serf leaves the cluster when the log is closed already."""
    node = Node(replica)
    (applied,) = changes(replica, tmp_path / "there", 1)
    node.propagation.on_event(GossipEvent(event_of(applied, TWO).entries, (), (), TWO))
    asyncio.run(node.propagation.stop())
    replica.close()
    node.loop.pass_time(2 * BLOCK_PATIENCE)
    assert node.network.asked == []


def test_blocks_that_come_late_are_not_fetched(node: Node, tmp_path: Path) -> None:
    (applied,) = changes(node.replica, tmp_path / "there", 1)
    event = event_of(applied, TWO)
    node.propagation.on_event(GossipEvent(event.entries, (), (), TWO))
    node.loop.pass_time(BLOCK_PATIENCE / 2)
    node.propagation.on_event(GossipEvent((), event.blocks, (), None))
    node.loop.pass_time(2 * BLOCK_PATIENCE)
    assert node.network.asked == []
    assert node.replica.read((b"file",)) == b"0"


@pytest.mark.slow
@given(st.randoms(use_true_random=False), st.integers(0, 20))
def test_events_come_in_any_order_and_some_more_than_once(rng: random.Random, twice: int) -> None:
    with temporary_directory() as directory:
        node = Node(make_replica(directory / "here"))
        there = copy_replica(node.replica, directory / "there", (ROOT_KEY,))
        payloads: list[bytes] = []
        for number in range(10):
            content = noise(number, rng.randrange(1, 3 * GOSSIP_BLOCK_DATA))
            applied = there.commit(lambda author, n=number, c=content: author.write((b"file%d" % (n % 3),), c))  # type: ignore[misc]
            blocks = [block.encode() for block in applied.blocks]
            payloads += encode_events([entry.encode() for entry in applied.entries], blocks, TWO)
        told = payloads + [rng.choice(payloads) for _ in range(twice)]
        rng.shuffle(told)
        for payload in told:
            node.propagation.on_event(decode_event(payload))
            if rng.random() < 0.3:
                node.loop.pass_time(0.05)
        node.loop.pass_time(1.0)
        assert node.replica.root_hash() == there.root_hash()
        assert not node.replica.missing_blocks(1)
        for number in range(3):
            assert node.replica.read((b"file%d" % number,)) == there.read((b"file%d" % number,))
        there.close()
        node.replica.close()


# Members


def test_who_has_come_is_compared_with_and_gets_room(node: Node) -> None:
    node.network.room.clear()
    node.sees(ONE, TWO, THREE, NOBODY)
    assert node.network.asked == [(NOBODY, "it joined")]
    assert node.network.room == [1]
    node.network.asked.clear()
    node.sees(ONE, TWO, THREE, NOBODY)
    assert node.network.asked == []


def test_of_many_members_a_few_compare_with_each_that_comes(node: Node) -> None:
    """Otherwise a cluster of N members that starts would begin N squared sessions."""
    many = [Address(f"10.1.{number >> 8}.{number & 255}", 18375) for number in range(400)]
    node.sees(*many[:100])
    assert len(set(node.network.whom)) == GREETERS, "this node comes, and sees all others"
    for number in range(100, 400):
        node.sees(*many[: number + 1])
    assert 0 < len(node.network.whom) < 60, "one after the other: 11 on average"
    node.sees(*many[:200])
    node.sees(*many)
    assert len(node.network.whom) in (GREETERS // 2, GREETERS // 2 + 1), "one half sees the other one again"


def test_who_failed_is_tried_again_and_who_left_is_not(node: Node) -> None:
    node.answering.clear()
    node.sees(ONE, p3="failed", p4="left")
    node.loop.pass_time(PULLS.lost_first)
    assert node.network.asked == [], "it does not answer"
    node.answering.add(TWO)
    node.loop.pass_time(PULLS.lost_longest)
    assert node.network.asked == [(TWO, "it was lost")]
    node.network.asked.clear()
    node.sees(ONE, p3="left", p4="left")
    node.loop.pass_time(60.0)
    assert node.network.asked == []


def ended(reason: Reason, accepted: int = 0) -> Result:
    return Result(reason, "", reason is Reason.COMPLETE, result.SessionCounters(accepted=accepted))


def test_serf_is_told_at_once_of_who_is_back(replica: Replica) -> None:
    async def main() -> None:
        network: Any = Network()
        loop, settings = asyncio.get_running_loop(), PropagationSettings(4, PULL_JITTER)
        propagation = Propagation(replica, network, network, lambda: HERE, loop, settings)
        propagation.start()
        propagation.on_members([Peer("two", TWO.host, 18374, TWO.port, "failed")])
        propagation.on_result(TWO, ended(Reason.COMPLETE))
        while not network.joined:
            await asyncio.sleep(0)
        assert network.joined == [f"{TWO.host}:18374"]
        await propagation.stop()
        # Not even begun: Python warns of what is begun and never awaited.
        propagation.on_members([Peer("two", TWO.host, 18374, TWO.port, "failed")])
        propagation.on_result(TWO, ended(Reason.COMPLETE))
        assert len(network.joined) == 1

    asyncio.run(main())


@pytest.mark.parametrize("reason", [Reason.UNREACHABLE, Reason.LOST, Reason.TIMEOUT])
def test_a_cut_that_serf_has_not_noticed_is_tried_again(node: Node, reason: Reason) -> None:
    node.propagation.on_result(TWO, ended(reason))
    node.loop.pass_time(PULLS.lost_first)
    assert node.network.whom == [TWO]
    node.propagation.on_result(NOBODY, ended(reason))
    node.propagation.on_result(TWO, ended(Reason.COMPLETE))
    node.loop.pass_time(60.0)
    assert node.network.whom == [], "neither who is back nor who was never a member"


@pytest.mark.parametrize(("announced", "accepted", "tells"), [(False, 3, True), (False, 0, False), (True, 3, False)])
def test_news_that_nobody_has_announced_is(node: Node, announced: bool, accepted: int, tells: bool) -> None:
    if announced:
        node.hears(announcement(OTHER_ROOT, TWO))
    node.propagation.on_result(TWO, ended(Reason.COMPLETE, accepted))
    node.loop.pass_time(1.0)
    assert any(event.announcements for event in node.network.sent) == tells


# What is written here


@pytest.mark.parametrize("gossips", [True, False])
def test_what_is_written_here_is_gossiped_unless_the_owner_wants_no_gossip(replica: Replica, gossips: bool) -> None:
    node = Node(replica, gossips=gossips)
    applied = replica.commit(lambda author: author.write((b"file",), b"x"))
    node.loop.pass_time(10.0)
    told = [entry for event in node.network.sent for entry in event.entries]
    assert told == ([entry.encode() for entry in applied.entries] if gossips else [])
    node.propagation.announce()
    node.loop.pass_time(10.0)
    assert any(event.announcements for event in node.network.sent) == gossips
