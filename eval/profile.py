"""Where a daemon's time goes: py-spy looks at its stacks while something else keeps it busy."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from eval.tables import Row

#: Looks a second.
RATE = 200
#: Functions that a table names.
TOP = 15
#: Innermost functions of threads that wait for work.
_WAITING = frozenset(
    {
        "threading:Condition.wait",
        "selectors:EpollSelector.select",
        "thread:_worker",
    }
)
#: What of BaseFS begins a thread or a command, and so is below everything.
_OUTER = ("daemon:", "management/", "__main__:")
#: Seconds for py-spy to write what it saw.
_WRITE_TIMEOUT = 60.0
#: `name (path/file.py:line)`
_FRAME = re.compile(r"^(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)$")


class Profile:
    """Samples of a process: how often each stack was seen, its outermost frame first."""

    def __init__(self) -> None:
        self.stacks: Counter[tuple[str, ...]] = Counter()

    def by_self(self) -> list[Row]:
        """The functions in which most samples end, their calls into C included."""
        return self._rows(lambda stack: stack[-1:])

    def by_total(self) -> list[Row]:
        """The functions of BaseFS in which, or below which, most samples are."""
        return self._rows(lambda stack: [frame for frame in set(stack) if _is_ours(frame)])

    def _rows(self, frames: Callable[[tuple[str, ...]], Iterable[str]]) -> list[Row]:
        busy = {stack: count for stack, count in self.stacks.items() if stack[-1] not in _WAITING}
        seen: Counter[str] = Counter()
        for stack, count in busy.items():
            for frame in frames(stack):
                seen[frame] += count
        total = sum(busy.values()) or 1
        return [
            {"function": frame, "samples": count, "percent": round(100 * count / total, 1)}
            for frame, count in seen.most_common(TOP)
        ]


def _is_ours(frame: str) -> bool:
    """Whether a frame is BaseFS's own, and not what everything runs in."""
    where = frame.partition(":")[0]
    return ("/" in where or where in ("replica", "queries")) and not frame.startswith(_OUTER)


@contextlib.contextmanager
def profiled(pid: int) -> Iterator[Profile]:
    """Look at a process while the block runs; the profile is filled at its end.  Raises `OSError`."""
    profile = Profile()
    with tempfile.TemporaryDirectory(prefix="basefs-profile-") as directory:
        output = Path(directory) / "stacks"
        spy_program = Path(sys.executable).with_name("py-spy")
        with subprocess.Popen(
            # Blocking, it stops the process for each look; once it never let it go on, and who asked the mount hung.
            [
                *(spy_program, "record", "--nonblocking", "--pid", str(pid)),
                *("--format", "raw", "--rate", str(RATE), "--output", output),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as spy:
            try:
                yield profile
            finally:
                os.kill(spy.pid, signal.SIGINT)
                _, errors = spy.communicate(timeout=_WRITE_TIMEOUT)
        if not output.exists():
            raise OSError(f"py-spy saw nothing: {errors.decode().strip()}")
        for line in output.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            profile.stacks[tuple(map(_short, stack.split(";")))] += int(count)


def _short(frame: str) -> str:
    """`module:function`, with the module's path inside BaseFS where it is one of ours."""
    match = _FRAME.match(frame)
    if match is None:
        return frame
    file = match["file"]
    where = file.rpartition("basefs/")[2] if "basefs/" in file else Path(file).name
    return f"{where.removesuffix('.py')}:{match['function']}"
