"""Programs and a filesystem under strace(1), and what they do to its directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from basefs.fs.filesystem import Filesystem
from basefs.fs.worktree.owners import Owners
from tests.power.disk import Disk
from tests.power.trace import CALLS, calls
from tests.support.helpers import make_replica
from tests.support.project import ROOT

#: Bytes of an argument that are recorded: more than anybody writes at once.
_LONGEST = 8 << 20
_OPTIONS = ("-f", "-y", "-ttt", "-T", "-xx", "-qq", "-s", str(_LONGEST), "--seccomp-bpf", "-e", "signal=none")


class Version(NamedTuple):
    """What a name was from some moment on.

    Attributes:
        path: the name.
        content: its digest; `directory`, or `None` for nothing.
        began: when the call began that made it so, UNIX seconds.
        promised: when a call had returned that made it durable, `None` if none did.
        stamps: inode, modification time and change time then.
    """

    path: str
    content: str | None
    began: float
    promised: float | None
    stamps: tuple[int, int, int] | None


def tree_below(root: Path) -> dict[bytes, bytes | None]:
    """What is in a directory: contents by path, `None` for directories."""
    found: dict[bytes, bytes | None] = {}
    for path in root.rglob("*"):
        if not path.name.endswith("-shm"):
            found[os.fsencode(path.relative_to(root))] = path.read_bytes() if path.is_file() else None
    return found


def require_strace() -> None:
    """Skip the test where there is no strace; fail it in CI, where everything must run."""
    if shutil.which("strace") is None:
        reason = "there is no strace: apt-get install strace"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}, and in CI no test may be skipped")
        pytest.skip(reason)


class Recorder:
    """A filesystem in a directory, and the recorded processes that work on it, one after the other.

    Attributes:
        home: the directory, which stays until the end, so that no new file gets an inode number of a recorded one.
        disk: what it is on, with all that was recorded.
        versions: what names were, in this order.
    """

    def __init__(self, base: Path) -> None:
        self.home = base / "recorded"
        self._file = base / "trace"
        replica = make_replica(self.home)
        Filesystem(replica, Owners(os.getuid(), os.getgid(), keep=False), 0.0).close()
        replica.close()
        self.disk = Disk(os.fsencode(self.home), tree_below(self.home))
        self.versions: list[Version] = []

    def record(self, seed: int, steps: int, ending: str) -> None:
        """Have programs do so many things; `ending`: `close` or `kill`."""
        command = ["strace", *_OPTIONS, "-e", f"trace={','.join(f'?{name}' for name in CALLS)}", "-o", self._file]
        command += [sys.executable, "-m", "tests.power.work", self.home, str(seed), str(steps), ending]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        for line in done.stdout.splitlines():
            path, content, began, promised, stamps = json.loads(line)
            self.versions.append(Version(path, content, began, promised, None if stamps is None else tuple(stamps)))
        with self._file.open() as lines:
            ended, cut_off = calls(lines)
        assert not cut_off
        self.disk.play(ended)
        assert self.disk.whole() == tree_below(self.home), "what was recorded is not what has happened"
