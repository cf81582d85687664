"""Two halves of a cluster that cannot reach each other for a while, both written to, and then joined again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from eval.net.scenario import Options, Scenario, cpu_of_all, running, say, settled_root, wait_for_root
from eval.rows import Row, Rows
from eval.traffic import Meter
from tests.support.cluster import NAME, Cluster, ask, differences, snapshot, whole_root
from tests.support.node import Node
from tests.support.wait import wait_until

#: Changes on each side, and seconds that the cut lasts.
CHANGES = 1000
CUT = 60.0
#: Seconds for the halves to be equal again, after which the run is given up.
PATIENCE = 300.0
#: Of the cut, the part in which is written; the rest is silence.
_WRITING = 0.7


def _run(options: Options, rows: Rows) -> None:
    changes, seconds = options.changes or CHANGES, options.seconds or CUT
    for count in options.nodes or (20,):
        for profile in options.profiles or ("wan",):
            for mode in options.modes or ("push", "gossip"):
                key = {"nodes": count, "profile": profile, "mode": mode, "changes a side": changes, "cut s": seconds}
                if not rows.has(**key):
                    with rows.recording(**key), running(count, profile=profile, mode=mode, writers=count) as cluster:
                        rows.add({**key, **_measure(cluster, changes, seconds)})


def _measure(cluster: Cluster, changes: int, seconds: float) -> Row:
    half = len(cluster.nodes) // 2
    sides = [cluster.nodes[:half], cluster.nodes[half:]]
    meter = Meter(cluster.nodes)
    wait_for_root(cluster.nodes, settled_root(cluster.nodes[0]), PATIENCE)
    say(f"cut for {seconds:g} s, {changes} changes on each side")
    cluster.network.split(sides[1])
    start = time.monotonic()
    _write_on_both(sides, changes, seconds * _WRITING)
    time.sleep(max(0.0, start + seconds - time.monotonic()))
    equal = [len(_roots(side)) == 1 for side in sides]
    say("what a person sees on the first node")
    print(sides[0][0].basefs("members", NAME))
    alive = max(sum(member["status"] == "alive" for member in ask(side[0], "members")) for side in sides)
    had = _entries(cluster.nodes)
    before, used = meter.total(), cpu_of_all(cluster.nodes)
    cluster.network.join()
    took = wait_until(lambda: len(_roots(cluster.nodes)) == 1, PATIENCE, "all nodes are equal")
    sent, busy = meter.total() - before, cpu_of_all(cluster.nodes) - used
    # What a node lacked of what the others have, all nodes together.
    differing = _entries(cluster.nodes) - had
    trees = [snapshot(side[0].mountpoint) for side in sides]
    return {
        "entries a node lacked": differing // len(cluster.nodes),
        "halves equal in the cut": sum(equal),
        "seen alive in the cut": alive,
        "equal after s": took,
        # What the machine cannot do sooner, because all nodes share its cores.
        "cpu s / cores": busy / (os.cpu_count() or 1),
        "cpu s a node": busy / len(cluster.nodes),
        "cpu ms a differing entry": 1000 * busy / differing,
        "bytes of sync a differing entry": sent.sync / differing,
        "bytes a node": round(sent.total / len(cluster.nodes)),
        "of them serf": round(sent.serf / len(cluster.nodes)),
        "of them sync": round(sent.sync / len(cluster.nodes)),
        "paths that differ": len(differences(*trees)),
    }


def _write_on_both(sides: Sequence[Sequence[Node]], changes: int, seconds: float) -> None:
    """Small files, in turn by the nodes of a side, spread over some seconds."""

    def write(side: Sequence[Node], name: str) -> None:
        start = time.monotonic()
        for number in range(changes):
            (side[number % len(side)].mountpoint / f"{name}{number}").write_text(f"{name} {number}\n")
            time.sleep(max(0.0, start + seconds * (number + 1) / changes - time.monotonic()))

    writers = [threading.Thread(target=write, args=pair) for pair in zip(sides, ("left", "right"), strict=True)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def _entries(nodes: Sequence[Node]) -> int:
    """Entries in the logs of all nodes together."""
    return sum(int(ask(node, "summary")["entries"]) for node in nodes)


def _roots(nodes: Sequence[Node]) -> set[str]:
    # Those that lack contents differ from all others.
    return {whole_root(node) or str(node.home) for node in nodes}


SCENARIO = Scenario(
    "a cluster in two halves, 1000 changes on each, and healed: seconds until all nodes are equal",
    ("nodes", "profile", "mode", "changes a side", "cut s"),
    _run,
)
