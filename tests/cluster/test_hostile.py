"""Several attacks at once: a change still arrives, in bounded memory.  All kinds, with figures: docs/network.md."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import pytest

from eval.net.attacker import PROCESSOR
from eval.net.hostile import READABLE, attacking, prepare
from eval.net.scenario import peak_mib, reset_peak, seconds_to_all
from tests.support.cluster import NAME, PATIENCE, Cluster
from tests.support.namespaces import NamespaceNetwork

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Seconds of the attacks, and MiB that they may cost a daemon.
ATTACK = 6.0
MEMORY = 64


@pytest.mark.parametrize("readable", READABLE)
def test_a_change_arrives_while_a_peer_attacks(network: Callable[[int], NamespaceNetwork], readable: str) -> None:
    """In a closed filesystem the peer is a member."""
    whole = network(3)
    *honest, bad = whole.nodes
    closed = readable == "closed"
    cluster = Cluster.start(whole, honest, closed=closed)
    seconds_to_all(honest, "before", b"before", PATIENCE)
    kinds = "slow-loris", "an endless line", "replayed entries", "everything, again", "gossip of announcements"
    prepare(cluster, bad, kinds, closed=closed)
    pids = [node.daemon(NAME) for node in honest]
    before = [peak_mib(pid) for pid in pids]
    for pid in pids:
        reset_peak(pid)
    with contextlib.ExitStack() as attacks:
        ends = [attacks.enter_context(attacking(honest, bad, kind, ATTACK)) for kind in kinds]
        for number in range(5):
            seconds_to_all(honest, f"during{number}", os.urandom(100), 4 * PATIENCE)
        counts = [end() for end in ends]
    assert all(sum(count.values()) - count[PROCESSOR] > 0 for count in counts), counts
    assert [node.daemon(NAME) for node in honest] == pids
    assert all(peak_mib(pid) < most + MEMORY for pid, most in zip(pids, before, strict=True))
    assert not [node.address for node in honest if "Traceback" in node.log(NAME)]
    cluster.wait_until_equal(PATIENCE)
