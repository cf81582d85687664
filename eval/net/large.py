"""One large file to a few nodes: when it is complete everywhere, who sent how much of it, and in how much memory."""

from __future__ import annotations

import hashlib
import itertools
import time
from pathlib import Path

from eval.net.scenario import Options, Scenario, peak_mib, reset_peak, running, say, settled_root, wait_for_root
from eval.rows import Row, Rows
from eval.traffic import Meter
from tests.support.cluster import NAME, Cluster
from tests.support.shaping import Condition

#: Megabytes of the file, and nodes that get it (the one that writes it included).
SIZE = 200
_NODES = 5
#: Seconds for it to be everywhere, after which the run is given up.
PATIENCE = 400.0
_PIECE = 1_000_000


def _run(options: Options, rows: Rows) -> None:
    size = options.size or SIZE
    where = itertools.product(options.nodes or (_NODES,), options.modes or ("push",), options.conditions or ("none",))
    for count, mode, condition in where:
        key = {"nodes": count, "mode": mode, "condition": condition, "megabytes": size}
        if not rows.has(**key):
            with rows.recording(**key), running(count, mode=mode) as cluster:
                rows.add({**key, **_measure(cluster, condition, size, options)})


def _measure(cluster: Cluster, condition: str, size: int, options: Options) -> Row:
    first, *others = cluster.nodes
    wait_for_root(cluster.nodes, settled_root(first), PATIENCE)
    cluster.network.shape(Condition.parse(condition))
    pids = [node.daemon(NAME) for node in cluster.nodes]
    for pid in pids:
        reset_peak(pid)
    meter = Meter(cluster.nodes)
    say(f"writing {size} MB")
    start = time.monotonic()
    written, chance = hashlib.sha256(), options.chance("large")
    with (first.mountpoint / "large").open("wb") as file:
        for _ in range(size):
            piece = chance.randbytes(_PIECE)
            written.update(piece)
            file.write(piece)
    copied = time.monotonic() - start
    root = settled_root(first)
    published = time.monotonic() - start
    wait_for_root(others, root, PATIENCE)
    complete = time.monotonic() - start
    sent = [traffic.sync for traffic in meter.read()]
    peaks = [peak_mib(pid) for pid in pids]
    say("reading it everywhere")
    wrong = sum(_hash(node.mountpoint / "large") != written.hexdigest() for node in cluster.nodes)
    return {
        "copied s": copied,
        "published s": published,
        "on all s": complete,
        "Mbit/s a node": size * 8 / (complete - published),
        "first node sent x the file": sent[0] / size / _PIECE,
        "others sent x the file": sum(sent[1:]) / size / _PIECE,
        "peak MiB of the first": peaks[0],
        "peak MiB of others": max(peaks[1:]),
        "peak MiB with reading": max(peak_mib(pid) for pid in pids),
        "nodes with other bytes": wrong,
    }


def _hash(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            found.update(piece)
    return found.hexdigest()


SCENARIO = Scenario(
    "a file of 200 MB to 5 nodes: seconds, bytes sent, memory (--size, --condition: a narrow link)",
    ("nodes", "mode", "condition", "megabytes"),
    _run,
)
