"""What is gossiped although sessions stand, with a loop whose clock the tests move."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from basefs.gossip.events import Address, decode_event
from basefs.log.blocks import GOSSIP_BLOCK_DATA, Block, Encoded
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.replication.announcing import (
    ACKNOWLEDGED_SECONDS,
    ANNOUNCE_SECONDS,
    GATHER_SECONDS,
    HURRY_EVENTS,
    MAX_CARRIED,
    Announcer,
)
from basefs.sync.net.neighbours import Acknowledged
from tests.replication.loop import Loop
from tests.support.helpers import BIRTH, ROOT_KEY, genesis, noise

HERE = Address("10.0.0.1", 18375)
ROOT = genesis()[0]


class Network:
    """Standing sessions that lose packets, and what is gossiped.

    Attributes:
        acknowledged: up to which time the peers have received everything.
        moving: what becomes of what was sent later.
        sent: the time of each event, its blocks, and whether it is an announcement.
    """

    standing = agreed = True
    moving = Acknowledged.STUCK

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.acknowledged = 0.0
        self.sent: list[tuple[float, tuple[bytes, ...], bool]] = []
        self.neighbours = self

    def mark(self) -> float:
        return self._loop.now

    def arrival(self, mark: float) -> tuple[Acknowledged, float]:
        return (self.moving if mark > self.acknowledged else Acknowledged.ARRIVED), mark

    def root_hash(self) -> bytes:
        return ROOT.hash

    def send(self, payloads: list[bytes]) -> None:
        for event in map(decode_event, payloads):
            self.sent.append((self._loop.now, event.blocks, bool(event.announcements)))


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def network(loop: Loop) -> Network:
    return Network(loop)


@pytest.fixture
def announcer(loop: Loop, network: Network) -> Announcer:
    parts: Any = network
    clock: Any = loop
    return Announcer(parts, parts, parts, lambda: HERE, clock, HURRY_EVENTS)


def change(number: int, blocks: int) -> tuple[list[Entry], list[Block]]:
    """A file whose content needs as many events as it has blocks."""
    content = [Block(noise(number * 100 + part, GOSSIP_BLOCK_DATA)) for part in range(blocks)]
    name = b"f%d" % number
    return [
        ROOT_KEY.sign(ROOT.hash, BIRTH, Action.WRITE, name, Encoded(content[0].hash, 0, 1).encode(), Extensions(1))
    ], content


@pytest.mark.parametrize(
    ("most", "blocks", "events"), [(4, 1, 2), (4, 3, 4), (4, 4, 0), (4, 40, 0), (0, 1, 0), (6, 5, 6), (100, 40, 41)]
)
def test_without_sessions_a_change_of_a_few_events_is_gossiped_and_a_larger_one_announced(
    loop: Loop, network: Network, most: int, blocks: int, events: int
) -> None:
    network.standing = False
    parts: Any = network
    clock: Any = loop
    announcer = Announcer(parts, parts, parts, lambda: HERE, clock, most)
    announcer.gather(*change(0, blocks), large=False)
    loop.pass_time(2 * ANNOUNCE_SECONDS)
    announcements = [announces for _, _, announces in network.sent]
    assert announcements == ([False] * events or [True])
    assert sum(len(told) for _, told, _ in network.sent) == (blocks if events else 0)


def test_what_is_written_in_a_row_is_gossiped_together(loop: Loop, network: Network) -> None:
    network.standing = False
    parts: Any = network
    clock: Any = loop
    announcer = Announcer(parts, parts, parts, lambda: HERE, clock, 4)
    for number in range(3):
        entries, _ = change(number, 1)
        announcer.gather(entries, [], large=False)
    loop.pass_time(GATHER_SECONDS)
    assert len(network.sent) == 1, "three entries fit into one event"


def test_announcements_of_a_long_copy_have_their_pace(loop: Loop, network: Network) -> None:
    network.standing = False
    parts: Any = network
    clock: Any = loop
    announcer = Announcer(parts, parts, parts, lambda: HERE, clock, 4)
    for number in range(100):
        announcer.gather(*change(number, 40), large=False)
        loop.pass_time(0.05)
    loop.pass_time(ANNOUNCE_SECONDS)
    assert 9 <= len(network.sent) <= 12 and all(announces for _, _, announces in network.sent)


def test_a_row_of_large_changes_is_announced_where_peers_acknowledge_nothing(
    loop: Loop, network: Network, announcer: Announcer
) -> None:
    """Also where each comes before it was time to look at the one before."""
    for number in range(8):
        announcer.gather(*change(number, 1), large=True)
        loop.pass_time(ACKNOWLEDGED_SECONDS / 2)
    times = [time - 100.0 for time, _, announces in network.sent if announces]
    assert times and times[0] < ACKNOWLEDGED_SECONDS + ANNOUNCE_SECONDS
    # The last one as well: an announcement tells of everything before it, and of nothing behind.
    loop.pass_time(ACKNOWLEDGED_SECONDS + ANNOUNCE_SECONDS)
    assert network.sent[-1][0] - 100.0 >= 3.5 * ACKNOWLEDGED_SECONDS


def test_of_large_changes_that_arrive_nothing_is_told(loop: Loop, network: Network, announcer: Announcer) -> None:
    for number in range(8):
        announcer.gather(*change(number, 1), large=True)
        loop.pass_time(ACKNOWLEDGED_SECONDS / 2)
        network.acknowledged = loop.now
    loop.pass_time(ACKNOWLEDGED_SECONDS)
    assert network.sent == []


@pytest.mark.parametrize("blocks", [1, HURRY_EVENTS - 1, 4 * HURRY_EVENTS])
def test_what_a_slow_link_takes_bit_by_bit_is_not_gossiped_before_it_stops(
    loop: Loop, network: Network, announcer: Announcer, blocks: int
) -> None:
    network.moving = Acknowledged.MOVING
    announcer.gather(*change(0, blocks), large=False)
    loop.pass_time(20 * ACKNOWLEDGED_SECONDS)
    assert network.sent == []
    network.moving = Acknowledged.STUCK
    loop.pass_time(ACKNOWLEDGED_SECONDS + ANNOUNCE_SECONDS)
    assert network.sent


def test_a_small_change_behind_one_of_many_events_is_gossiped_in_its_turn(
    loop: Loop, network: Network, announcer: Announcer
) -> None:
    many, few = change(0, HURRY_EVENTS - 1), change(1, 1)
    for entries, blocks in (many, few):
        announcer.gather(entries, blocks, large=False)
        loop.pass_time(ACKNOWLEDGED_SECONDS / 4)
    loop.pass_time(ACKNOWLEDGED_SECONDS + ANNOUNCE_SECONDS * HURRY_EVENTS)
    told = {block for _, blocks, _ in network.sent for block in blocks}
    assert told == {block.encode() for block in itertools.chain(many[1], few[1])}


def test_what_waits_is_bounded(loop: Loop, network: Network, announcer: Announcer) -> None:
    for number in range(3 * MAX_CARRIED):
        announcer.gather(*change(number, 1), large=False)
        loop.pass_time(0.02)
    loop.pass_time(ACKNOWLEDGED_SECONDS + ANNOUNCE_SECONDS * HURRY_EVENTS * MAX_CARRIED)
    assert 0 < len(network.sent) <= MAX_CARRIED


def test_what_there_is_no_room_for_is_announced(loop: Loop, network: Network, announcer: Announcer) -> None:
    """The newest of many changes must not wait for the next sync with a random peer."""
    for number in range(MAX_CARRIED + 10):
        announcer.gather(*change(number, 1), large=False)
        loop.pass_time(0.02)
    last = loop.now
    loop.pass_time(ACKNOWLEDGED_SECONDS + ANNOUNCE_SECONDS * HURRY_EVENTS * MAX_CARRIED)
    assert any(announces and time > last for time, _, announces in network.sent)
