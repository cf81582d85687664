"""Figures of contents: what the files of /etc take by codec, and what copies of them cost."""

from __future__ import annotations

import statistics
from pathlib import Path

from eval.report.data import Results, group, paper
from eval.report.style import figure, legend, plain_numbers

_COLOURS = {
    "raw": "#bdbdbd",
    "zlib": "#9ecae1",
    "lzma": "#6baed6",
    "bsdiff4": "#fdae6b",
    "zstd": "#a1d99b",
    "BaseFS": "#0b5fa5",
}
_PLACES = {
    "BaseFS": ("BaseFS", "#0b5fa5", "-o"),
    "bindfs": ("FUSE passthrough (bindfs)", "#e08214", "-s"),
    "disk": ("ext4", "#4d9221", "-D"),
}
_PAPER_PLACES = {"basefs": ("paper: BaseFS", "#222222", "--x"), "ext4": ("paper: ext4", "#888888", "--d")}
_OPERATIONS = ("write", "read", "read-cached")


def etc(results: Results, directory: Path) -> str | None:
    """Events by file, and time, of each codec: ours for new and for changed files, the paper's."""
    rows = results.rows("etc")
    if not rows:
        return None
    series = {
        "here, new files": _by_method([row for row in rows if row["change"] == "new"], "events", "ms"),
        "here, a line changed": _by_method([row for row in rows if row["change"] != "new"], "events", "ms"),
        "paper": _papers(),
    }
    with figure(directory / "etc.png", ["events for a file, mean", "ms to encode a file, median"]) as axes:
        for index, ax in enumerate(axes):
            ticks, labels, position = [], [], 0.0
            for title, methods in series.items():
                begin = position
                for method, values in methods.items():
                    ax.bar(position, values[index], width=0.8, color=_COLOURS[method])
                    ax.text(position, values[index], f" {method}", rotation=90, ha="center", va="bottom", fontsize=6.5)
                    position += 1
                ticks.append((begin + position - 1) / 2)
                labels.append(title)
                position += 1
            ax.set_xticks(ticks, labels)
            ax.tick_params(axis="x", length=0)
            ax.grid(False, axis="x")
            ax.margins(y=0.28)
        axes[1].set_yscale("log")
        axes[1].set_ylim(bottom=0.001, top=300)
        plain_numbers(axes[1].yaxis)
    return "etc.png"


def _by_method(rows: list[dict[str, str]], events: str, time: str) -> dict[str, tuple[float, float]]:
    return {
        method: (
            statistics.fmean(float(row[events]) for row in members),
            max(1e-3, statistics.median(float(row[time]) for row in members)),
        )
        for method, members in group(rows, lambda row: row["method"]).items()
    }


def _papers() -> dict[str, tuple[float, float]]:
    found = {}
    for method in ("raw", "zlib", "lzma", "bsdiff4"):
        events = [float(row["value"]) for row in paper("etc", method=method, type="messages")]
        times = [float(row["value"]) for row in paper("etc", method=method, type="times")]
        found[method] = (statistics.fmean(events), 1000 * statistics.median(times))
    return found


def files(results: Results, directory: Path) -> str | None:
    """Seconds of each round, as ratios to the first round on ext4, and the paper's (paper, figures 20 and 21)."""
    rows = results.rows("files")
    if not rows:
        return None
    theirs = paper("performance")
    with figure(directory / "files.png", [f"{operation}, seconds a round" for operation in _OPERATIONS]) as axes:
        for ax, operation in zip(axes, _OPERATIONS, strict=True):
            for source, looks in ((rows, _PLACES), (theirs, _PAPER_PLACES)):
                column = "seconds" if source is rows else "time"
                for place, (label, colour, style) in looks.items():
                    found = sorted(
                        (int(row["round"]), float(row[column]))
                        for row in source
                        if row["fs"] == place and row["operation"] == operation
                    )
                    if found:
                        ax.plot(*zip(*found, strict=True), style, color=colour, markersize=2.5, lw=1.1, label=label)
            ax.set_yscale("log")
            plain_numbers(ax.yaxis)
            ax.set_xlabel("round")
        legend(axes[0])
    return "files.png"
