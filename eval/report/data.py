"""Rows of our experiments and of the paper's, as the report asks for them."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

Row = dict[str, str]

#: The paper's own measurements.
PAPER = Path(__file__).parent.parent / "paper"


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
        """The rows of a file that have these values."""
        return _with(read(self.directory / f"{name}.csv"), wanted)

    def largest(self, name: str, **wanted: str) -> list[Row]:
        """Of these, those of the cluster with the most nodes, for each backend."""
        by_backend = group(self.rows(name, **wanted), lambda row: row["backend"])
        most = {backend: max(int(row["nodes"]) for row in rows) for backend, rows in by_backend.items()}
        return [row for rows in by_backend.values() for row in rows if int(row["nodes"]) == most[row["backend"]]]


def paper(name: str, **wanted: str) -> list[Row]:
    """The paper's rows that have these values."""
    return _with(read(PAPER / f"{name}.csv"), wanted)


def _with(rows: Iterable[Row], wanted: dict[str, str]) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


@dataclass(frozen=True)
class Point:
    """Files of one kind under one condition.

    Attributes:
        seconds: until they were on all nodes, the median of those that came to all; `None`: none did.
        missed: of the files, those that did not.
        files: how many.
        waited: seconds after which nobody waited any longer.
    """

    seconds: float | None
    missed: int
    files: int
    waited: float

    @classmethod
    def of(cls, rows: list[Row]) -> Point | None:
        """What some rows of ours say, `None` if there are none."""
        if not rows:
            return None
        times = [float(row["all s"]) for row in rows if row["all s"]]
        waited = max(float(row.get("waited at most s") or 0) for row in rows)
        return cls(statistics.median(times) if times else None, len(rows) - len(times), len(rows), waited)

    def __str__(self) -> str:
        """As a cell of a table."""
        text = f"> {self.waited:.0f}" if self.seconds is None else f"{self.seconds:.3g}"
        return text + (f" ({self.missed} of {self.files} late)" if self.missed and self.seconds is not None else "")


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
