"""A cluster in which nothing happens: bytes and processor time a node and a minute."""

from __future__ import annotations

import time
from dataclasses import dataclass

from eval.net.scenario import Options, Scenario, cpu_seconds, running, say, serf_pid
from eval.rows import Row, Rows
from eval.traffic import Meter
from tests.support.cluster import NAME, Cluster

#: Seconds that a cluster is watched, after as many seconds of rest as it takes to settle.
WATCH = 60.0
_REST = 15.0


def _run(options: Options, rows: Rows) -> None:
    for count in options.nodes or (5, 15, 30):
        for mode in options.modes or ("push", "gossip"):
            key = {"nodes": count, "mode": mode}
            if not rows.has(**key):
                with rows.recording(**key), running(count, mode=mode) as cluster:
                    rows.add({**key, **_measure(cluster, options.seconds or WATCH)})


@dataclass
class _Used:
    daemon: float
    serf: float

    @classmethod
    def by(cls, cluster: Cluster) -> _Used:
        daemons = sum(cpu_seconds(node.daemon(NAME)) for node in cluster.nodes)
        return cls(daemons, sum(cpu_seconds(serf_pid(node)) for node in cluster.nodes))


def _measure(cluster: Cluster, seconds: float) -> Row:
    meter = Meter(cluster.nodes)
    time.sleep(_REST)
    say(f"watching for {seconds:g} s")
    used, sent, start = _Used.by(cluster), meter.total(), time.monotonic()
    time.sleep(seconds)
    # The sum of all nodes, a node and a minute.
    share = 60 / (time.monotonic() - start) / len(cluster.nodes)
    later, traffic = _Used.by(cluster), meter.total() - sent
    return {
        "bytes a minute": round(traffic.total * share),
        "serf udp": round(traffic.serf_udp * share),
        "serf tcp": round(traffic.serf_tcp * share),
        "sync": round(traffic.sync * share),
        "daemon cpu s": (later.daemon - used.daemon) * share,
        "serf cpu s": (later.serf - used.serf) * share,
    }


SCENARIO = Scenario("an idle cluster: bytes and CPU a node and minute", ("nodes", "mode"), _run)
