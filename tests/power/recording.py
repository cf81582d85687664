"""A daemon under strace(1), and what it does to its home."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power.disk import Disk
from tests.power.trace import CALLS, Call, calls
from tests.support.mounts import wait_until
from tests.support.node import COMMAND, Node, detach

#: Bytes of an argument that are recorded: more than anybody writes at once.
_LONGEST = 8 << 20


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
    """A node without a network whose daemons are recorded, one after the other.

    Attributes:
        node: the node.
        disk: what its filesystems are on, with all that was recorded.
    """

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self._name = name
        self._root = node.home / "fs"
        self.disk = Disk(os.fsencode(self._root), tree_below(self._root))

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """A mount; at the end it is recorded what its daemon, which has ended then, has done."""
        point = self.node.mountpoint
        point.mkdir(exist_ok=True)
        file = self.node.base / "trace"
        options = ["-f", "-y", "-ttt", "-T", "-xx", "-qq", "-s", str(_LONGEST), "--seccomp-bpf", "-e", "signal=none"]
        options += ["-e", f"trace={','.join(f'?{name}' for name in CALLS)}", "-o", str(file)]
        command = ["strace", *options, COMMAND, "mount", "-f", "-s", self._name, point]
        with (self.node.base / "printed").open("ab") as printed:
            process = subprocess.Popen(command, env=self.node.environment, stdout=printed, stderr=printed)
        try:
            wait_until(lambda: process.poll() is not None or os.path.ismount(point), "the mount")
            assert process.poll() is None, self.printed()
            yield point
            wait_until(lambda: process.poll() is not None, "the end of the daemon")
        finally:
            process.kill()
            process.wait()
            # Of a daemon that was killed.
            detach(point)
        with file.open() as lines:
            ended, cut_off = calls(lines)
        self.disk = self._played(ended, cut_off)

    def _played(self, ended: list[Call], cut_off: list[Call]) -> Disk:
        """The disk with all that has happened, with those calls cut off by a kill -9 that have."""
        left = tree_below(self._root)
        for count in range(len(cut_off) + 1):
            for some in itertools.combinations(cut_off, count):
                disk = copy.deepcopy(self.disk)
                disk.play([*ended, *some])
                if disk.whole() == left:
                    return disk
        raise AssertionError("what was recorded is not what has happened")

    def printed(self) -> str:
        """What the daemons have printed."""
        return (self.node.base / "printed").read_text(errors="replace")
