"""What a run is asked to do, and what an experiment is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from eval.rows import Row, Rows

_T = TypeVar("_T")

#: The paper's number of nodes, at size 1.
NODES = 30
#: Fewest nodes that make a network.
_LEAST_NODES = 3
#: Sizes from which on an experiment has some of the paper's steps, and all of them.
SOME, ALL = 0.08, 0.5


@dataclass(frozen=True)
class Plan:
    """A run of experiments.

    Attributes:
        size: 1 is the paper's, less is less of everything: nodes by its square root, writes and rounds in proportion.
        backend: what nodes are made of.
        nodes: how many, 0: as the size says.
        seed: of contents, orders and bad networks.
        patience: seconds for a change to be everywhere, 0: as the size says.
        results: directory of the rows.
        deadline: `time.monotonic` after which nothing new is begun.
        profiles: directory for profiles of daemons, `None`: none are made.
    """

    size: float
    backend: str = "namespaces"
    nodes: int = 0
    seed: int = 1
    patience: float = 0.0
    results: Path = Path("build/eval/lab")
    deadline: float = float("inf")
    profiles: Path | None = None

    @property
    def count(self) -> int:
        """Nodes of a cluster."""
        return self.nodes or max(_LEAST_NODES, round(NODES * self.size**0.5))

    @property
    def wait(self) -> float:
        """Seconds for a change to be everywhere."""
        return self.patience or 30 + 300 * self.size

    def scaled(self, number: float, least: int) -> int:
        """As many of `number` as the size says."""
        return max(least, round(number * self.size))

    def some(self, few: _T, more: _T, everything: _T) -> _T:
        """What belongs to a quick run, to one that takes an hour, and to the paper's."""
        return everything if self.size >= ALL else more if self.size >= SOME else few

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline

    def key(self) -> Row:
        """Columns that tell the rows of one plan from those of another."""
        return {"backend": self.backend, "nodes": self.count}


@dataclass(frozen=True)
class Experiment:
    """One of the paper's, or one that it lacks.

    Attributes:
        about: what it measures, a line.
        files: names of the CSV files that it writes, each with the columns that tell its rows apart.
        run: measures what is not there yet; prints a line for each scenario.
    """

    about: str
    files: dict[str, tuple[str, ...]]
    run: Callable[[Plan, dict[str, Rows]], None]
