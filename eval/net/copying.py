"""`/etc` copied on one node: when it is complete on all, and what each node sent for it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from eval.net.scenario import Options, Rate, Scenario, cpu_of_all, running, say, settled_root, wait_for_root
from eval.rows import Row, Rows
from eval.traffic import Meter
from tests.support.cluster import Cluster, Snapshot, differences, snapshot

#: Seconds for the copy to arrive everywhere, after which the run is given up.
PATIENCE = 300.0
_SOURCE = Path("/etc")


def _run(options: Options, rows: Rows) -> None:
    for count in options.nodes or (30,):
        for profile in options.profiles or ("wan",):
            for mode in options.modes or ("push", "gossip"):
                key = {"nodes": count, "profile": profile, "mode": mode}
                if not rows.has(**key):
                    with rows.recording(**key), running(count, profile=profile, mode=mode) as cluster:
                        rows.add({**key, **_measure(cluster)})


def _measure(cluster: Cluster) -> Row:
    first, *others = cluster.nodes
    meter = Meter(cluster.nodes)
    say("what an idle cluster sends")
    idle = Rate.measure(meter, 15)
    with tempfile.TemporaryDirectory(prefix="basefs-etc-") as text:
        # Copied once first, so that it is on the same disk and nothing changes it meanwhile.
        source = Path(text) / "etc"
        subprocess.run(["cp", "-a", _SOURCE, source], check=True)
        say("copying")
        before, used, start = meter.read(), cpu_of_all(cluster.nodes), time.monotonic()
        subprocess.run(["cp", "-a", source, first.mountpoint / "copy"], check=True)
        copied = time.monotonic() - start
        root = settled_root(first)
        published = time.monotonic() - start
        wait_for_root(others, root, PATIENCE)
        complete = time.monotonic() - start
        busy = cpu_of_all(cluster.nodes) - used
        sent = [now - then for now, then in zip(meter.read(), before, strict=True)]
        say("comparing")
        expected = _readable(snapshot(source))
        wrong = sum(len(differences(expected, _readable(snapshot(node.mountpoint / "copy")))) for node in cluster.nodes)
    total = sum(sent[1:], sent[0])
    totals = sorted(traffic.total for traffic in sent)
    return {
        "paths": len(expected),
        "bytes of contents": sum(len(content) for _, _, content in expected.values()),
        "copied s": copied,
        "published s": published,
        "on all s": complete,
        # What the machine cannot do sooner, because all nodes share its cores.
        "cpu s / cores": busy / (os.cpu_count() or 1),
        "paths that differ": wrong,
        **idle.beyond(total, complete, len(cluster.nodes)),
        "first node": sent[0].total,
        "least": totals[0],
        "most": totals[-1],
        "share of gossip": total.serf / total.total,
        "share of sync": total.sync / total.total,
    }


def _readable(tree: Snapshot) -> Snapshot:
    """Without the permission to write, which nodes without a key do not show."""
    return {path: (kind, bits & ~0o222, content) for path, (kind, bits, content) in tree.items()}


SCENARIO = Scenario("/etc copied on one node: seconds to all, bytes a node", ("nodes", "profile", "mode"), _run)
