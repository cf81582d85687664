"""How figures look: one face and one colour for each thing, in all of them; fit for print at the width of a page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

#: Name in the legend, colour, marker, line.
LOOKS: dict[str, tuple[str, str, str, str]] = {
    "push": ("BaseFS", "#0b5fa5", "o", "-"),
    "paper": ("BaseFS without push sessions", "#e08214", "s", "-"),
    "gossip": ("BaseFS, gossip and pulls only", "#4d9221", "D", "-"),
    "sync": ("BaseFS, periodic sync only", "#7b3294", "v", "-"),
    "paper gossip": ("paper: gossip", "#888888", "D", "--"),
    "paper both": ("paper: gossip and sync", "#222222", "x", "--"),
    "paper sync": ("paper: sync", "#555555", "v", "--"),
}
#: From light to dark, for degrees of one thing.
SHADES = ("#c6dbef", "#9ecae1", "#6baed6", "#3182bd", "#08519c", "#08306b")
_WIDTH, _HEIGHT = 4.4, 3.1
_DPI = 110


@contextlib.contextmanager
def figure(path: Path, titles: Sequence[str]) -> Iterator[list[Any]]:
    """Axes side by side, one for each title, written as a PNG file at the end."""
    plain: Any = {"font.size": 8.5, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9}
    with pyplot.rc_context(plain):
        drawing, axes = pyplot.subplots(
            1, len(titles), figsize=(_WIDTH * len(titles), _HEIGHT), squeeze=False, layout="constrained"
        )
        for ax, title in zip(axes[0], titles, strict=True):
            ax.set_title(title, loc="left")
            ax.grid(True, color="#e6e6e6", linewidth=0.6)
            ax.set_axisbelow(True)
        yield list(axes[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, dpi=_DPI, metadata={"Software": None})
        pyplot.close(drawing)


def plain_numbers(axis: Any) -> None:
    """Ticks as people write numbers, on a logarithmic axis too."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def seconds_axis(ax: Any, label: str = "seconds to all nodes") -> None:
    """A logarithmic axis of what is there already, with enough numbers on it where that is less than two decades."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high / low < 100:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    plain_numbers(ax.yaxis)
    ax.set_ylabel(label)


def line(ax: Any, look: str, points: Sequence[tuple[float, float | None, float]], label: str = "") -> None:
    """A line through points (x, seconds, waited); what has not arrived is an arrow at the time that was waited."""
    name, colour, marker, style = LOOKS[look]
    there = [(x, y) for x, y, _ in points if y is not None]
    late = [(x, waited) for x, y, waited in points if y is None]
    if there:
        ax.plot(
            *zip(*there, strict=True), style, color=colour, marker=marker, markersize=4, lw=1.3, label=label or name
        )
    if late:
        ax.plot(*zip(*late, strict=True), "^", color=colour, markersize=6, mfc="none", label="" if there else name)


def legend_below(axes: Sequence[Any]) -> None:
    """One legend for all axes of a figure, where it hides nothing."""
    found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    axes[0].figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=7.5
    )


def legend(ax: Any, title: str | None = None) -> None:
    """A legend, if there is anything to tell apart."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=7.5, title=title)
