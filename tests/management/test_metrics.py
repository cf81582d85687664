"""Metrics of a real daemon, over HTTP."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import psutil
import pytest

from basefs import __version__
from tests.support.commands import Cli
from tests.support.mounts import wait_until
from tests.support.node import Node
from tests.support.ports import free_port
from tests.support.scrape import scrape, value


@pytest.fixture
def port() -> Iterator[int]:
    """A free port."""
    yield free_port()


def test_a_single_node(node: Node, conf: Cli, port: int) -> None:
    node.basefs("run", "conf", "-s", "--metrics", f"127.0.0.1:{port}", "--handler", "/never=false")
    samples = scrape(port)
    identity = node.query("list")[0]["identity"]
    assert value(samples, "basefs_info", name="conf", identity=identity, version=__version__) == 1
    assert value(samples, "basefs_entries") == 4
    assert value(samples, "basefs_conflicts") == value(samples, "basefs_damaged") == 0
    assert value(samples, "basefs_handler_runs_total", outcome="failed") == 0
    assert value(samples, "process_resident_memory_bytes") > 1_000_000
    assert value(samples, "basefs_convergence_seconds_count") == 0
    assert not any(name.startswith(("basefs_peer", "basefs_sync")) for name, _ in samples)
    # The daemon ends, and gives the port back.
    node.basefs("unmount", "conf")
    node.basefs("run", "conf", "-s", "--metrics", f"127.0.0.1:{port}")
    assert value(scrape(port), "basefs_entries") == 4


@pytest.mark.fuse
def test_what_changes(node: Node, conf: Cli, port: int) -> None:
    point = node.mount("conf", "--metrics", f"127.0.0.1:{port}", "--handler", "test $BASEFS_EVENT_PATH != /bad")
    (point / "good").touch()
    (point / "bad").touch()
    for outcome in ("failed", "done"):
        wait_until(lambda: value(scrape(port), "basefs_handler_runs_total", outcome=outcome) >= 1, outcome)  # noqa: B023
    samples = scrape(port)
    assert value(samples, "basefs_entries") == 6
    # Its own changes came from nowhere.
    assert value(samples, "basefs_convergence_seconds_count") == 0


def test_a_limit_that_is_reached(node: Node, conf: Cli, port: int) -> None:
    for limit, reached in (("1k", 1), ("1G", 0)):
        node.basefs("run", "conf", "-s", "--metrics", f"127.0.0.1:{port}", "--max-log-bytes", limit)
        assert value(scrape(port), "basefs_limit_reached") == reached
        node.basefs("unmount", "conf")


def test_off_unless_asked_for(node: Node, conf: Cli, port: int) -> None:
    node.basefs("run", "conf", "-s")
    with pytest.raises(urllib.error.URLError):
        scrape(port)


def test_a_port_that_is_taken(node: Node, conf: Cli, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        done = node.spawn("run", "conf", "-s", "--metrics", f"127.0.0.1:{port}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"cannot serve metrics on 127.0.0.1:{port}" in done.stderr


def test_a_port_alone_is_of_this_machine_alone(node: Node, conf: Cli, port: int) -> None:
    node.basefs("run", "conf", "-s", "--metrics", str(port))
    assert value(scrape(port), "basefs_entries") == 4
    (listening,) = {
        connection.laddr.ip
        for connection in psutil.Process(node.daemon("conf")).net_connections()
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    assert listening == "127.0.0.1"


def test_programs_that_hold_connections_cost_four_threads_and_are_gone_soon(node: Node, conf: Cli, port: int) -> None:
    node.basefs("run", "conf", "-s", "--metrics", str(port))
    scrape(port)
    daemon = psutil.Process(node.daemon("conf"))
    before = daemon.num_threads()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            # Some that are turned away are gone already.
            with contextlib.suppress(OSError):
                silent.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert daemon.num_threads() <= before + 4
        # They have a place for some seconds only, so that others are served again while they still hold on.
        wait_until(lambda: _is_served(port), "a scrape is answered")
    node.basefs("unmount", "conf")


def _is_served(port: int) -> bool:
    try:
        return value(scrape(port), "basefs_entries") == 4
    except OSError:
        return False


@pytest.mark.parametrize("text", ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "::1:9100"])
def test_what_is_no_address(conf: Cli, text: str) -> None:
    assert "--metrics takes PORT or IP:PORT" in conf.fails("run", "conf", "-s", "--metrics", text, code=2)
