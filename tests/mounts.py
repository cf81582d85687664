"""Real nodes for tests: the `basefs` command with a home of its own, mounts, and the certainty that both end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from basefs.management.control import call

#: The command as users have it: beside the interpreter that runs the tests.
COMMAND = Path(sys.executable).with_name("basefs")
#: Seconds after which a condition that should come true at once counts as never coming true.
DEADLINE = 30.0

_MNT_DETACH = 2


def require_fuse() -> None:
    """Skip the test where nothing can be mounted; fail it in CI, where everything must run."""
    reason = None
    if not Path("/dev/fuse").exists():
        reason = "there is no /dev/fuse"
    elif os.geteuid() != 0:
        reason = "only root can mount for all users"
    if reason is not None and os.environ.get("CI"):
        pytest.fail(f"{reason}, and in CI no test may be skipped")
    if reason is not None:
        pytest.skip(reason)


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """A directory that disappears, with a path short enough for sockets, in memory if that can be.

    On a disk most of the time of these tests would go into the syncing of new databases.
    """
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="basefs-", dir=base) as text:
        yield Path(text)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as the condition holds; fail when it does not come true."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"after {DEADLINE:.0f} s still waiting for: {what}"
        time.sleep(0.01)


def mount_points(below: Path) -> list[Path]:
    """The BaseFS mounts at and below a directory, dead ones too, the latest first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if fields[fields.index("-") + 1] == "fuse.basefs":
            # proc(5): spaces, tabs, newlines and backslashes are octal.
            points.append(Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])))
    return [point for point in reversed(points) if point == below or below in point.parents]


def has_ended(pid: int) -> bool:
    """Whether a process and all of its threads have ended, so that their files are closed; nobody may reap it."""
    try:
        threads = len(os.listdir(f"/proc/{pid}/task"))
        return threads <= 1 and psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return True


def detach(point: Path) -> None:
    """Unmount lazily, whatever state the mount is in."""
    ctypes.CDLL(None).umount2(os.fsencode(point), _MNT_DETACH)


class Node:
    """A BASEFS_HOME and the daemons that run from it; `Node.temporary` ends all of them.

    Attributes:
        base: directory of everything, with the home and the mount points in it.
        home: what BASEFS_HOME says.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"

    @classmethod
    @contextlib.contextmanager
    def temporary(cls, base: Path) -> Iterator[Node]:
        """A node in an empty directory, of which nothing runs afterwards."""
        node = cls(base)
        try:
            yield node
        finally:
            node.end()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        return {**os.environ, "BASEFS_HOME": str(self.home)}

    def spawn(self, *arguments: str | bytes | Path) -> subprocess.CompletedProcess[str]:
        """Run the real command and wait for it."""
        return subprocess.run(
            [COMMAND, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=DEADLINE,
            check=False,
        )

    def basefs(self, *arguments: str | bytes | Path) -> str:
        """Run the real command, which must succeed, and return what it printed."""
        done = self.spawn(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def mount(self, name: str, *options: str | Path, point: str = "mnt") -> Path:
        """Mount with the real command, without a network; returns the mount point."""
        directory = self.base / point
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
        self.basefs("mount", name, directory, "-s", *options)
        return directory

    def daemon(self, name: str) -> int:
        """Process id of the daemon of a filesystem."""
        return int(json.loads((self.home / "run" / f"{name}.json").read_text())["pid"])

    def kill(self, name: str) -> None:
        """End the daemon of a filesystem as a crash does, and wait until it has gone."""
        self._end(self.daemon(name), signal.SIGKILL)

    @staticmethod
    def _end(pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        wait_until(lambda: has_ended(pid), f"the end of process {pid}")

    def entries(self, name: str) -> int:
        """How many entries the log of a running filesystem holds."""
        return int(call(self.home / "run" / f"{name}.sock", "summary", {})["entries"])

    def end(self) -> None:
        """Unmount everything and end every daemon, so that nothing outlives a test, passed or failed."""
        for point in mount_points(self.base):
            detach(point)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("BASEFS_HOME") == str(self.home) and process.pid != os.getpid():
                    self._end(process.pid, signal.SIGKILL)
