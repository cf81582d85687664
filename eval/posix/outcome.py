"""What a test program said of one of its cases."""

from __future__ import annotations

import enum
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class Status(enum.Enum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case.

    Attributes:
        case: its name, unique within the program.
        status: how it ended.
        detail: why it failed or was skipped, one line.
    """

    case: str
    status: Status
    detail: str = ""


def passed_if(case: str, condition: bool, detail: str = "") -> Outcome:
    """A case that passes or fails; the detail is kept where it fails."""
    return Outcome(case, Status.PASSED) if condition else Outcome(case, Status.FAILED, one_line(detail))


def one_line(text: str) -> str:
    """The text without line breaks, cut where it gets too long for a table."""
    return " ".join(text.split())[:300]


def run(
    command: Sequence[str | Path], where: Path, *, timeout: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a directory; what it prints on either stream is in `stdout`.

    The whole process group ends after `timeout` seconds, with the exit code -9.
    """
    with subprocess.Popen(
        [str(word) for word in command],
        cwd=where,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            output += f"\nended after {timeout:.0f} s"
    return subprocess.CompletedProcess(command, process.returncode, output)
