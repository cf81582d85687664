"""A small change on all nodes: BaseFS, a raw Serf event, etcd, Syncthing; on the same nodes, one after the other."""

from __future__ import annotations

import contextlib
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
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
    key = plan.key()
    if plan.over or all(rows["peers"].has(**key, peer=peer) for peer in ("BaseFS", *_OTHERS) if _is_here(peer)):
        return
    with contextlib.ExitStack() as stack:
        with rows["peers"].recording(**key, peer="BaseFS"):
            cluster = stack.enter_context(running(plan, "push"))
            own = _changes(_written(cluster.mountpoints))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="basefs-peers-")))
        _add(rows["peers"], key, "BaseFS", own, own)
        for peer, measure in _OTHERS.items():
            if _is_here(peer):
                # What fails is a row of this peer; the others keep theirs.
                with rows["peers"].recording(**key, peer=peer):
                    _add(rows["peers"], key, peer, measure(cluster, directory), own)


def _is_here(peer: str) -> bool:
    return peer not in _PROGRAMS or shutil.which(_PROGRAMS[peer]) is not None


def _add(rows: Rows, key: Row, peer: str, row: Row, own: Row) -> None:
    ratio = round(float(row["all s"]) / float(own["all s"]), 2)
    rows.add({**key, "peer": peer, **row, "x BaseFS": ratio, **origin.versions()}, quiet=True)
    print(f"{peer}: on all nodes after {row['all s']} s, {ratio} x BaseFS", flush=True)


def _serf(cluster: Cluster, _: Path) -> Row:
    with Listeners(cluster.nodes, PATIENCE) as listeners:
        return _changes(lambda number: [listeners.send(number)])


def _etcd(cluster: Cluster, directory: Path) -> Row:
    with Etcd.started(cluster.nodes, directory, PATIENCE) as etcd:
        return _changes(etcd.send)


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
    }


#: What else is measured, on the same nodes; the program that some of them need.
_OTHERS: dict[str, Callable[[Cluster, Path], Row]] = {
    "raw Serf event": _serf,
    "etcd, put to all watchers": _etcd,
    "Syncthing, edit to all": _syncthing,
}
_PROGRAMS = {"etcd, put to all watchers": "etcd", "Syncthing, edit to all": "syncthing"}

PEERS = Experiment("a small change with BaseFS, Serf, etcd and Syncthing", {"peers": _KEYS}, _run)
