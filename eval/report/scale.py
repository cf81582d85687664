"""Figures of time and conflicts: how soon a node has a change, and how often two authors change a file at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval.report.data import BENCHMARKS, Results, Row, group
from eval.report.style import LOOKS, SHADES, figure, legend, legend_below, plain_numbers

#: Rows of `make bench-scale`, wherever those of the experiments are.
_KEPT = Results(BENCHMARKS)
#: Clusters that are drawn, by nodes; those that the report compares with real ones first.
_DRAWN = ("30", "300", "1000", "10000")


def staleness(results: Results, directory: Path, simulated: Results = _KEPT) -> str | None:
    """The probability that a random node has a change some time after its close: real nodes, and simulated ones."""
    real = [row for row in results.largest("workload", condition="none", mode="push") if row["backend"] == "namespaces"]
    by_nodes = group(simulated.rows("bench_scale_staleness"), lambda row: row["nodes"])
    if not real or not by_nodes:
        return None
    with figure(directory / "staleness.png", ["nodes that have the change", "nodes that lack it"]) as axes:
        curves = {f"{real[0]['nodes']} real nodes, no distances": (_of_real(real), "-", LOOKS["push"][1])}
        for shade, nodes in zip(SHADES[1:], _DRAWN, strict=False):
            if nodes in by_nodes:
                curves[f"{nodes} simulated, 5 to 50 ms apart"] = (_of_simulated(by_nodes[nodes]), "--", shade)
        for label, (points, style, colour) in curves.items():
            seconds = [after for after, _ in points]
            axes[0].plot(seconds, [100 * share for _, share in points], style, color=colour, lw=1.4, label=label)
            late = [(after, 100 * (1 - share)) for after, share in points if share < 1]
            axes[1].plot(*zip(*late, strict=True), style, color=colour, lw=1.4, label=label)
        for ax in axes:
            ax.set_xscale("log")
            ax.set_xlim(left=0.01)
            plain_numbers(ax.xaxis)
            ax.set_xlabel("seconds after it was written")
            ax.set_ylabel("%")
        axes[1].set_yscale("log")
        plain_numbers(axes[1].yaxis)
        legend_below(axes)
    return "staleness.png"


def _of_real(rows: list[Row]) -> list[tuple[float, float]]:
    times = sorted(float(each) for row in rows for each in row["each s"].split())
    pairs = sum(int(row["nodes"]) - 1 for row in rows)
    return [(time, (number + 1) / pairs) for number, time in enumerate(times)]


def _of_simulated(rows: list[Row]) -> list[tuple[float, float]]:
    return [(float(row["after s"]), float(row["share"])) for row in rows]


def conflicts(_: Results, directory: Path, simulated: Results = _KEPT) -> str | None:
    """Changes of one file that conflict, by writers and by rate, beside what follows from the staleness."""
    rows = simulated.rows("bench_scale_conflicts")
    if not rows:
        return None
    titles = ["one file, 1 change a second in all", "10 authors", "10 authors, 10 changes a second"]
    with figure(directory / "conflicts.png", titles) as axes:
        _by(axes[0], "writers", "authors", _those(rows, {"changes a s": 1, "files": 1}))
        _by(axes[1], "changes a s", "changes of one file a second", _those(rows, {"writers": 10, "files": 1}))
        _by(axes[2], "files", "files", _those(rows, {"writers": 10, "changes a s": 10}))
        axes[0].set_ylabel("% of the changes that conflict")
        legend(axes[0])
    return "conflicts.png"


def _those(rows: list[Row], wanted: dict[str, float]) -> list[Row]:
    return [row for row in rows if all(float(row[name]) == value for name, value in wanted.items())]


def _by(ax: Any, column: str, label: str, rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: float(row[column]))
    places = [float(row[column]) for row in rows]
    for name, look, text in (("conflicts %", "push", "simulated"), ("expected %", "paper both", "expected")):
        _, colour, marker, style = LOOKS[look]
        values = [float(row[name]) for row in rows]
        ax.plot(places, values, style, color=colour, marker=marker, markersize=4, lw=1.3, label=text)
    ax.set_xscale("log")
    plain_numbers(ax.xaxis)
    ax.set_ylim(bottom=0)
    ax.set_xlabel(label)
