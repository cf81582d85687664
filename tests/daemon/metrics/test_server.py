"""The server of metrics."""

from __future__ import annotations

import time

import pytest

from basefs.daemon.api.messages import Request
from basefs.daemon.metrics.collector import DaemonCollector
from basefs.daemon.metrics.server import MetricsServer
from basefs.errors import DaemonError
from tests.support.ports import free_port


def never(request: Request[object]) -> object:
    raise DaemonError("nobody asks")


@pytest.mark.alone
def test_a_server_stops_at_once() -> None:
    """An unmount waits for it."""
    spent = 0.0
    for _ in range(10):
        server = MetricsServer()
        server.start("127.0.0.1", free_port(), DaemonCollector("conf", "0", never))
        before = time.monotonic()
        server.stop()
        spent += time.monotonic() - before
    # Half a second each where the thread is not woken.
    assert spent < 1
