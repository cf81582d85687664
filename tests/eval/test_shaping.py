"""Packets between two network namespaces meet what the condition says, one by one and in sum."""

from __future__ import annotations

import itertools
import random
import socket
import statistics
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.namespaces import NamespaceNetwork, in_namespace
from tests.support.netem import Fate, Netem
from tests.support.patience import DEADLINE
from tests.support.shaping import Condition, has_netem

pytestmark = [pytest.mark.cluster, pytest.mark.alone]

PORT = 9000
#: As many as may be under way at once.
PACKETS = 900
SEED = 11
_SO_RCVBUFFORCE = 33  # socket(7); Python has no name for it
_FORMAT = struct.Struct("!Id")


@dataclass
class Received:
    """Numbers of the packets in the order of their arrival, the seconds that each was under way, and all together."""

    numbers: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    took: float = 0.0


@pytest.fixture
def network(tmp_path: Path) -> Iterator[NamespaceNetwork]:
    with NamespaceNetwork(tmp_path, 2) as network:
        yield network


def exchange(network: NamespaceNetwork, expected: int) -> Received:
    """Send packets from the second node to the first, until as many have arrived as are expected."""
    target, origin = network.nodes
    received = Received()
    with in_namespace(str(target.namespace)):
        inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with in_namespace(str(origin.namespace)):
        outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inbox, outbox:
        inbox.bind((target.address, PORT))
        inbox.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 24)
        inbox.settimeout(DEADLINE)
        begin = time.monotonic()
        for number in range(PACKETS):
            outbox.sendto(_FORMAT.pack(number, time.monotonic()), (target.address, PORT))
        while len(received.numbers) < expected:
            number, sent = _FORMAT.unpack(inbox.recv(100))
            received.numbers.append(number)
            received.seconds.append(time.monotonic() - sent)
        received.took = time.monotonic() - begin
    return received


def emulated(network: NamespaceNetwork, text: str) -> tuple[list[list[float]], Received, dict[str, float | str]]:
    """What the definition decides about each packet from this seed, what arrived, and what the emulator counted."""
    if has_netem():
        pytest.skip("this kernel has netem, which is used instead of the emulator")
    netem = Condition.parse(text).netem
    network.shape(Condition(netem), seed=SEED)
    # As the emulator draws its seeds: the first node's comes from twice the network's.
    fate = Fate(netem, random.Random(2 * SEED).getrandbits(64))
    decided = [fate.decide() for _ in range(PACKETS)]
    received = exchange(network, sum(map(len, decided)))
    return decided, received, network.in_force()[0]


def attempts() -> Iterator[bool]:
    """Whether it is the last one to meet packets that nothing else has delayed: a busy machine is late for many."""
    return iter([False] * 9 + [True])


def test_delay_has_the_mean_and_the_deviation(network: NamespaceNetwork) -> None:
    for is_last in attempts():
        decided, received, counted = emulated(network, "delay-1000")
        assert sorted(received.numbers) == list(range(PACKETS))
        for number, seconds in zip(received.numbers, received.seconds, strict=True):
            assert seconds > decided[number][0] - 0.001, "none comes early"
        found = {
            "mean": statistics.fmean(received.seconds),
            "deviation": statistics.stdev(received.seconds),
            "counted mean": float(counted["delay_ms"]) / 1000,
            "counted deviation": float(counted["deviation_ms"]) / 1000,
        }
        # A tenth of the mean, half of the deviation.
        expected = {name: pytest.approx(1.0 if "mean" in name else 0.2, abs=0.1) for name in found}
        if is_last or found == expected:
            assert found == expected
            assert float(counted["reordered"]) > 0.5, "what waits longer is overtaken"
            break


@pytest.mark.parametrize("percent", [30, 50])
def test_loss_takes_the_share_in_bursts(network: NamespaceNetwork, percent: int) -> None:
    decided, received, counted = emulated(network, f"loss-{percent}")
    assert counted["packets"] == PACKETS
    assert set(received.numbers) == {number for number, copies in enumerate(decided) if copies}
    lost = [number not in set(received.numbers) for number in range(PACKETS)]
    share = sum(lost) / PACKETS
    assert share == pytest.approx({30: 0.233, 50: 0.5}[percent], abs=0.05)
    assert sum(map(all, itertools.pairwise(lost))) / sum(lost) > share, "a loss makes the next one likelier"
    assert counted["lost"] == share


def test_reordered_packets_overtake(network: NamespaceNetwork) -> None:
    for is_last in attempts():
        decided, received, counted = emulated(network, "delay-1000+reorder-30")
        at_once = {number for number, copies in enumerate(decided) if copies == [0.0]}
        assert len(at_once) / PACKETS == pytest.approx(0.233, abs=0.05), "30 % with a correlation of 25 %"
        quick = {number for number, seconds in zip(received.numbers, received.seconds, strict=True) if seconds < 0.3}
        assert quick <= at_once
        if is_last or len(quick) > 0.9 * len(at_once):
            assert len(quick) > 0.9 * len(at_once)
            assert float(counted["reordered"]) > 0.3
            break


def test_duplicates_arrive_twice(network: NamespaceNetwork) -> None:
    decided, received, counted = emulated(network, "duplicate-20")
    assert Counter(received.numbers) == {number: len(copies) for number, copies in enumerate(decided)}
    assert float(counted["duplicated"]) == pytest.approx(0.2, abs=0.05)


def test_ways_differ_by_where_they_come_from(network: NamespaceNetwork) -> None:
    target, origin = network.nodes
    network.shape_links(target, {str(origin.address): Netem(delay=300), "10.77.9.9": Netem(loss=100)})
    received = exchange(network, PACKETS)
    assert sorted(received.numbers) == list(range(PACKETS))
    assert min(received.seconds) >= 0.299


def test_the_end_of_a_condition_lets_everything_pass(network: NamespaceNetwork) -> None:
    network.shape(Condition.parse("loss-90"))
    network.shape(Condition())
    assert sorted(exchange(network, PACKETS).numbers) == list(range(PACKETS))
    assert network.in_force()[0] == {"by": "nothing"}


def test_a_rate_holds_what_is_sent_back(network: NamespaceNetwork) -> None:
    # 900 packets of 12 + 42 bytes at 256 kbit/s take 1.5 s, less what may leave at once.
    network.shape(Condition.parse("bw-256"))
    received = exchange(network, PACKETS)
    # Two cores that send by turns may swap some of them before the queue.
    assert sorted(received.numbers) == list(range(PACKETS))
    assert received.took > 0.5 * 1.5
    assert network.in_force()[0] == {"by": "tbf", "rate_kbit": 256}


def test_nobody_reaches_a_node_behind_a_router_that_reaches_everybody(tmp_path: Path) -> None:
    with NamespaceNetwork(tmp_path, 2, behind_nat=1) as network:
        outside, inside = network.nodes
        with in_namespace(str(outside.namespace)):
            server, caller = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        with in_namespace(str(inside.namespace)):
            client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with server, client, caller:
            server.bind((outside.address, PORT))
            server.settimeout(DEADLINE)
            client.settimeout(DEADLINE)
            client.sendto(b"hello", (outside.address, PORT))
            text, sender = server.recvfrom(100)
            assert text == b"hello" and sender[0] == network.seen_as(inside) != inside.address
            server.sendto(b"answer", sender)
            assert client.recv(100) == b"answer"
            with pytest.raises(OSError, match="unreachable"):
                caller.sendto(b"knock", (inside.address, PORT))
