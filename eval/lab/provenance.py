"""What a row must say of itself to be worth anything later: versions, and how busy the machine was."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path

from basefs import __version__
from eval.rows import Row

_ROOT = Path(__file__).parent.parent.parent


@functools.cache
def versions() -> Row:
    """Columns: BaseFS with its commit, Serf, Python, the kernel."""
    commit = _output("git", "-C", str(_ROOT), "describe", "--always", "--dirty")
    return {
        "basefs": f"{__version__} {commit}".strip(),
        "serf": _output("serf", "version").partition("\n")[0].removeprefix("Serf ").strip(),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def load() -> float:
    """Processes that want to run, over the last minute, for each core of this machine."""
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
