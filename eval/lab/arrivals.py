"""When files that are written on one node are there on the others: several at a time, each node by itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eval.rows import Row

#: Seconds between two looks at all nodes.  A look at a file that is not there costs its daemon a request.
LOOK = 0.005


@dataclass
class Arrival:
    """A file on its way.

    Attributes:
        size: bytes of it; a path shows only what is complete.
        start: when it was written, `time.monotonic`.
        paths: where it is to arrive.
        seconds: that it took to each of them, `None` for those that it has not reached.
    """

    size: int
    start: float
    paths: list[Path]
    seconds: list[float | None] = field(default_factory=list)

    @property
    def everywhere(self) -> bool:
        """Whether it is on all nodes."""
        return None not in self.seconds

    def columns(self) -> Row:
        """How many nodes it reached, when it was on half and on nine tenths of these, and when on all."""
        reached = sorted(value for value in self.seconds if value is not None)
        return {
            "nodes reached": len(reached),
            "median s": round(statistics.median(reached), 4) if reached else "",
            "p90 s": round(reached[int(0.9 * (len(reached) - 1))], 4) if reached else "",
            "all s": round(reached[-1], 4) if self.everywhere and reached else "",
            "each s": " ".join("-" if value is None else f"{value:.3f}" for value in self.seconds),
        }


class Watch:
    """Looks for files in all directories but the one where they are written, which is the first."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._writer, *self._others = directories
        self._pending: list[Arrival] = []

    def write(self, name: str, content: bytes) -> Arrival:
        """Write a file and begin to look for it."""
        paths = [directory / name for directory in self._others]
        arrival = Arrival(len(content), time.monotonic(), paths, [None] * len(paths))
        (self._writer / name).write_bytes(content)
        self._pending.append(arrival)
        return arrival

    def look_until(self, deadline: float, *, early: bool = True) -> None:
        """Look until a moment of `time.monotonic`, or (`early`) until everything is everywhere."""
        while time.monotonic() < deadline:
            self._pending = [arrival for arrival in self._pending if not _look(arrival)]
            if early and not self._pending:
                return
            time.sleep(LOOK)


def _look(arrival: Arrival) -> bool:
    for index, path in enumerate(arrival.paths):
        if arrival.seconds[index] is None and _is_there(path, arrival.size):
            arrival.seconds[index] = time.monotonic() - arrival.start
    return arrival.everywhere


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
