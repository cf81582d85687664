"""kill -9 of the daemon, its mount server and its Serf agent: what a close() has returned for is there."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Closed files after which the kill comes, so that it hits a node in the middle of its work.
CLOSED_BEFORE_KILL = 50


class Writer(threading.Thread):
    """Writes files as fast as it can until an operation fails or it is told to stop; remembers those it closed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self._directory = directory
        self.closed: dict[str, str] = {}
        self.written = 0
        self.failed = False
        self.stop = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            name, text = f"file{number % 200}", f"revision {number}\n" * (number % 40 + 1)
            # What a close() fails for may be old, new, or gone with the truncation; only success is a promise.
            self.closed.pop(name, None)
            try:
                with open(self._directory / name, "w") as file:
                    file.write(text)
            except OSError:
                self.failed = True
                return
            self.closed[name] = text
            number += 1
            self.written = number


def _start_writing(node: Node) -> Writer:
    writer = Writer(node.mountpoint)
    writer.start()
    wait_until(lambda: len(writer.closed) >= CLOSED_BEFORE_KILL, DEADLINE, "the writer is at work")
    return writer


def _check_files(node: Node, closed: dict[str, str]) -> None:
    assert len(closed) >= CLOSED_BEFORE_KILL - 1
    for name, text in closed.items():
        assert (node.mountpoint / name).read_text() == text


def test_writes_go_on_while_the_daemon_is_killed(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(3)
    node, other, _ = cluster.nodes
    for _ in range(2):
        writer = _start_writing(node)
        serf = ask(node, "network")["serf_pid"]
        node.kill(NAME)
        wait_until(
            lambda serf=serf: not Path(f"/proc/{serf}").exists(), DEADLINE, "the Serf agent dies with the daemon"
        )  # type: ignore[misc]
        _check_goes_on(writer)
        node.mount(NAME, "--owners")
        _check_goes_on(writer)
        writer.stop.set()
        writer.join(DEADLINE)
        assert not writer.failed
        _check_files(node, writer.closed)
    cluster.wait_until_equal(DEADLINE)
    _check_files(other, writer.closed)


def _check_goes_on(writer: Writer) -> None:
    before = writer.written
    wait_until(lambda: writer.failed or writer.written > before + 1, DEADLINE, "the writer goes on")


@pytest.mark.logs("the mount server has died, mounting again")
def test_files_closed_before_the_mount_server_was_killed_are_there(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(3)
    node, other, _ = cluster.nodes
    for _ in range(2):
        writer = _start_writing(node)
        killed = node.server(NAME)
        os.kill(killed, signal.SIGKILL)
        # On a slow machine the writer may not notice.
        wait_until(lambda: _answers(node.mountpoint) and node.server(NAME) != killed, DEADLINE, "it is mounted again")  # noqa: B023
        writer.stop.set()
        writer.join(DEADLINE)
        _check_files(node, writer.closed)
    cluster.wait_until_equal(DEADLINE)
    _check_files(other, writer.closed)


def _answers(mountpoint: Path) -> bool:
    try:
        return os.path.ismount(mountpoint) and bool(os.listdir(mountpoint))
    except OSError:
        return False


def test_writes_go_on_while_the_serf_agent_is_killed(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(3)
    node, other, _ = cluster.nodes
    writer = _start_writing(node)
    killed = ask(node, "network")["serf_pid"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: ask(node, "network")["serf_pid"] not in (None, killed), DEADLINE, "a new Serf agent runs")
    writer.stop.set()
    writer.join(DEADLINE)
    assert not writer.failed
    _check_files(node, writer.closed)
    cluster.wait_until_equal(DEADLINE)
    _check_files(other, writer.closed)
    # Gossip works again, both ways: both nodes are in each other's cluster.
    cluster.wait_for_members()
    for source, target in ((node, other), (other, node)):
        text = f"from {source.address}"
        (source.mountpoint / "after").write_text(text)
        wait_until(lambda: (target.mountpoint / "after").read_text() == text, DEADLINE, "a change arrives")  # noqa: B023
