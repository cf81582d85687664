"""Where rows of measurements come from: which code, on which machine, which run of how many, with which seed."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from basefs import __version__

_PROJECT = Path(__file__).parent.parent
#: Where rows that the project keeps are, and what is made of them; measuring changes these, which makes no other code.
KEPT = ("eval/results", "eval/REPORT.md")
_DIRTY = "-dirty"


class UncommittedCode(Exception):
    """Rows of uncommitted code would be kept, and could not be measured again."""


@dataclass(frozen=True)
class Origin:
    """What each row says of itself beside its own keys.

    Attributes:
        run: the number of the repetition, from 1: rows of several runs stand beside each other.
        seed: of contents, orders and bad networks.
        commit: of the code, with `-dirty` behind it if the tree differs from that; empty outside of a repository.
        machine: processors, memory and kernel.
    """

    run: int
    seed: int
    commit: str
    machine: str

    @classmethod
    def here(cls, *, run: int = 1, seed: int = 1) -> Origin:
        """Of rows that are measured by this code on this machine."""
        return cls(run, seed, _commit(), _machine())

    def columns(self) -> dict[str, Any]:
        """The columns of each row."""
        return asdict(self)

    def check(self, path: Path) -> None:
        """Raise `UncommittedCode` if rows in this file would be kept and could not be measured again."""
        kept = any(path.resolve().is_relative_to(_PROJECT / place) for place in KEPT)
        if kept and (not self.commit or self.commit.endswith(_DIRTY)):
            raise UncommittedCode(
                f"the code is not committed, so rows in {path} could not be measured again: commit it, "
                f"or name another directory for the rows"
            )


#: The names of these columns, which tell rows apart in every file.
COLUMNS = tuple(Origin.__dataclass_fields__)


#: Columns of what else the machine did while a row was measured, its own processes included.
STRAIN = ("load", "steal %", "waiting %")


@dataclass(frozen=True)
class Moment:
    """Counters of the machine at one moment.

    Attributes:
        at: `time.monotonic`.
        stolen: seconds that the host has taken processors away, all of them together (proc(5), `steal`).
        waiting: seconds in which some process waited for a processor; `None` where the kernel does not count them.
    """

    at: float
    stolen: float
    waiting: float | None

    @classmethod
    def now(cls) -> Moment:
        """The counters now."""
        stolen = psutil.cpu_times().steal
        try:
            waiting = re.search(r"^some .*total=(\d+)", Path("/proc/pressure/cpu").read_text())
        except OSError:
            waiting = None
        return cls(time.monotonic(), stolen, int(waiting[1]) / 1e6 if waiting else None)

    def strain(self, since: Moment) -> dict[str, Any]:
        """The columns `STRAIN` of the time between another moment and this one."""
        passed = max(self.at - since.at, 1e-9)
        stolen = 100 * (self.stolen - since.stolen) / passed / (os.cpu_count() or 1)
        waiting: float | str = ""
        if self.waiting is not None and since.waiting is not None:
            waiting = round(100 * (self.waiting - since.waiting) / passed, 1)
        return {"load": load(), "steal %": round(stolen, 1), "waiting %": waiting}


def versions() -> dict[str, Any]:
    """Columns: BaseFS, Serf, Python."""
    return {
        "basefs": __version__,
        "serf": _output("serf", "version").partition("\n")[0].removeprefix("Serf ").strip(),
        "python": platform.python_version(),
    }


def load() -> float:
    """Processes that want to run, over the last minute, for each core of this machine."""
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)


def _commit() -> str:
    commit = _output("git", "-C", str(_PROJECT), "rev-parse", "--short=12", "HEAD")
    if not commit:
        return ""
    others = [f":(exclude){place}" for place in KEPT]
    changed = _output("git", "-C", str(_PROJECT), "status", "--porcelain", "--", ".", *others)
    return commit + (_DIRTY if changed else "")


def _machine() -> str:
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    gib = round(psutil.virtual_memory().total / (1 << 30))
    name = " ".join(model[1].split()) if model else platform.machine()
    return f"{os.cpu_count()} x {name}, {gib} GiB, Linux {platform.release()}"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
