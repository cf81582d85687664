"""A new gossip key in a closed cluster while some members are away: how soon everybody has it, and is in the gossip."""

from __future__ import annotations

import time
from collections.abc import Sequence

from basefs.daemon.gossipkeys import KeptKey
from eval.net.scenario import Options, Scenario, network_of, say
from eval.rows import Row, Rows
from tests.support.cluster import NAME, Cluster
from tests.support.node import Node
from tests.support.wait import wait_until

#: Nodes, those that are away while the key changes, and seconds until they come back.
NODES = 30
AWAY = 3
SECONDS = 60.0
PATIENCE = 600.0


def _run(options: Options, rows: Rows) -> None:
    for count in options.nodes or (NODES,):
        away = max(1, count * AWAY // NODES)
        key = {"nodes": count, "away": away, "away s": options.seconds or SECONDS}
        if not rows.has(**key):
            say(f"starting {count} nodes, closed")
            with rows.recording(**key), network_of(count) as network:
                cluster = Cluster.start(network, closed=True)
                cluster.wait_for_sessions()
                rows.add({**key, **measure(cluster, away, options.seconds or SECONDS)})


def measure(cluster: Cluster, away: int, seconds: float) -> Row:
    """Cut off the last nodes, change the key, and let them come back.  Raises `TimeoutError`."""
    first, *_ = cluster.nodes
    stayed, gone = cluster.nodes[:-away], cluster.nodes[-away:]
    for node in gone:
        cluster.network.unplug(node)
    start = time.monotonic()
    say(f"{away} nodes are cut off")
    # Once it is known that they are away: nothing may have reached them that is still on its way.
    wait_until(lambda: Cluster.alive(first) <= len(stayed), PATIENCE, "it is known who is away")
    old = _key(first)
    changed = time.monotonic()
    first.basefs("rekey", NAME)
    assert _key(first) != old
    reached = wait_until(lambda: _have_key_of(first, stayed), PATIENCE, "who is there has the key")
    wait_until(lambda: all(Cluster.alive(node) >= len(stayed) for node in stayed), PATIENCE, "gossip goes on")
    passed = time.monotonic() - changed
    time.sleep(max(0.0, start + seconds - time.monotonic()))
    assert {_key(node) for node in gone} == {old}
    say("they come back")
    for node in gone:
        cluster.network.plug_in(node)
    back = time.monotonic()
    wait_until(lambda: _have_key_of(first, gone), PATIENCE, "who was away has the key")
    returned = time.monotonic() - back
    wait_until(
        lambda: all(Cluster.alive(node) == len(cluster.nodes) for node in cluster.nodes), PATIENCE, "all see each other"
    )
    return {
        "key with those there s": reached,
        "gossip among those there s": passed,
        "key with those back s": returned,
        "all alive s": time.monotonic() - back,
    }


def _key(node: Node) -> bytes:
    return KeptKey.load(node.home / "fs" / NAME).signed.key.raw


def _have_key_of(first: Node, nodes: Sequence[Node]) -> bool:
    return {_key(node) for node in nodes} == {_key(first)}


SCENARIO = Scenario(
    "a new gossip key while 3 of 30 members are cut off: seconds until all have it and see each other",
    ("nodes", "away", "away s"),
    _run,
)
