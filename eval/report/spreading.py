"""Figures of convergence: by size of the file, by condition, by the interval of sync."""

from __future__ import annotations

import statistics
from pathlib import Path

from eval.report.data import Point, Results, Row, group, number, paper, papers
from eval.report.style import figure, legend, legend_below, line, plain_numbers, seconds_axis

#: Kinds of conditions: what the axis says, and whether it is logarithmic.
KINDS = {
    "delay": ("mean delay of a packet, ms", True),
    "loss": ("loss, % (netem's parameter)", False),
    "reorder": ("packets that overtake, %", False),
    "bw": ("kbit/s that a node can send", True),
}
#: Files by messages: a small change and a larger one.
SMALL, LARGE = 1, 15
_OURS = ("gossip", "paper", "push")
_THEIRS = {"paper gossip": "gossip-only", "paper both": "gossip+sync"}


def points(rows: list[Row], mode: str, blocks: int) -> dict[str, Point]:
    """Ours by condition."""
    chosen = [row for row in rows if row["mode"] == mode and row["blocks"] == str(blocks)]
    found = {name: Point.of(members) for name, members in group(chosen, lambda row: row["condition"]).items()}
    return {name: point for name, point in found.items() if point is not None}


def by_condition(results: Results, directory: Path, kind: str) -> str | None:
    """Seconds to all nodes by the degree of a condition; the file's name, `None` if nothing was measured."""
    rows = results.largest("convergence", backend="namespaces")
    label, logarithmic = KINDS[kind]
    if not any(row["condition"].startswith(kind) for row in rows):
        return None
    nodes = _nodes(rows)
    with figure(directory / f"{kind}.png", [f"{SMALL} block; {nodes}", f"{LARGE} blocks"]) as axes:
        for ax, blocks in zip(axes, (SMALL, LARGE), strict=True):
            for mode in _OURS:
                ours = points(rows, mode, blocks)
                chosen = sorted((number(name), point) for name, point in ours.items() if name.startswith(kind))
                line(ax, mode, [(x, point.seconds, point.waited) for x, point in chosen])
            for look, experiment in _THEIRS.items():
                scenarios = {row["scenario"] for row in paper("convergence", experiment=experiment)}
                theirs = sorted((number(name), name) for name in scenarios if name.startswith(kind))
                found = [(x, papers(experiment, name, blocks), 0.0) for x, name in theirs]
                line(ax, look, [(x, seconds, waited) for x, seconds, waited in found if seconds is not None])
            if logarithmic:
                ax.set_xscale("log", base=2)
                plain_numbers(ax.xaxis)
            seconds_axis(ax)
            ax.set_xlabel(label)
        legend_below(axes)
    return f"{kind}.png"


def by_size(results: Results, directory: Path) -> str | None:
    """Seconds to all nodes by blocks, on a perfect network (paper, figure 9)."""
    rows = [row for row in results.largest("convergence", backend="namespaces") if row["condition"] == "none"]
    if not rows:
        return None
    sizes = sorted({int(row["blocks"]) for row in rows})
    with figure(directory / "size.png", [f"perfect network; {_nodes(rows)}"]) as (ax,):
        for mode in _OURS:
            found = [(blocks, points(rows, mode, blocks).get("none")) for blocks in sizes]
            line(ax, mode, [(max(x, 0.5), p.seconds, p.waited) for x, p in found if p is not None])
        for look, experiment in _THEIRS.items():
            messages = sorted(
                int(row["messages"])
                for row in paper("convergence", experiment=experiment, scenario="baseline")
                if int(row["messages"]) >= 0
            )
            line(ax, look, [(max(x, 0.5), papers(experiment, "none", x), 0.0) for x in messages])
        ax.set_xscale("log", base=2)
        plain_numbers(ax.xaxis)
        seconds_axis(ax)
        ax.set_xlabel("blocks beside the entry (0 at the left)")
        legend(ax)
    return "size.png"


def by_interval(results: Results, directory: Path) -> str | None:
    """Sync alone: seconds and traffic by its interval (paper, figure 10)."""
    rows = [row for row in results.largest("convergence", backend="namespaces") if row["mode"].startswith("sync-")]
    if not rows:
        return None
    with figure(directory / "sync.png", ["seconds to all nodes", "bits a second that a node sends for sync"]) as axes:
        by_mode = group(rows, lambda row: row["mode"])
        ours = sorted((number(mode), Point.of(members)) for mode, members in by_mode.items())
        line(axes[0], "sync", [(x, point.seconds, point.waited) for x, point in ours if point is not None])
        theirs = [row for row in paper("convergence", experiment="sync-only") if row["messages"] == "-1"]
        line(
            axes[0],
            "paper sync",
            sorted((float(row["scenario"]), float(row["all_nodes_median_s"]), 0.0) for row in theirs),
        )
        line(axes[1], "sync", [(x, rate, 0.0) for x, rate in sorted(_rates(results).items())])
        line(axes[1], "paper sync", [(x, rate, 0.0) for x, rate in sorted(_papers_rates().items())])
        for ax in axes:
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            plain_numbers(ax.xaxis)
            plain_numbers(ax.yaxis)
            ax.set_xlabel("interval between syncs, s")
            legend(ax)
    return "sync.png"


def sync_rates(results: Results) -> list[tuple[float, float, float]]:
    """(interval, ours, the paper's) in bits a second that a node sends for sync alone."""
    theirs = _papers_rates()
    return [(interval, rate, theirs[interval]) for interval, rate in sorted(_rates(results).items())]


def _papers_rates() -> dict[float, float]:
    rates = group(paper("sync-traffic"), lambda row: row["scenario"])
    return {float(x): statistics.fmean(float(row["bps"]) for row in rows) for x, rows in rates.items()}


def _rates(results: Results) -> dict[float, float]:
    """Bits a second of sync that a node sends, by interval."""
    sent = [row for row in results.largest("traffic", backend="namespaces") if row["mode"].startswith("sync-")]
    found = {}
    for mode, rows in group(sent, lambda row: row["mode"]).items():
        found[number(mode)] = statistics.fmean(8 * float(row["sync"]) / float(row["seconds"]) for row in rows)
    return found


def _nodes(rows: list[Row]) -> str:
    return f"{rows[0]['nodes']} nodes here, 30 in the paper"
