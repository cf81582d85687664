"""A new gossip key in a closed cluster while some members are away.

How soon everybody has it and is in the gossip, and for how long members that stayed counted as lost meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from basefs.errors import AgentError
from eval.net.scenario import Options, Scenario, network_of, say
from eval.rawserf import connect
from eval.rows import Row, Rows
from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import in_namespace
from tests.support.node import Node
from tests.support.wait import wait_until

#: Nodes, those that are away while the key changes, and seconds until they come back.
NODES = 30
AWAY = 3
SECONDS = 60.0
PATIENCE = 600.0
#: Seconds without a loss after which the agents see each other.
SETTLED = 5.0
#: Seconds between two looks at the members that a node's Serf agent knows.
_LOOK = 0.2


def _run(options: Options, rows: Rows) -> None:
    for count in options.nodes or (NODES,):
        away = max(1, count * AWAY // NODES)
        key = {"nodes": count, "away": away, "away s": options.seconds or SECONDS}
        if not rows.has(**key):
            say(f"starting {count} nodes, closed")
            with rows.recording(**key), network_of(count) as network:
                cluster = Cluster.start(network, closed=True)
                cluster.wait_for_sessions()
                with Losses(cluster.nodes, away) as losses:
                    found = measure(cluster, away, options.seconds or SECONDS, losses)
                rows.add({**key, **found, **losses.columns()})


class Losses:
    """For how long nodes count as lost by the Serf agents of each other while the block runs; a context manager.

    One thread a node, in the node's network namespace.  A daemon would call members that do not answer.

    Attributes:
        latest: when an agent that stayed last missed another one or did not answer, as `time.monotonic` tells it.
        alive: how many nodes each agent calls alive.
    """

    def __init__(self, nodes: Sequence[Node], away: int) -> None:
        """`away`: how many of them, the last ones, will be cut off."""
        self._stayed = {str(node.address) for node in nodes[:-away]}
        self.alive = {str(node.address): 0 for node in nodes}
        self._stop = threading.Event()
        self._lost: dict[tuple[str, str], float] = {}
        self.latest = 0.0
        self._threads = [threading.Thread(target=self._run, args=(node,), daemon=True) for node in nodes]

    def __enter__(self) -> Losses:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def columns(self) -> Row:
        """The longest time that one node counted as lost by another one, and pairs in which one did."""
        return {"stayed, but lost s": max(self._lost.values(), default=0.0), "pairs that lost": len(self._lost)}

    def _run(self, node: Node) -> None:
        with in_namespace(str(node.namespace)):
            asyncio.run(self._watch(node))

    async def _watch(self, node: Node) -> None:
        name = str(node.address)
        others = self._stayed - {name} if name in self._stayed else set()
        since: dict[str, float] = {}
        while not self._stop.is_set():
            # An agent that starts again is asked again; it has lost nobody by that.
            try:
                async with await connect(node) as client:
                    while not self._stop.is_set():
                        alive = {member.addr for member in await client.members() if member.status == "alive"}
                        self.alive[name] = len(alive)
                        self._note(name, others - alive, since)
                        await asyncio.sleep(_LOOK)
            except (OSError, AgentError):
                self.alive[name] = 0
                self.latest = time.monotonic() if others else self.latest
            await asyncio.sleep(_LOOK)

    def _note(self, node: str, lost: set[str], since: dict[str, float]) -> None:
        now = time.monotonic()
        if lost:
            self.latest = now
        for other in lost:
            passed = now - since.setdefault(other, now)
            self._lost[node, other] = max(self._lost.get((node, other), 0.0), passed)
        for other in since.keys() - lost:
            del since[other]


def measure(cluster: Cluster, away: int, seconds: float, losses: Losses) -> Row:
    """Cut off the last nodes, change the key, and let them come back.  Raises `TimeoutError`."""
    first, *_ = cluster.nodes
    stayed, gone = cluster.nodes[:-away], cluster.nodes[-away:]
    for node in gone:
        cluster.network.unplug(node)
    start = time.monotonic()
    say(f"{away} nodes are cut off")
    # Once it is known that they are away: nothing may have reached them that is still on its way.
    wait_until(lambda: Cluster.alive(first) <= len(stayed), PATIENCE, "it is known who is away")
    old = first.gossip_key(NAME)
    changed = time.monotonic()
    first.basefs("rekey", NAME)
    wait_until(lambda: first.gossip_key(NAME) != old, PATIENCE, "it has a new key")
    wait_until(lambda: _have_key_of(first, stayed), PATIENCE, "who is there has the key")
    reached = time.monotonic() - changed
    time.sleep(max(0.0, start + seconds - time.monotonic()))
    wait_until(lambda: time.monotonic() - losses.latest > SETTLED, PATIENCE, "gossip goes on")
    passed = max(0.0, losses.latest - changed)
    assert {node.gossip_key(NAME) for node in gone} == {old}
    say("they come back")
    for node in gone:
        cluster.network.plug_in(node)
    back = time.monotonic()
    wait_until(lambda: _have_key_of(first, gone), PATIENCE, "who was away has the key")
    returned = time.monotonic() - back
    wait_until(lambda: set(losses.alive.values()) == {len(cluster.nodes)}, PATIENCE, "all see each other")
    return {
        "key with those there s": reached,
        "gossip among those there s": passed,
        "key with those back s": returned,
        "all alive s": time.monotonic() - back,
    }


def _have_key_of(first: Node, nodes: Sequence[Node]) -> bool:
    return {node.gossip_key(NAME) for node in nodes} == {first.gossip_key(NAME)}


SCENARIO = Scenario(
    "a new gossip key while 3 of 30 members are cut off: seconds until all have it and see each other",
    ("nodes", "away", "away s"),
    _run,
)
