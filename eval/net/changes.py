"""One change at a time: files of some blocks, on a perfect network or a bad one, beside a raw Serf event."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.cluster import Cluster
from eval.net import paper
from eval.net.scenario import Options, Rate, Scenario, running, say
from eval.rawserf import Listeners
from eval.rows import Row, Rows
from eval.shaping import Condition
from eval.traffic import Meter, Traffic

#: Blocks of the files, each of incompressible bytes; 0 is a small change, which travels with its entry in one event.
BLOCKS = (0, 1, 2, 4, 16, 64, 254)
#: Bytes of a small change.
SMALL = 100
#: Bytes of content in a block that can be gossiped (design, section 3.3).
BLOCK_BYTES = 480
#: Seconds for a change to arrive everywhere, after which the run is given up.
PATIENCE = 400.0
#: Seconds of silence before and after a measurement, so that the safety net of the one does not fall into the next.
PAUSE = 6.0
#: Seconds between two looks at a node.
_LOOK = 0.005
_RAW = "raw Serf event"
_SMALL = "small change"


def _run(options: Options, rows: Rows) -> None:
    profiles, modes = options.profiles or ("wan", "lan"), options.modes or ("push", "gossip")
    conditions = options.conditions or ("none",)
    for count, profile, mode in itertools.product(options.nodes or (30,), profiles, modes):
        cells = {
            condition: [
                change
                for change in _changes(condition, options.blocks or BLOCKS)
                if not rows.has(nodes=count, profile=profile, mode=mode, condition=condition, change=change)
            ]
            for condition in conditions
        }
        if not any(cells.values()):
            continue
        with running(count, mode=mode, profile=profile) as cluster:
            for condition, changes in cells.items():
                if changes:
                    _measure(_Place(cluster, Meter(cluster.nodes), profile, mode, condition), changes, options, rows)


def _changes(condition: str, blocks: Sequence[int]) -> list[str]:
    # A bad network loses a raw event, and then nothing brings it.
    return ([_RAW] if condition == "none" else []) + [_title(number) for number in blocks]


def _title(blocks: int) -> str:
    return f"file of {blocks} blocks" if blocks else _SMALL


@dataclass(frozen=True)
class _Place:
    cluster: Cluster
    meter: Meter
    profile: str
    mode: str
    condition: str

    @property
    def key(self) -> Row:
        return {
            "nodes": len(self.cluster.nodes),
            "profile": self.profile,
            "mode": self.mode,
            "condition": self.condition,
        }


def _measure(place: _Place, changes: Sequence[str], options: Options, rows: Rows) -> None:
    place.cluster.network.shape(Condition.parse(place.condition))
    say(f"{place.condition}: what an idle cluster sends")
    idle = Rate.measure(place.meter, 3 * PAUSE)
    serf: float | None = None
    if place.condition == "none":
        # Measured in each run, because ratios count only within one.
        with Listeners(place.cluster.nodes, PATIENCE) as listeners:
            row = _times(place, idle, options.repeat, listeners.send)
        serf = row["seconds"]
        rows.add({**place.key, "change": _RAW, **row, "x serf": 1.0, "paper": ""})
    for change in changes:
        if change == _RAW:
            continue
        blocks = 0 if change == _SMALL else int(change.split()[2])
        repeat = options.repeat if blocks <= 4 else max(1, options.repeat // 2)
        row = _times(place, idle, repeat, lambda number: _write(place, blocks, number))  # noqa: B023
        rows.add(
            {
                **place.key,
                "change": change,
                **row,
                "x serf": "" if serf is None else row["seconds"] / serf,
                "paper": paper.CONVERGENCE.get(place.condition, {}).get(blocks, ""),
            }
        )


def _times(place: _Place, idle: Rate, repeat: int, measure: Callable[[int], float]) -> Row:
    """Seconds until the last node has it, and bytes beyond what an idle cluster sends."""
    seconds: list[float] = []
    sent, passed = Traffic(), 0.0
    for number in range(repeat):
        time.sleep(PAUSE)
        before, start = place.meter.total(), time.monotonic()
        seconds.append(measure(number))
        time.sleep(PAUSE)
        sent, passed = sent + (place.meter.total() - before), passed + time.monotonic() - start
    return {
        "seconds": statistics.median(seconds),
        "most": max(seconds),
        **idle.beyond(sent, passed, len(place.cluster.nodes) * repeat),
    }


def _write(place: _Place, blocks: int, number: int) -> float:
    """Write a file on the first node; seconds until it is complete on all.  A path shows only what is complete."""
    name, content = f"{place.condition}-{blocks}-{number}", os.urandom(blocks * BLOCK_BYTES or SMALL)
    missing = [node.mountpoint / name for node in place.cluster.nodes]
    start = time.monotonic()
    missing[0].write_bytes(content)
    # One node at a time: looking at all of them keeps a core busy that they need.
    while missing:
        if _is_there(missing[-1], len(content)):
            missing.pop()
            continue
        if time.monotonic() - start > PATIENCE:
            raise TimeoutError(f"{name} is still missing on {len(missing)} nodes")
        time.sleep(_LOOK)
    return time.monotonic() - start


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


SCENARIO = Scenario(
    "files of 1 to 254 blocks, seconds to all nodes and bytes, beside a raw Serf event (--condition: a bad network)",
    ("nodes", "profile", "mode", "condition", "change"),
    _run,
)
