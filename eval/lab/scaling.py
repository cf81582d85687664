"""From two nodes to as many as the machine holds: a small change, processor time and memory (paper, figure 11)."""

from __future__ import annotations

import os
import random
import statistics
import time

import psutil

from eval import origin
from eval.lab.arrivals import Watch
from eval.lab.clusters import running
from eval.lab.plan import Experiment, Plan
from eval.net.changes import SMALL
from eval.net.scenario import cpu_seconds, serf_pid
from eval.rows import Row, Rows
from tests.support.cluster import NAME, Cluster

#: Small changes on each cluster, and seconds between them.
CHANGES, PAUSE = 5, 2.0
#: Seconds over which an idle cluster's processor time is taken.
IDLE = 10.0
_KEYS = ("backend", "nodes", "mode")


def _run(plan: Plan, rows: dict[str, Rows]) -> None:
    for count in plan.some((2, 4), (2, 4, 8, 12, 16), (2, 5, 10, 20, 30, 50, 75, 100)):
        key = {"backend": plan.backend, "nodes": count, "mode": "push"}
        if plan.over or rows["scaling"].has(**key):
            continue
        begin = time.monotonic()
        with rows["scaling"].recording(**key), running(plan, "push", count=count) as cluster:
            start = round(time.monotonic() - begin, 1)
            rows["scaling"].add({**key, "start s": start, **_measure(plan, cluster), **origin.versions()})


def _measure(plan: Plan, cluster: Cluster) -> Row:
    busy, begin = _processor_seconds(cluster), time.monotonic()
    time.sleep(IDLE)
    share = (_processor_seconds(cluster) - busy) / (time.monotonic() - begin)
    medians, lasts, watch = [], [], Watch(cluster.mountpoints)
    for number in range(CHANGES):
        arrival = watch.write(f"change-{number}", random.Random(f"{plan.seed} {number}").randbytes(SMALL))
        watch.look_until(time.monotonic() + plan.wait)
        columns = arrival.columns()
        if columns["all s"] == "":
            raise TimeoutError(f"a small change has not reached all {len(cluster.nodes)} nodes in {plan.wait:g} s")
        medians.append(columns["median s"])
        lasts.append(columns["all s"])
        time.sleep(PAUSE)
    return {
        "changes": CHANGES,
        "median s": statistics.median(medians),
        "all s": statistics.median(lasts),
        "least s": min(lasts),
        "most s": max(lasts),
        "idle cores": round(share, 3),
        "cores": os.cpu_count(),
        "daemon MiB": round(statistics.median(_mib(node.daemon(NAME)) for node in cluster.nodes), 1),
        "serf MiB": round(statistics.median(_mib(serf_pid(node)) for node in cluster.nodes), 1),
    }


def _processor_seconds(cluster: Cluster) -> float:
    return sum(cpu_seconds(node.daemon(NAME)) + cpu_seconds(serf_pid(node)) for node in cluster.nodes)


def _mib(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / (1 << 20)


SCALING = Experiment("from 2 nodes to many: a small change, processor time, memory", {"scaling": _KEYS}, _run)
