"""`make bench-scale`: how a cluster of up to ten thousand nodes behaves, simulated in one process.

The sessions and the replication of each node are the real ones; logs are in memory, links and Serf are models
(docs/scale.md).  The seed decides everything but processor time.  Rows are written as they come, a CSV file for each
scenario; what is there already is not measured again without `--again`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from eval.benchmark import Benchmark, scenario_parser
from eval.rows import Row, Rows
from eval.scale import measure
from eval.scale.cluster import Setup
from eval.scale.members import grow

#: Nodes -> small changes that count; of any other number of nodes `_MANY`.
_CHANGES = {30: 20, 100: 20, 300: 10, 1000: 10, 3000: 4, 10_000: 2}
_MANY = 20
#: Nodes of real clusters that the simulation is compared with, and seconds between two of them in one direction, as
#: between namespaces of one machine.
_COMPARED, _NEAR = (30, 50), (0.00005, 0.0002)
#: Nodes -> changes on each side of a cut, and seconds that it lasts: until Serf has noticed.
_HEALS = {20: (1000, 60.0), 100: (300, 90.0), 300: (100, 110.0)}
#: Newcomers fetch a log of so many changes.
_CROWD = {100: 300, 300: 300, 1000: 100}
#: Machines, and minutes that each is on and off on average; for so many seconds, with a change each `_PAUSE`.
_CHURN = ((200, 2.0, 2.0), (200, 10.0, 10.0), (200, 60.0, 60.0))
_CHURN_SECONDS, _PAUSE = 240.0, 5.0
#: Writers, changes a second in all, and files.
_CONFLICTS = (
    (2, 1.0, 1),
    (5, 1.0, 1),
    (10, 1.0, 1),
    (30, 1.0, 1),
    (10, 0.1, 1),
    (10, 0.3, 1),
    (10, 3.0, 1),
    (10, 10.0, 1),
    (10, 10.0, 10),
    (10, 10.0, 100),
)
_CONFLICT_NODES, _CONFLICT_CHANGES = 30, 200
_MEMBERS = (30, 100, 300, 1000, 3000, 10_000)
#: Repetitions of a look at the members.
_LOOKS = 5


@dataclass(frozen=True)
class Scenario:
    """One part of the benchmark.

    Attributes:
        about: what is measured, in a line.
        keys: the columns that tell its rows apart.
        run: measures what has no row yet, for these numbers of nodes or its own.
    """

    about: str
    keys: Sequence[str]
    run: Callable[[int, Sequence[int], Benchmark], None]


def _changes(seed: int, nodes: Sequence[int], benchmark: Benchmark) -> None:
    rows, shares = _rows(benchmark, "changes"), benchmark.rows("bench_scale_staleness", ("nodes", "after s"))

    def work(count: int) -> Row:
        row, after = measure.changes(Setup(count, seed), _CHANGES.get(count, _MANY))
        shares.add_all([{"nodes": count, **each} for each in after])
        return row

    for count in nodes or _CHANGES:
        rows.measure(partial(work, count), nodes=count)


def _near(seed: int, nodes: Sequence[int], benchmark: Benchmark) -> None:
    rows = _rows(benchmark, "near")

    def work(count: int) -> Row:
        return measure.changes(Setup(count, seed, latency=_NEAR), _MANY)[0]

    for count in nodes or _COMPARED:
        rows.measure(partial(work, count), nodes=count)


def _heal(seed: int, nodes: Sequence[int], benchmark: Benchmark) -> None:
    rows = _rows(benchmark, "heal")
    for count in nodes or _HEALS:
        changes, seconds = _HEALS.get(count, (10, 60.0))
        key = {"nodes": count, "changes a side": changes, "cut s": seconds}
        rows.measure(partial(measure.heal, Setup(count, seed), changes, seconds), **key)


def _crowd(seed: int, nodes: Sequence[int], benchmark: Benchmark) -> None:
    rows = _rows(benchmark, "crowd")
    for count in nodes or _CROWD:
        entries = _CROWD.get(count, 100)
        rows.measure(partial(measure.crowd, Setup(count, seed), entries), nodes=count, entries=entries)


def _churn(seed: int, nodes: Sequence[int], benchmark: Benchmark) -> None:
    rows = _rows(benchmark, "churn")
    for machines, on, off in _CHURN:
        for count in nodes or (machines,):
            key = {"machines": count, "on min": on, "off min": off}
            rows.measure(partial(measure.churn, Setup(count, seed), on, off, _CHURN_SECONDS, _PAUSE), **key)


def _conflicts(seed: int, nodes: Sequence[int], benchmark: Benchmark) -> None:
    rows = _rows(benchmark, "conflicts")
    for count in nodes or (_CONFLICT_NODES,):
        for writers, rate, files in _CONFLICTS:
            key = {"nodes": count, "writers": min(writers, count), "changes a s": rate, "files": files}
            setup, some = Setup(count, seed), min(writers, count)
            rows.measure(partial(measure.conflicts, setup, some, rate, files, _CONFLICT_CHANGES), **key)


def _members(seed: int, nodes: Sequence[int], benchmark: Benchmark) -> None:
    rows = _rows(benchmark, "members")
    for count in nodes or _MEMBERS:
        rows.measure(partial(grow, count, _LOOKS), nodes=count)


SCENARIOS = {
    "changes": Scenario("a small change: seconds, bytes and processor time; staleness", ("nodes",), _changes),
    "near": Scenario("the same without distances, to compare with real nodes", ("nodes",), _near),
    "heal": Scenario("two halves with changes on each, healed", ("nodes", "changes a side", "cut s"), _heal),
    "crowd": Scenario("a tenth as many newcomers at once", ("nodes", "entries"), _crowd),
    "churn": Scenario("machines that come and go", ("machines", "on min", "off min"), _churn),
    "conflicts": Scenario("changes of a file at once", ("nodes", "writers", "changes a s", "files"), _conflicts),
    "members": Scenario("what a node does for each member", ("nodes",), _members),
}


def _rows(benchmark: Benchmark, name: str) -> Rows:
    return benchmark.rows(f"bench_scale_{name}", SCENARIOS[name].keys)


def main() -> None:
    """Measure what was asked for, print tables."""
    parser = scenario_parser(__doc__, {name: scenario.about for name, scenario in SCENARIOS.items()})
    parser.add_argument("--nodes", type=int, action="append", help="default: what the scenario says")
    parser.add_argument("--seed", type=int, default=1, help="of everything (default: 1)")
    with Benchmark(parser) as benchmark:
        options = benchmark.options
        for name in options.scenario or SCENARIOS:
            print(f"\n{name}: {SCENARIOS[name].about}", flush=True)
            SCENARIOS[name].run(options.seed, options.nodes or (), benchmark)


if __name__ == "__main__":
    main()
