"""Gossiped events on their way into the log, with a loop whose clock the tests move."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from basefs.errors import StoreError
from basefs.gossip.events import Address, GossipEvent
from basefs.gossip.service import Counters
from basefs.replication.propagation import (
    GATHER_SECONDS,
    MOST_EVENTS,
    MOST_WAITING,
    GossipReceiver,
    Propagation,
    PropagationSettings,
)
from tests.replication.loop import Loop
from tests.support.helpers import ROOT_KEY, copy_replica, make_replica


def events(count: int) -> list[GossipEvent]:
    return [GossipEvent(entries=(b"%d" % number,)) for number in range(count)]


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_an_event_in_silence_is_taken_at_once(loop: Loop) -> None:
    taken: list[list[GossipEvent]] = []
    hearing = GossipReceiver(loop, lambda some: taken.append(list(some)))  # type: ignore[arg-type]
    one, two = events(2)
    hearing.receive(one)
    assert taken == [[one]]
    loop.pass_time(GATHER_SECONDS)
    hearing.receive(two)
    assert taken == [[one], [two]]


def test_events_that_come_thick_are_taken_together_and_in_order(loop: Loop) -> None:
    taken: list[list[GossipEvent]] = []
    hearing = GossipReceiver(loop, lambda some: taken.append(list(some)))  # type: ignore[arg-type]
    all_of_them = events(2 * MOST_EVENTS)
    for event in all_of_them:
        hearing.receive(event)
    assert len(taken) == 1
    loop.pass_time(GATHER_SECONDS)
    assert [len(some) for some in taken] == [1, MOST_EVENTS, MOST_EVENTS - 1]
    assert [event for some in taken for event in some] == all_of_them


def test_a_failure_of_the_log_keeps_no_later_event_from_it(loop: Loop) -> None:
    taken: list[GossipEvent] = []

    def take(some: list[GossipEvent]) -> None:
        if not taken:
            taken.append(some[0])
            raise StoreError("the disk is full")
        taken.extend(some)

    hearing = GossipReceiver(loop, take)  # type: ignore[arg-type]
    one, two, three = events(3)
    with pytest.raises(StoreError):
        hearing.receive(one)
    hearing.receive(two)
    hearing.receive(three)
    loop.pass_time(GATHER_SECONDS)
    assert taken == [one, two, three]


def test_of_a_flood_the_newest_are_kept(loop: Loop) -> None:
    taken: list[GossipEvent] = []
    hearing = GossipReceiver(loop, taken.extend)  # type: ignore[arg-type]
    flood = events(MOST_WAITING + 10)
    for event in flood:
        hearing.receive(event)
    while len(taken) <= MOST_WAITING:
        loop.pass_time(GATHER_SECONDS)
    # The first was taken in silence.
    assert taken == [flood[0], *flood[-MOST_WAITING:]]


def test_nothing_is_taken_after_the_end(loop: Loop) -> None:
    taken: list[GossipEvent] = []
    hearing = GossipReceiver(loop, taken.extend)  # type: ignore[arg-type]
    one, two = events(2)
    hearing.receive(one)
    hearing.receive(two)
    hearing.stop()
    loop.pass_time(1.0)
    assert taken == [one]


def test_a_flood_of_small_changes_is_few_transactions(tmp_path: Path) -> None:
    """As Serf brings them when a network is whole again: from several nodes, an event each."""

    async def main() -> None:
        here = make_replica(tmp_path / "here")
        there = copy_replica(here, tmp_path / "there", (ROOT_KEY,))
        changes = [
            there.commit(lambda author, name=b"file%d" % number: author.write((name,), name))  # type: ignore[misc]
            for number in range(100)
        ]
        gossip: Any = SimpleNamespace(counters=Counters())
        sync: Any = None
        loop, settings = asyncio.get_running_loop(), PropagationSettings(4, 0.0)
        propagation = Propagation(here, gossip, sync, lambda: None, loop, settings)
        transactions = 0

        def count(applied: object) -> None:
            nonlocal transactions
            transactions += 1

        here.subscribe(count)
        for number, applied in enumerate(changes):
            entries = tuple(entry.encode() for entry in applied.entries)
            blocks = tuple(block.encode() for block in applied.blocks)
            propagation.on_event(GossipEvent(entries, blocks, (), Address(f"10.0.0.{number % 9 + 1}", 18375)))
        while here.root_hash() != there.root_hash():
            await asyncio.sleep(0.005)
        assert transactions < 20
        assert here.read((b"file99",)) == b"file99"
        here.close()
        there.close()

    asyncio.run(main())
