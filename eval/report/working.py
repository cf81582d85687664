"""Figures of the workload: when writes are on all nodes, and what each node sends; and of growing clusters."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.ticker import MaxNLocator

from eval.lab.workload import links
from eval.report.data import PAPER, Results, Row, group, paper, seconds_to_all
from eval.report.style import LOOKS, figure, legend, legend_below, line, plain_numbers

#: Our condition -> the paper's experiment, its file of traffic, titles.
WORKLOADS = {
    "none": ("docker workload", "basefs-docker-traffic-distribution", "perfect network"),
    "community-lab": ("community-lab workload", "basefs-confine-traffic-distribution", "Community-Lab"),
}
PROTOCOLS = {"serf udp": "#9ecae1", "serf tcp": "#4292c6", "sync": "#fdae6b"}
_PAPER_PROTOCOLS = ("Serf UDP bytes", "Serf TCP bytes", "Sync bytes")
_PERCENTILES = (50.0, 90.0, 100.0)


def spread(results: Results, directory: Path) -> str | None:
    """The share of writes that were on all nodes by a time; the paper's median, 90th percentile and worst."""
    found = {condition: results.largest("workload", condition=condition) for condition in WORKLOADS}
    shown = [condition for condition, rows in found.items() if rows]
    if not shown:
        return None
    with figure(directory / "workload.png", [WORKLOADS[condition][2] for condition in shown]) as axes:
        for ax, condition in zip(axes, shown, strict=True):
            for (mode, backend), rows in sorted(_series(found[condition]).items()):
                _staircase(ax, rows, mode, backend)
            for row in paper("convergence", experiment=WORKLOADS[condition][0]):
                if row["messages"] == "1":
                    times = [float(row[name]) for name in ("all_nodes_median_s", "all_nodes_p90_s", "all_nodes_max_s")]
                    name, colour, marker, style = LOOKS["paper both"]
                    ax.plot(times, _PERCENTILES, style, color=colour, marker=marker, markersize=5, lw=1, label=name)
            ax.set_xscale("log")
            plain_numbers(ax.xaxis)
            ax.set_ylim(0, 103)
            ax.set_xlabel("seconds")
            ax.set_ylabel("% of the writes on all nodes")
        legend_below(axes)
    return "workload.png"


def _series(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    keyed = group(rows, lambda row: f"{row['mode']} {row['backend']}")
    return {(name.split()[0], name.split()[1]): members for name, members in keyed.items()}


def _staircase(ax: object, rows: Sequence[Row], mode: str, backend: str) -> None:
    times = sorted(float(row["all s"]) for row in rows if row["all s"])
    shares = [100 * (index + 1) / len(rows) for index in range(len(times))]
    name, colour, _, _ = LOOKS[mode]
    style = ":" if backend == "docker" else "-"
    label = f"{name}, {rows[0]['nodes']} nodes" + (", Docker" if backend == "docker" else "")
    ax.step(times, shares, style, where="post", color=colour, lw=1.5, label=label)  # type: ignore[attr-defined]


def balance(results: Results, directory: Path) -> str | None:
    """Bytes that each node sends for a write, by protocol, ours and the paper's."""
    found = {condition: results.largest("workload-traffic", condition=condition) for condition in WORKLOADS}
    shown = [condition for condition, rows in found.items() if rows]
    if not shown:
        return None
    titles = [title for condition in shown for title in _titles(condition)]
    with figure(directory / "balance.png", titles) as axes:
        for index, condition in enumerate(shown):
            ours = [row for row in found[condition] if row["mode"] == "push" and row["backend"] == "namespaces"]
            _bars(axes[2 * index], [[float(row[name]) / float(row["files"]) for name in PROTOCOLS] for row in ours])
            theirs = [[float(row[name]) / 560 for name in _PAPER_PROTOCOLS] for row in paper(WORKLOADS[condition][1])]
            _bars(axes[2 * index + 1], theirs)
        axes[0].set_ylabel("kB a write, all chatter included")
        legend(axes[0])
    return "balance.png"


def _titles(condition: str) -> list[str]:
    return [f"BaseFS, {WORKLOADS[condition][2]}", f"paper, {WORKLOADS[condition][2]}"]


def _bars(ax: object, nodes: list[list[float]]) -> None:
    nodes.sort(key=sum)
    below = [0.0] * len(nodes)
    for index, (name, colour) in enumerate(PROTOCOLS.items()):
        heights = [node[index] / 1000 for node in nodes]
        ax.bar(range(len(nodes)), heights, bottom=below, color=colour, label=name, width=0.85)  # type: ignore[attr-defined]
        below = [low + high for low, high in zip(below, heights, strict=True)]
    ax.set_xlabel("nodes, sorted")  # type: ignore[attr-defined]
    ax.set_xticks([])  # type: ignore[attr-defined]


def characterisation(results: Results, directory: Path) -> str | None:
    """Latencies of links: of Community-Lab, and of the network that was made after it (paper, figure 16)."""
    rows = results.largest("workload", condition="community-lab")
    if not rows:
        return None
    count, seed = max(int(row["nodes"]) for row in rows), int(rows[0]["seed"])
    with (PAPER / "characterization.csv").open(newline="") as file:
        measured = list(csv.DictReader(file))
    ours = [2 * way.delay for (one, other), way in links(count, seed).items() if one > other]
    with figure(directory / "links.png", ["latency of links, there and back", "hops of Community-Lab's links"]) as axes:
        for values, look, name in (
            ([float(row["latency"]) for row in measured], "paper both", "Community-Lab"),
            (ours, "push", f"here, {count} nodes"),
        ):
            shares = [100 * (index + 1) / len(values) for index in range(len(values))]
            axes[0].step(sorted(values), shares, where="post", color=LOOKS[look][1], lw=1.4, label=name)
        axes[0].set_xscale("log")
        plain_numbers(axes[0].xaxis)
        axes[0].set_xlabel("ms")
        axes[0].set_ylabel("% of the links")
        legend(axes[0])
        hops = [int(row["hops"]) for row in measured]
        axes[1].bar(
            range(1, max(hops) + 1), [hops.count(n) for n in range(1, max(hops) + 1)], color=LOOKS["paper both"][1]
        )
        axes[1].xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[1].set_xlabel("hops")
        axes[1].set_ylabel("links")
    return "links.png"


def scaling(results: Results, directory: Path) -> str | None:
    """A small change, idle processor time, and memory by the number of nodes (paper, figure 11)."""
    rows = sorted(results.rows("scaling", backend="namespaces"), key=lambda row: int(row["nodes"]))
    if not rows:
        return None
    counts = [int(row["nodes"]) for row in rows]
    titles = ["small change, seconds to all nodes", "cores that an idle cluster takes", "MiB of a node"]
    with figure(directory / "scaling.png", titles) as axes:
        line(axes[0], "push", [(int(row["nodes"]), float(row["all s"]), 0.0) for row in rows])
        axes[1].plot(counts, [float(row["idle cores"]) for row in rows], "-o", color=LOOKS["push"][1], markersize=4)
        axes[2].plot(counts, [float(row["daemon MiB"]) for row in rows], "-o", color=LOOKS["push"][1], label="daemon")
        axes[2].plot(counts, [float(row["serf MiB"]) for row in rows], "-s", color=LOOKS["paper"][1], label="Serf")
        for ax in axes:
            ax.set_ylim(bottom=0)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.set_xlabel("nodes")
        legend(axes[2])
    return "scaling.png"


def medians(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Median and 90th percentile of the seconds to all nodes, infinite where the writes that they fall on were late."""
    times = seconds_to_all(rows)
    return (statistics.median(times), times[int(0.9 * (len(times) - 1))]) if times else None
