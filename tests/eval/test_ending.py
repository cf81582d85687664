"""A stopped benchmark leaves nothing behind: no mount, no process, no namespace, no file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.support.patience import DEADLINE
from tests.support.project import ROOT
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: What each benchmark is asked for, so that it soon has something that could stay.
BENCHMARKS: dict[str, Sequence[str]] = {
    "eval.bench_net": ("--scenario", "idle", "--nodes", "2", "--mode", "push"),
    "eval.bench_log": ("--counts", "1000"),
    "eval.bench_churn": ("--entries", "1000"),
    "eval.bench_fs": (),
    "eval.bench_mount": ("--scenario", "move"),
    "eval.bench_growth": ("--edits", "1"),
    "eval.bench_contents": ("--megabytes", "20"),
    "eval.bench_hostile": ("--count", "2000"),
    "eval.storm": (),
    "eval.posix": ("--only", "git"),
    "eval": ("scaling", "--quick"),
}
#: Those that mount nothing: it is enough that they are at work.
WITHOUT_MOUNT = ("eval.bench_contents", "eval.bench_hostile")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory with a short name: those of sockets have a limit."""
    with tempfile.TemporaryDirectory(prefix="bfs-") as directory:
        yield Path(directory)


@contextlib.contextmanager
def started(module: str, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A benchmark with a directory of its own for all that it makes."""
    command = [sys.executable, "-m", module, *BENCHMARKS[module], "--results", str(scratch / "results")]
    (scratch / "tmp").mkdir()
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(scratch / "tmp")}) as bench:
        try:
            yield bench
        finally:
            # In order, also where the test fails: a benchmark that is killed leaves its nodes.
            bench.terminate()
            try:
                bench.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                bench.kill()


def mounts(scratch: Path) -> list[str]:
    """The mounts below a directory."""
    points = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    return [point for point in points if point.startswith(str(scratch))]


def processes(scratch: Path) -> list[psutil.Process]:
    """All processes that were started with this directory for their files."""
    found = []
    for process in psutil.process_iter():
        # One that has ended since it was listed is none.
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            if process.environ().get("TMPDIR") == str(scratch / "tmp"):
                found.append(process)
    return found


def namespaces(pid: int) -> list[Path]:
    """Network namespaces that a process has made."""
    return list(Path("/run/netns").glob(f"bfs{pid}-*"))


def wait_until_at_work(bench: subprocess.Popen[bytes], scratch: Path, *, mounting: bool = True) -> None:
    """Until there is something that could stay."""

    def is_at_work() -> bool:
        assert bench.poll() is None, "it has ended"
        return bool(mounts(scratch) if mounting else os.listdir(scratch / "tmp"))

    wait_until(is_at_work, DEADLINE, "it is at work")


@pytest.mark.parametrize("module", BENCHMARKS)
def test_nothing_stays_of_a_benchmark(scratch: Path, module: str) -> None:
    with started(module, scratch) as bench:
        wait_until_at_work(bench, scratch, mounting=module not in WITHOUT_MOUNT)
        bench.terminate()
        assert bench.wait(DEADLINE) == 128 + signal.SIGTERM
        assert not mounts(scratch) and not namespaces(bench.pid)
        wait_until(lambda: not processes(scratch), DEADLINE, "its processes have ended")
        assert not os.listdir(scratch / "tmp")


def test_nothing_stays_when_the_terminal_goes(scratch: Path) -> None:
    with started("eval.bench_net", scratch) as bench:
        wait_until_at_work(bench, scratch)
        bench.send_signal(signal.SIGHUP)
        assert bench.wait(DEADLINE) == 128 + signal.SIGHUP
        assert not mounts(scratch) and not namespaces(bench.pid)
        wait_until(lambda: not processes(scratch), DEADLINE, "its processes have ended")
