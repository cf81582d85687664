"""A stopped measurement leaves nothing behind."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.patience import DEADLINE
from tests.support.project import ROOT
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_no_namespace_and_no_node_stays(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "eval.bench_net", "--scenario", "idle", "--nodes", "2", "--mode", "push"]
    bench = subprocess.Popen([*command, "--results", str(tmp_path)], cwd=ROOT)
    try:

        def namespaces() -> list[Path]:
            return list(Path("/run/netns").glob(f"bfs{bench.pid}-*"))

        def nodes() -> list[psutil.Process]:
            found = []
            for name in namespaces():
                pids = subprocess.run(["ip", "netns", "pids", name.name], capture_output=True, text=True, check=False)
                for pid in pids.stdout.split():
                    # One that has ended since it was listed is none: the namespace's own commands are short.
                    with contextlib.suppress(psutil.NoSuchProcess):
                        found.append(psutil.Process(int(pid)))
            return found

        wait_until(lambda: bool(nodes()), DEADLINE, "a node runs")
        running = nodes()
        bench.send_signal(number)
        assert bench.wait(DEADLINE) == 128 + number
        assert not namespaces()
        wait_until(lambda: not any(process.is_running() for process in running), DEADLINE, "the nodes have ended")
    finally:
        bench.kill()
        bench.wait()
