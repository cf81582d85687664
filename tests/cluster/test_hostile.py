"""Several attacks at once: a change still arrives, in bounded memory.  All kinds, with figures: docs/network.md."""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
from collections.abc import Callable, Iterator

import pytest

from eval.net.attacker import KINDS, PROCESSOR
from eval.net.hostile import READABLE, attacking, prepare
from eval.net.scenario import peak_mib, reset_peak, seconds_to_all
from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Seconds of the attacks, and MiB that they may cost a daemon.
ATTACK = 6.0
MEMORY = 32
#: Of an attack that is measured: seconds, changes before it and in it, how often it is tried, and how many times as
#: long a change may take meanwhile.
MEASURED = 3.0
CHANGES = 7
TRIES = 3
MOST = 1.5
#: Files that an attacker sends or asks for.
FILES = 100


@pytest.mark.parametrize("readable", READABLE)
def test_a_change_arrives_while_a_peer_attacks(network: Callable[[int], NamespaceNetwork], readable: str) -> None:
    """In a closed filesystem the peer is a member."""
    whole = network(3)
    *honest, bad = whole.nodes
    closed = readable == "closed"
    cluster = Cluster.start(whole, honest, closed=closed)
    seconds_to_all(honest, "before", b"before", DEADLINE)
    kinds = "slow-loris", "an endless line", "replayed entries", "everything, again", "gossip of announcements"
    prepare(cluster, bad, kinds, closed=closed)
    pids = [node.daemon(NAME) for node in honest]
    before = [peak_mib(pid) for pid in pids]
    for pid in pids:
        reset_peak(pid)
    with contextlib.ExitStack() as attacks:
        ends = [attacks.enter_context(attacking(honest, bad, kind, ATTACK)) for kind in kinds]
        for number in range(5):
            seconds_to_all(honest, f"during{number}", os.urandom(100), 4 * DEADLINE)
        counts = [end() for end in ends]
    assert all(sum(count.values()) - count[PROCESSOR] > 0 for count in counts), counts
    assert [node.daemon(NAME) for node in honest] == pids
    peaks = [peak_mib(pid) for pid in pids]
    assert all(now < most + MEMORY for now, most in zip(peaks, before, strict=True)), (peaks, before)
    assert not [node.address for node in honest if "Traceback" in node.log(NAME)]
    cluster.wait_until_equal(DEADLINE)


@pytest.fixture(scope="module", params=READABLE)
def attacked(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[list[Node], Node]]:
    """Three nodes of a filesystem, and an attacker that is prepared for all kinds."""
    closed = request.param == "closed"
    with NamespaceNetwork(tmp_path_factory.mktemp("attacked"), 4) as whole:
        *honest, bad = whole.nodes
        cluster = Cluster.start(whole, honest, closed=closed)
        cluster.wait_for_sessions()
        for number in range(FILES):
            (honest[0].mountpoint / f"file{number}").write_bytes(os.urandom(100))
        prepare(cluster, bad, KINDS, closed=closed)
        yield honest, bad


@pytest.mark.alone
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_takes_not_much_longer_while_a_peer_attacks(attacked: tuple[list[Node], Node], kind: str) -> None:
    """The best of some tries counts: what an attack costs, it costs each time."""
    honest, bad = attacked
    names = (f"{kind.replace(' ', '-')}-{number}" for number in itertools.count())

    def median() -> float:
        return statistics.median(seconds_to_all(honest, next(names), os.urandom(100), DEADLINE) for _ in range(CHANGES))

    ratios: list[float] = []
    while len(ratios) < TRIES and not (ratios and ratios[-1] <= MOST):
        before = median()
        with attacking(honest, bad, kind, MEASURED, "--yield-cores") as attack:
            attacked = median()
            done = attack()
        ratios.append(attacked / statistics.mean((before, median())))
        assert sum(done.values()) - done.get(PROCESSOR, 0.0) > 0, "it was no attack"
    assert min(ratios) <= MOST, ratios
