"""A small change on all nodes: BaseFS, a raw Serf event, etcd, Syncthing; on the same nodes, one after the other."""

from __future__ import annotations

import itertools
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from eval import origin
from eval.lab.arrivals import Watch
from eval.lab.clusters import running
from eval.lab.plan import Experiment, Plan
from eval.net.changes import SMALL
from eval.peers import syncthing
from eval.peers.etcd import Etcd
from eval.rawserf import Listeners
from eval.rows import Row, Rows
from tests.support.cluster import Cluster

#: Changes of which the median counts, and seconds between them.
CHANGES, PAUSE = 5, 2.0
#: Seconds for a change to be everywhere: Syncthing looks at a changed file after 10 s.
PATIENCE = 180.0
_KEYS = ("backend", "nodes", "peer")

#: Makes a change; returns the seconds to each node, as far as they are known, the last one at the end.
_Change = Callable[[int], Sequence[float]]


def _run(plan: Plan, rows: dict[str, Rows]) -> None:
    if plan.over or rows["peers"].has(**plan.key(), peer="BaseFS"):
        return
    key = {**plan.key(), "peer": "BaseFS"}
    with (
        rows["peers"].recording(**key),
        running(plan, "push") as cluster,
        tempfile.TemporaryDirectory(prefix="basefs-peers-") as text,
    ):
        own = _changes(_written(cluster.mountpoints))
        for peer, row in itertools.chain([("BaseFS", own)], _others(cluster, Path(text))):
            ratio = round(float(row["all s"]) / float(own["all s"]), 2)
            found = {**row, "x BaseFS": ratio, **origin.versions()}
            rows["peers"].add({**plan.key(), "peer": peer, **found}, quiet=True)
            print(f"{peer}: on all nodes after {row['all s']} s, {ratio} x BaseFS", flush=True)


def _others(cluster: Cluster, directory: Path) -> Iterator[tuple[str, Row]]:
    """Those that are installed, by name."""
    with Listeners(cluster.nodes, PATIENCE) as listeners:
        yield "raw Serf event", _changes(lambda number: [listeners.send(number)])
    if shutil.which("etcd"):
        with Etcd.started(cluster.nodes, directory, PATIENCE) as etcd:
            yield "etcd, put to all watchers", _changes(etcd.send)
    if shutil.which("syncthing"):
        yield "Syncthing, edit to all", _syncthing(cluster, directory)


def _syncthing(cluster: Cluster, directory: Path) -> Row:
    with syncthing.started(cluster.nodes, directory) as folders:
        change = _written(folders)
        # The first one waits until they have found each other.
        change(-1)
        return _changes(change)


def _written(directories: Sequence[Path]) -> _Change:
    """A change that is a new small file in the first directory."""

    def change(number: int) -> list[float]:
        watch = Watch(directories)
        arrival = watch.write(f"change{number}", random.Random(number).randbytes(SMALL))
        watch.look_until(time.monotonic() + PATIENCE)
        if not arrival.everywhere:
            raise TimeoutError(f"a small change has not reached all nodes in {PATIENCE:g} s")
        return sorted(value for value in arrival.seconds if value is not None)

    return change


def _changes(change: _Change) -> Row:
    medians, lasts = [], []
    for number in range(CHANGES):
        time.sleep(PAUSE)
        seconds = change(number)
        medians.append(statistics.median(seconds) if len(seconds) > 1 else None)
        lasts.append(max(seconds))
    known = [value for value in medians if value is not None]
    return {
        "changes": CHANGES,
        "median s": round(statistics.median(known), 4) if known else "",
        "all s": round(statistics.median(lasts), 4),
        "least s": round(min(lasts), 4),
        "most s": round(max(lasts), 4),
        "load": origin.load(),
    }


PEERS = Experiment("a small change with BaseFS, Serf, etcd and Syncthing", {"peers": _KEYS}, _run)
