"""Figures from which defaults were chosen: the limit of events, the jitter of pulls, the quiet window."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.report.data import Results, Row, group, number
from eval.report.spreading import points
from eval.report.style import SHADES, figure, legend

#: Blocks of the files whose pulls are compared.
_PULLED = (15, 254)
_PARTS = (("serf udp", "Serf, UDP"), ("serf tcp", "Serf, TCP"), ("sync", "sync"))


def _modes(rows: list[Row], kind: str) -> list[str]:
    return sorted({row["mode"] for row in rows if row["mode"].startswith(f"{kind}-")}, key=number)


def by_limit(results: Results, directory: Path) -> str | None:
    """Gossip or announce: seconds by blocks, and bytes by protocol, for each limit of events."""
    rows = results.largest("convergence", backend="namespaces")
    modes = _modes(rows, "events")
    if not modes:
        return None
    titles = [f"{rows[0]['nodes']} nodes, by MAX_BLOCK_MESSAGES", "all sizes together"]
    with figure(directory / "limit.png", titles) as (seconds, sent):
        sizes = sorted({int(row["blocks"]) for row in rows if row["mode"] in modes})
        for shade, mode in zip(SHADES, modes, strict=False):
            found = [(place, points(rows, mode, blocks).get("none")) for place, blocks in enumerate(sizes)]
            there = [(place, point.seconds) for place, point in found if point is not None and point.seconds]
            seconds.plot(*zip(*there, strict=True), "-o", color=shade, markersize=4, lw=1.3, label=f"{number(mode):g}")
        _places(seconds, sizes, "blocks beside the entry")
        seconds.set_ylim(bottom=0)
        seconds.set_ylabel("seconds to all nodes")
        legend(seconds, title="events at the most")
        _bars(sent, results.largest("traffic", backend="namespaces"), modes)
        sent.set_xlabel("events before a change is announced instead")
    return "limit.png"


def _bars(ax: Any, traffic: list[Row], modes: Sequence[str]) -> None:
    """Kilobytes that a node sends for a file, by protocol."""
    below = [0.0] * len(modes)
    for shade, (column, name) in zip(SHADES[1:4], _PARTS, strict=True):
        heights = [
            statistics.fmean(
                float(row[column]) / max(1, int(row["files"])) / 1000 for row in traffic if row["mode"] == mode
            )
            for mode in modes
        ]
        ax.bar(range(len(modes)), heights, bottom=below, color=shade, width=0.6, label=name)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    _places(ax, [number(mode) for mode in modes], "")
    ax.set_ylabel("kB that a node sends for a file")
    legend(ax)


def by_jitter(results: Results, directory: Path) -> str | None:
    """A file that is announced: seconds, and what the announcer sends, by the jitter of pulls."""
    rows = results.largest("convergence", backend="namespaces")
    modes = _modes(rows, "jitter")
    if not modes:
        return None
    with figure(directory / "jitter.png", [f"{rows[0]['nodes']} nodes", "both sizes together"]) as (seconds, sent):
        for shade, blocks in zip(SHADES[2::2], _PULLED, strict=False):
            tries = [
                (place, float(row["all s"]))
                for place, mode in enumerate(modes)
                for row in rows
                if row["mode"] == mode and row["blocks"] == str(blocks) and row["all s"]
            ]
            if tries:
                seconds.plot(*zip(*tries, strict=True), ".", color=shade, alpha=0.45)
                medians = [
                    (place, statistics.median(t for at, t in tries if at == place)) for place in {p for p, _ in tries}
                ]
                seconds.plot(*zip(*sorted(medians), strict=True), "-", color=shade, lw=1.3, label=f"{blocks} blocks")
        seconds.set_ylim(bottom=0)
        seconds.set_ylabel("seconds to all nodes")
        _places(seconds, [number(mode) for mode in modes], "largest wait before a pull, s")
        legend(seconds)
        traffic = results.largest("traffic", backend="namespaces")
        for shade, writer, name in (
            (SHADES[4], True, "the node that writes"),
            (SHADES[2], False, "mean of the others"),
        ):
            heights = [
                statistics.fmean(
                    float(row["sync"]) / max(1, int(row["files"])) / 1000
                    for row in traffic
                    if row["mode"] == mode and (row["node"] == "0") is writer
                )
                for mode in modes
            ]
            sent.plot(range(len(modes)), heights, "-o", color=shade, markersize=4, lw=1.3, label=name)
        sent.set_ylim(bottom=0)
        sent.set_ylabel("kB of sync that it sends for a file")
        _places(sent, [number(mode) for mode in modes], "largest wait before a pull, s")
        legend(sent)
    return "jitter.png"


def by_window(results: Results, directory: Path) -> str | None:
    """What a save costs, and how long it takes until it is published, by the quiet window."""
    by_seconds = {float(window): rows for window, rows in group(results.rows("quiet"), lambda r: r["window s"]).items()}
    if not by_seconds:
        return None
    windows = sorted(by_seconds)
    with figure(directory / "quiet.png", ["entries for a changed file", "until the save is in the log"]) as axes:
        costs = [[int(row["entries"]) / int(row["files"]) for row in by_seconds[window]] for window in windows]
        times = [[1000 * float(row["seconds"]) for row in by_seconds[window]] for window in windows]
        for ax, values, unit in zip(axes, (costs, times), ("entries", "ms"), strict=True):
            ax.plot(
                [max(found) for found in values], "--v", color=SHADES[2], markersize=4, lw=1.3, label="worst program"
            )
            ax.plot([statistics.fmean(found) for found in values], "-o", color=SHADES[4], markersize=4, label="mean")
            ax.set_ylim(bottom=0)
            ax.set_ylabel(unit)
            _places(ax, [1000 * window for window in windows], "quiet window, ms")
            legend(ax)
    return "quiet.png"


def _places(ax: Any, values: Sequence[float], label: str) -> None:
    """An axis of values that are as far from each other as people chose them, zero among them."""
    ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    if label:
        ax.set_xlabel(label)
