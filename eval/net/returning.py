"""A node that was away while others wrote: cut off with its daemon running, or stopped."""

from __future__ import annotations

import time

from eval.net.scenario import (
    Options,
    Scenario,
    cpu_seconds,
    peak_mib,
    reset_peak,
    running,
    say,
    settled_root,
    wait_for_root,
)
from eval.net.verifying import verify_seconds
from eval.rows import Row, Rows
from eval.traffic import Meter
from tests.support.cluster import NAME, Cluster, ask

#: Entries that are written meanwhile.
ENTRIES = 10_000
#: Seconds for the node to have them, after which the run is given up.
PATIENCE = 300.0
_NODES = 5
_FILES_A_DIRECTORY = 100


def _run(options: Options, rows: Rows) -> None:
    entries = options.entries or ENTRIES
    for count in options.nodes or (_NODES,):
        for way in ("cut off", "stopped"):
            key = {"nodes": count, "away": way, "entries": entries}
            if not rows.has(**key):
                with rows.recording(**key), running(count) as cluster:
                    rows.add({**key, **_measure(cluster, way, entries)})


def _measure(cluster: Cluster, way: str, entries: int) -> Row:
    first, away = cluster.nodes[0], cluster.nodes[-1]
    wait_for_root(cluster.nodes, settled_root(first), PATIENCE)
    if way == "cut off":
        cluster.network.unplug(away)
    else:
        away.basefs("unmount", NAME)
    say(f"writing {entries} entries")
    for number in range(entries):
        directory = first.mountpoint / f"d{number // _FILES_A_DIRECTORY}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{number}").write_text(f"{number}\n")
    root = settled_root(first)
    wait_for_root(cluster.nodes[:-1], root, PATIENCE)
    meter = Meter(cluster.nodes)
    say("back again")
    used = 0.0
    start = time.monotonic()
    if way == "cut off":
        reset_peak(away.daemon(NAME))
        used = cpu_seconds(away.daemon(NAME))
        cluster.network.plug_in(away)
    else:
        away.mount(NAME, "--owners")
    wait_for_root([away], root, PATIENCE)
    took = time.monotonic() - start
    sent = meter.total()
    cpu, verify = cpu_seconds(away.daemon(NAME)) - used, verify_seconds(entries)
    return {
        "seconds": took,
        "cpu s": cpu,
        "verify cpu s": verify,
        "cpu x verify": cpu / verify,
        "bytes of sync": sent.sync,
        "bytes of sync a differing entry": sent.sync / entries,
        "peak MiB": peak_mib(away.daemon(NAME)),
        "entries there": ask(away, "summary")["entries"],
    }


SCENARIO = Scenario(
    "a node that was away for 10 000 entries: seconds until it has them", ("nodes", "away", "entries"), _run
)
