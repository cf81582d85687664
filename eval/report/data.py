"""Rows of our experiments and of the paper's, as the report asks for them."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from eval.rows import FAILED

Row = dict[str, str]

#: The paper's own measurements.
PAPER = Path(__file__).parent.parent / "paper"
#: Rows of the benchmarks that the project keeps.
BENCHMARKS = Path(__file__).parent.parent / "results"


def read(path: Path) -> list[Row]:
    """The rows of a CSV file, none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Results:
    """What was measured here: CSV files in a directory."""

    directory: Path

    def rows(self, name: str, **wanted: str) -> list[Row]:
        """The rows of a file that have these values: of all runs of the code and the machine that came last."""
        return [row for row in _with(self._latest(name), wanted) if not row.get(FAILED)]

    def failed(self, name: str) -> list[Row]:
        """The measurements of a file that failed, of the same code and machine."""
        return [row for row in self._latest(name) if row.get(FAILED)]

    def _latest(self, name: str) -> list[Row]:
        found = read(self.directory / f"{name}.csv")
        return [row for row in found if _place(row) == _place(found[-1])]

    def largest(self, name: str, **wanted: str) -> list[Row]:
        """Of these, those of the cluster with the most nodes, for each backend."""
        by_backend = group(self.rows(name, **wanted), lambda row: row["backend"])
        most = {backend: max(int(row["nodes"]) for row in rows) for backend, rows in by_backend.items()}
        return [row for rows in by_backend.values() for row in rows if int(row["nodes"]) == most[row["backend"]]]


def _place(row: Row) -> tuple[str | None, ...]:
    return row.get("commit"), row.get("machine")


def paper(name: str, **wanted: str) -> list[Row]:
    """The paper's rows that have these values."""
    return _with(read(PAPER / f"{name}.csv"), wanted)


def _with(rows: Iterable[Row], wanted: dict[str, str]) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


@dataclass(frozen=True)
class Point:
    """Files of one kind under one condition.

    Attributes:
        seconds: until they were on all nodes, the median of all files; `None`: it is more than `waited`, because half
            of them or more were late.
        least, most: of the files; `most` is infinite if one was late.
        missed: of the files, those that were not on all nodes when the run stopped waiting.
        files: how many.
        waited: seconds until it did.
    """

    seconds: float | None
    least: float
    most: float
    missed: int
    files: int
    waited: float

    @classmethod
    def of(cls, rows: list[Row]) -> Point | None:
        """What some rows of ours say, `None` if there are none."""
        if not rows:
            return None
        times = seconds_to_all(rows)
        waited = max(float(row.get("waited at most s") or 0) for row in rows)
        middle = statistics.median(times)
        missed = times.count(math.inf)
        return cls(middle if middle < math.inf else None, min(times), max(times), missed, len(rows), waited)

    def __str__(self) -> str:
        """As a cell of a table."""
        text = f"> {self.waited:.0f}" if self.seconds is None else f"{self.seconds:.3g}"
        if self.files == 1:
            return f"{text} (n=1)"
        if self.missed:
            return f"{text} (n={self.files}, {self.missed} late)"
        return f"{text} (n={self.files}, {self.least:.3g} to {self.most:.3g})"


def seconds_to_all(rows: Iterable[Row]) -> list[float]:
    """Seconds until each file was on all nodes, in order; infinite for one that was late."""
    return sorted(float(row["all s"]) if row["all s"] else math.inf for row in rows)


def papers(experiment: str, condition: str, messages: int) -> float | None:
    """The paper's median of the seconds to all nodes, `None` where it has not measured that."""
    rows = paper("convergence", experiment=experiment, scenario="baseline" if condition == "none" else condition)
    for row in rows:
        if row["messages"] == str(messages) and row["all_nodes_median_s"]:
            return float(row["all_nodes_median_s"])
    return None


def number(condition: str) -> float:
    """Of a condition such as delay-160."""
    return float(condition.partition("-")[2])


def group(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Rows by something."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
