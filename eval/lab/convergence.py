"""Files written on one node, one after the other, until they are on all: under each condition, in each mode.

Gossip alone, sync alone by its interval, both together as in the paper, and BaseFS as it is (evaluation of the paper,
"Gossip Layer", "Sync Protocol", "BaseFS").
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval import origin
from eval.lab.arrivals import Watch
from eval.lab.clusters import JITTERS, LIMITS, running
from eval.lab.plan import Experiment, Plan
from eval.net.changes import BLOCK_BYTES, SMALL
from eval.rows import Row, Rows
from eval.traffic import Meter, Traffic
from tests.support.cluster import Cluster
from tests.support.shaping import Condition

#: Conditions of a quick run, of a longer one, and of the paper.
FEW = ("none", "delay-160", "loss-50")
MORE = (
    *("none", "delay-40", "delay-160", "delay-640", "delay-2560"),
    *("loss-10", "loss-30", "loss-50", "loss-70", "reorder-30", "reorder-70", "bw-256", "bw-32"),
)
PAPERS = (
    *("none", *(f"delay-{10 << step}" for step in range(9)), *(f"loss-{percent}" for percent in range(10, 90, 10))),
    *(f"reorder-{percent}" for percent in range(10, 100, 20)),
    *(f"bw-{1024 >> step}" for step in range(6)),
)
#: Seconds between the arrival of a file and the next one.
PAUSE = 1.0
#: Files of each number of blocks: the small ones scatter more.
_REPEAT_SMALL, _SMALL_BLOCKS = 3, 3
#: Files of each size where defaults are compared, which differ by less than Serf's interval scatters; their sizes.
_REPEAT_DEFAULTS = 9
_DEFAULTS_SIZES = {"events": (0, 1, 3, 7, 15), "jitter": (15, 254)}
#: Columns about shaping, as far as known: kbit/s, packets, shares, milliseconds.
_IN_FORCE = (
    *("rate_kbit", "packets", "lost", "overflow", "duplicated", "reordered", "delay_ms", "deviation_ms", "late_ms"),
)
#: Intervals of the patience that a sync needs: a random peer each time, so news doubles about once an interval.
_INTERVALS = 8

FILES = {
    "convergence": ("backend", "nodes", "mode", "condition", "blocks", "number"),
    "traffic": ("backend", "nodes", "mode", "condition", "node"),
}


@dataclass(frozen=True)
class _Cell:
    """Files under one condition in one mode."""

    plan: Plan
    mode: str
    condition: str

    @property
    def key(self) -> Row:
        return {**self.plan.key(), "mode": self.mode, "condition": self.condition}

    @property
    def wait(self) -> float:
        interval = float(self.mode.partition("-")[2]) if self.mode.startswith("sync-") else 0.0
        return max(self.plan.wait, _INTERVALS * interval)

    def missing(self, rows: Rows) -> list[tuple[int, int]]:
        """(blocks, number) of the files that have no row yet."""
        sizes = self.plan.some((0, 3), (0, 1, 3, 15, 63), (0, 1, 3, 7, 15, 31, 63, 254))
        kind = self.mode.partition("-")[0]
        if kind == "sync":
            sizes = (0, 15)
        files = [
            (blocks, number) for blocks in sizes for number in range(_REPEAT_SMALL if blocks <= _SMALL_BLOCKS else 1)
        ]
        if kind in _DEFAULTS_SIZES:
            repeat = self.plan.some(1, _REPEAT_DEFAULTS, _REPEAT_DEFAULTS)
            files = [(blocks, number) for blocks in _DEFAULTS_SIZES[kind] for number in range(repeat)]
        return [(b, n) for b, n in files if not rows.has(**self.key, blocks=b, number=n)]


def _measure(plan: Plan, rows: Mapping[str, Rows], modes: Sequence[str], conditions: Sequence[str]) -> None:
    cells = [_Cell(plan, mode, condition) for mode in modes for condition in conditions]
    # In random order, so that what the machine does for a while meets all modes and conditions alike.
    random.Random(plan.seed).shuffle(cells)
    for cell in cells:
        missing = cell.missing(rows["convergence"])
        if not missing or plan.over:
            continue
        blocks, number = missing[0]
        with contextlib.ExitStack() as stack:
            # What keeps a cluster from starting is a row of the first file.
            with rows["convergence"].recording(**cell.key, blocks=blocks, number=number):
                # A new one each time, as in the paper: after a bad network agents and sessions are still recovering.
                cluster = stack.enter_context(running(plan, cell.mode))
            _run_cell(cell, cluster, rows)


def _run_cell(cell: _Cell, cluster: Cluster, rows: Mapping[str, Rows]) -> None:
    meter = Meter(cluster.nodes)
    begin, before = time.monotonic(), meter.read()
    cluster.network.shape(Condition.parse(cell.condition), seed=cell.plan.seed)
    found = []
    for blocks, number in cell.missing(rows["convergence"]):
        if cell.plan.over:
            break
        seed = f"{cell.plan.seed} {cell.condition} {blocks} {number}"
        content = random.Random(seed).randbytes(blocks * BLOCK_BYTES or SMALL)
        with rows["convergence"].recording(**cell.key, blocks=blocks, number=number):
            watch = Watch(cluster.mountpoints)
            arrival = watch.write(f"{cell.condition}-{blocks}-{number}", content)
            watch.look_until(time.monotonic() + cell.wait)
        row = {
            **cell.key,
            "blocks": blocks,
            "number": number,
            **arrival.columns(),
            "waited at most s": cell.wait,
            **shaping(cluster),
            **origin.versions(),
        }
        rows["convergence"].add(row, quiet=True)
        found.append(row)
        time.sleep(PAUSE)
    add_traffic(rows["traffic"], cell.key, before, meter.read(), time.monotonic() - begin, len(found))
    print(summary(f"{cell.mode} {cell.condition}", found, cell.wait), flush=True)


def add_traffic(
    rows: Rows, key: Row, before: Sequence[Traffic], after: Sequence[Traffic], seconds: float, files: int
) -> None:
    """A row for each node: bytes that it has sent by protocol, what an idle cluster sends included."""
    for index, (then, now) in enumerate(zip(before, after, strict=True)):
        sent = now - then
        traffic = {"serf udp": sent.serf_udp, "serf tcp": sent.serf_tcp, "sync": sent.sync}
        rows.add({**key, "node": index, "seconds": round(seconds, 1), "files": files, **traffic}, quiet=True)


def shaping(cluster: Cluster) -> Row:
    """Columns: what was really done to packets, in the mean of all nodes."""
    found = cluster.network.in_force()
    row: Row = {"shaped by": found[0]["by"]}
    for name in _IN_FORCE:
        values = [float(node[name]) for node in found if name in node]
        row[name] = round(sum(values) / len(values), 4) if values else ""
    return row


def summary(what: str, found: Sequence[Row], wait: float) -> str:
    """A line: when files were on all nodes, and how many were not."""
    times = [float(row["all s"]) for row in found if row["all s"] != ""]
    missed = len(found) - len(times)
    text = f"{what}: {len(found)} files"
    if times:
        text += f", on all nodes after {min(times):.2f} to {max(times):.2f} s"
    return text + (f", {missed} not on all within {wait:g} s" if missed else "")


def _gossip(plan: Plan, rows: dict[str, Rows]) -> None:
    _measure(plan, rows, ["gossip"], plan.some(FEW, MORE, PAPERS))


def _sync(plan: Plan, rows: dict[str, Rows]) -> None:
    intervals = plan.some((1, 4), (1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32, 64, 128))
    _measure(plan, rows, [f"sync-{seconds}" for seconds in intervals], ["none"])


def _both(plan: Plan, rows: dict[str, Rows]) -> None:
    _measure(plan, rows, ["push", "paper"], plan.some(FEW, MORE, PAPERS))


def _defaults(plan: Plan, rows: dict[str, Rows]) -> None:
    limits, jitters = plan.some((1, 4), LIMITS[:-1], LIMITS), plan.some((0.0, 0.2), JITTERS, JITTERS)
    modes = [f"events-{most}" for most in limits] + [f"jitter-{seconds:g}" for seconds in jitters]
    _measure(plan, rows, modes, ["none"])


GOSSIP = Experiment("gossip alone under delay, loss, reordering and slow links", FILES, _gossip)
SYNC = Experiment("sync alone by its interval, and its traffic", FILES, _sync)
BOTH = Experiment("everything together: as in the paper, and with sessions that stay", FILES, _both)
DEFAULTS = Experiment("events before a change is announced instead, and the jitter of pulls", FILES, _defaults)
