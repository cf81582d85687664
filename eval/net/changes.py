"""One change at a time: files of some blocks, on a perfect network or a bad one, beside a raw Serf event."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eval.net import paper
from eval.net.scenario import Options, Rate, Scenario, running, say, seconds_to_all
from eval.rawserf import Listeners
from eval.rows import Row, Rows
from eval.traffic import Meter, Traffic
from tests.support.cluster import Cluster
from tests.support.shaping import Condition

#: Blocks of the files, each of incompressible bytes; 0 is a small change, which travels with its entry in one event.
BLOCKS = (0, 1, 2, 4, 16, 64, 254)
#: Bytes of a small change.
SMALL = 100
#: Bytes of content in a block that can be gossiped (docs/formats.md, section 5).
BLOCK_BYTES = 480
#: Seconds for a change to arrive everywhere, after which the run is given up.
PATIENCE = 400.0
#: Seconds after a change in which what is sent still counts for it: the announcement that makes up for a lost push.
PAUSE = 4.0
#: Seconds that an idle cluster is watched.
IDLE = 20.0
#: Seconds between two packets of Serf to one member, wan profile.
_SERF_INTERVAL = 0.5
_RAW = "raw Serf event"
_SMALL = "small change"


def _run(options: Options, rows: Rows) -> None:
    # A cluster for each condition, so that none meets what another one has left behind.
    where = itertools.product(
        options.nodes or (30,),
        options.profiles or ("wan", "lan"),
        options.modes or ("push", "gossip"),
        options.conditions or ("none",),
    )
    for count, profile, mode, condition in where:
        key = {"nodes": count, "profile": profile, "mode": mode, "condition": condition}
        changes = [
            title for title in _changes(condition, options.blocks or BLOCKS) if not rows.has(**key, change=title)
        ]
        if changes:
            with contextlib.ExitStack() as stack:
                # What keeps a cluster from starting is a row of the first change.
                with rows.recording(**key, change=changes[0]):
                    cluster = stack.enter_context(running(count, mode=mode, profile=profile))
                _measure(_Place(cluster, Meter(cluster.nodes), profile, mode, condition, options), changes, rows)


def _changes(condition: str, blocks: Sequence[int]) -> list[str]:
    # A bad network loses a raw event, and then nothing brings it.
    return ([_RAW] if condition == "none" else []) + [_title(number) for number in blocks]


def _title(blocks: int) -> str:
    return f"file of {blocks} block{'' if blocks == 1 else 's'}" if blocks else _SMALL


def _blocks(change: str) -> int:
    """The inverse of `_title`; -1 for what is no file."""
    return {_SMALL: 0, _RAW: -1}[change] if change in (_SMALL, _RAW) else int(change.split()[2])


@dataclass(frozen=True)
class _Place:
    cluster: Cluster
    meter: Meter
    profile: str
    mode: str
    condition: str
    options: Options

    @property
    def key(self) -> Row:
        return {
            "nodes": len(self.cluster.nodes),
            "profile": self.profile,
            "mode": self.mode,
            "condition": self.condition,
        }


def _measure(place: _Place, changes: Sequence[str], rows: Rows) -> None:
    nodes, repeat = place.cluster.nodes, place.options.repeat
    pauses = place.options.chance("pauses")
    place.cluster.network.shape(Condition.parse(place.condition))
    say(f"{place.condition}: what an idle cluster sends")
    idle = Rate.measure(place.meter, IDLE)
    taken: dict[str, list[_Taken]] = {change: [] for change in changes}
    try:
        with Listeners(nodes, PATIENCE) if _RAW in changes else contextlib.nullcontext() as listeners:
            # In turn, so that what else the machine does meets all of them alike.
            for number in range(repeat):
                for change in changes:
                    # Serf sends in fixed intervals, which should not always begin together with a change.
                    time.sleep(pauses.uniform(0, _SERF_INTERVAL))
                    send = listeners.send if listeners is not None and change == _RAW else None
                    with rows.recording(**place.key, change=change):
                        # A median without the round that fails would be one of the rounds that did not.
                        before = taken.pop(change)
                        taken[change] = [*before, _take(place, number, change, send)]
                say(f"{place.condition}: {number + 1} of {repeat} rounds")
    finally:
        for change, found in taken.items():
            if found:
                rows.add(_row(place, change, found, idle, taken.get(_RAW, [])))


@dataclass(frozen=True)
class _Taken:
    """One change: seconds until the last node had it; bytes sent meanwhile and shortly after, in how many seconds."""

    seconds: float
    sent: Traffic
    passed: float


def _take(place: _Place, number: int, change: str, send: Callable[[int], float] | None) -> _Taken:
    before, start = place.meter.total(), time.monotonic()
    seconds = _write(place, _blocks(change), number) if send is None else send(number)
    time.sleep(PAUSE)
    return _Taken(seconds, place.meter.total() - before, time.monotonic() - start)


def _row(place: _Place, change: str, found: list[_Taken], idle: Rate, raw: list[_Taken]) -> Row:
    seconds = statistics.median(taken.seconds for taken in found)
    sent = sum((taken.sent for taken in found), Traffic())
    return {
        **place.key,
        "change": change,
        "rounds": len(found),
        "seconds": seconds,
        "least": min(taken.seconds for taken in found),
        "most": max(taken.seconds for taken in found),
        "x serf": seconds / statistics.median(taken.seconds for taken in raw) if raw else "",
        "paper": paper.CONVERGENCE.get(place.condition, {}).get(_blocks(change), ""),
        **idle.beyond(sent, sum(taken.passed for taken in found), len(place.cluster.nodes) * len(found)),
    }


def _write(place: _Place, blocks: int, number: int) -> float:
    """Write a file on the first node; seconds until it is complete on all."""
    name = f"{place.condition}-{blocks}-{number}"
    content = place.options.chance(name).randbytes(blocks * BLOCK_BYTES or SMALL)
    return seconds_to_all(place.cluster.nodes, name, content, PATIENCE)


SCENARIO = Scenario(
    "files of 1 to 254 blocks, seconds to all nodes and bytes, beside a raw Serf event (--condition: a bad network)",
    ("nodes", "profile", "mode", "condition", "change"),
    _run,
)
