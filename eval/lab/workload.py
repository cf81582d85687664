"""The paper's workload: 560 writes, 3 s apart, of as many blocks as configuration management might write.

On a perfect network, and on one like Community-Lab, rebuilt from its published characterisation: the latency of each
link is drawn from those that were measured there, and some nodes are behind routers that translate addresses
(evaluation of the paper, "BaseFS", "CommunityLab testbed").
"""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Mapping
from pathlib import Path

from eval import origin
from eval.lab.arrivals import Arrival, Watch
from eval.lab.clusters import running
from eval.lab.convergence import FILES, add_traffic, shaping, summary
from eval.lab.plan import Experiment, Plan
from eval.net.changes import BLOCK_BYTES, SMALL
from eval.rows import Row, Rows
from eval.traffic import Meter
from tests.support.cluster import Cluster
from tests.support.netem import Netem

#: Writes by their number of blocks (paper, section 5.1).
WRITES = {0: 340, 1: 160, 2: 20, 4: 20, 16: 20}
#: Seconds between two of them, in the paper and in a run that is scaled down.
SPACING, QUICK_SPACING = 3.0, 0.5
#: Nodes of Community-Lab, and how many of them turned out to be behind NAT (paper, section 5.1.5).
_NODES, _BEHIND_NAT = 35, 2
#: Links of Community-Lab: latency there and back in milliseconds, hops.
_LINKS = Path(__file__).parent.parent / "paper" / "characterization.csv"
#: Standard deviation of a delay by its mean: the characterisation has none, so it is that of the other experiments.
_JITTER = 0.2


def sequence(plan: Plan) -> list[int]:
    """Numbers of blocks in the order in which they are written."""
    blocks = [count for count, writes in WRITES.items() for _ in range(plan.scaled(writes, 1))]
    random.Random(plan.seed).shuffle(blocks)
    return blocks


def links(count: int, seed: int) -> dict[tuple[int, int], Netem]:
    """What the way from each node to each other one is like; both ways of a link are alike."""
    with _LINKS.open(newline="") as file:
        latencies = [float(row["latency"]) for row in csv.DictReader(file)]
    source = random.Random(seed)
    found = {}
    for one in range(count):
        for other in range(one):
            delay = source.choice(latencies) / 2
            found[one, other] = found[other, one] = Netem(delay=delay, jitter=delay * _JITTER)
    return found


def _run(plan: Plan, rows: dict[str, Rows], condition: str, behind_nat: int) -> None:
    for mode in ("push", "paper"):
        key = {**plan.key(), "mode": mode, "condition": condition}
        blocks = sequence(plan)
        if plan.over or all(rows["workload"].has(**key, blocks=b, number=n) for n, b in enumerate(blocks)):
            continue
        # What ends a run early is a row of its first write.
        with (
            rows["workload"].recording(**key, blocks=blocks[0], number=0),
            running(plan, mode, behind_nat=behind_nat) as cluster,
        ):
            if condition == "community-lab":
                _impose(cluster, plan.seed)
            _write(plan, key, blocks, cluster, rows)


def _impose(cluster: Cluster, seed: int) -> None:
    ways = links(len(cluster.nodes), seed)
    for index, node in enumerate(cluster.nodes):
        from_others = {
            cluster.network.seen_as(other): ways[number, index]
            for number, other in enumerate(cluster.nodes)
            if number != index
        }
        cluster.network.shape_links(node, from_others, seed=seed * len(cluster.nodes) + index)


def _write(plan: Plan, key: Row, blocks: list[int], cluster: Cluster, rows: Mapping[str, Rows]) -> None:
    meter, watch = Meter(cluster.nodes), Watch(cluster.mountpoints)
    before, begin = meter.read(), time.monotonic()
    spacing = plan.some(QUICK_SPACING, QUICK_SPACING, SPACING)
    arrivals: list[Arrival] = []
    for number, count in enumerate(blocks):
        content = random.Random(f"{plan.seed} {number}").randbytes(count * BLOCK_BYTES or SMALL)
        arrivals.append(watch.write(f"{key['condition']}-{number}", content))
        watch.look_until(begin + (number + 1) * spacing, early=False)
    watch.look_until(time.monotonic() + plan.wait)
    passed = time.monotonic() - begin
    add_traffic(rows["workload-traffic"], key, before, meter.read(), passed, len(blocks))
    common = {
        "spacing s": spacing,
        "root hashes": len(cluster.root_hashes()),
        **shaping(cluster),
        **origin.versions(),
    }
    found = [
        {**key, "blocks": count, "number": number, **arrival.columns(), **common}
        for number, (count, arrival) in enumerate(zip(blocks, arrivals, strict=True))
    ]
    for row in found:
        rows["workload"].add(row, quiet=True)
    print(summary(f"{key['mode']} {key['condition']}", found, plan.wait), flush=True)


def _perfect(plan: Plan, rows: dict[str, Rows]) -> None:
    _run(plan, rows, "none", 0)


def _community(plan: Plan, rows: dict[str, Rows]) -> None:
    _run(plan, rows, "community-lab", max(1, round(plan.count * _BEHIND_NAT / _NODES)))


_FILES = {"workload": FILES["convergence"], "workload-traffic": FILES["traffic"]}
WORKLOAD = Experiment("560 writes as configuration management makes them", _FILES, _perfect)
COMMUNITY = Experiment("the same on a network like Community-Lab, some nodes behind NAT", _FILES, _community)
