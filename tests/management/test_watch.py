"""`basefs watch`: every change once, also those made while no command was watching."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.commands import Cli
from tests.support.node import COMMAND, Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = pytest.mark.fuse


class Watcher:
    """A `basefs watch --json` that runs.

    Attributes:
        items: what it has printed.
    """

    def __init__(self, node: Node, *arguments: str) -> None:
        self.items: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [COMMAND, "watch", *arguments, "--json"],
            env=node.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.items.append(json.loads(line))

    @property
    def token(self) -> str:
        """The last one printed."""
        return str(self.items[-1]["token"])

    def changes(self) -> list[str]:
        """What has happened."""
        return [f"{item['type']} {item['path']}" for item in self.items if "type" in item]

    def wait(self, *expected: str) -> None:
        """Until exactly these changes have been printed."""
        wait_until(lambda: len(self.changes()) >= len(expected), DEADLINE, f"{expected}, not {self.changes()}")
        assert self.changes() == list(expected)

    def end(self) -> tuple[int, str]:
        """Wait for its end; returns exit code and stderr."""
        code = self.process.wait(DEADLINE)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        message = "" if self.process.stderr.closed else self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, message

    def interrupt(self) -> None:
        """As Ctrl-C does: it ends at once, by the signal itself, whatever it is doing."""
        self.process.send_signal(signal.SIGINT)
        assert self.end() == (-signal.SIGINT, "")


@contextlib.contextmanager
def watching(node: Node, *arguments: str) -> Iterator[Watcher]:
    """A watcher that has begun."""
    watcher = Watcher(node, *arguments)
    try:
        wait_until(lambda: bool(watcher.items), DEADLINE, "the watcher begins")
        yield watcher
    finally:
        watcher.process.kill()
        watcher.end()


@pytest.fixture
def point(node: Node, conf: Cli) -> Path:
    """A mount."""
    return node.mount("conf")


def test_changes_are_printed_once_and_in_order(node: Node, point: Path) -> None:
    with watching(node, "conf") as watcher:
        (point / "d").mkdir()
        (point / "d" / "f").write_text("one")
        watcher.wait("create /d", "create /d/f")
        (point / "d" / "f").write_text("two")
        watcher.wait("create /d", "create /d/f", "modify /d/f")
        (point / "d" / "f").chmod(0o600)
        wait_until(lambda: len(watcher.changes()) == 4, DEADLINE, "the chmod")
        (point / "d" / "f").unlink()
        (point / "d").rmdir()
        watcher.wait("create /d", "create /d/f", "modify /d/f", "attributes /d/f", "delete /d/f", "delete /d")
        item = watcher.items[1]
        assert (item["kind"], len(item["entry"])) == ("directory", 56)
        assert all(abs(one["seen"] - time.time()) < DEADLINE for one in watcher.items[1:])
        (key,) = node.query("keys", "conf")
        assert {(one["key"], one["fingerprint"]) for one in watcher.items[1:]} == {(key["name"], key["fingerprint"])}


def test_only_what_is_below_a_path(node: Node, point: Path) -> None:
    (point / "d").mkdir()
    with watching(node, "conf:/d") as below, watching(node, "conf") as everywhere:
        (point / "f").write_text("elsewhere")
        (point / "d" / "f").write_text("here")
        everywhere.wait("create /f", "create /d/f")
        below.wait("create /d/f")


def test_what_happened_while_nobody_watched_is_told_even_of_a_daemon_that_was_killed(node: Node, point: Path) -> None:
    with watching(node, "conf") as watcher:
        (point / "seen").write_text("one")
        watcher.wait("create /seen")
        watcher.interrupt()
        token = watcher.token
    (point / "missed").write_text("one")
    node.basefs("show", "conf")
    node.kill("conf")
    node.mount("conf")
    (point / "seen").unlink()
    with watching(node, "conf", "--since", token) as watcher:
        watcher.wait("create /missed", "delete /seen")
        # From each of its tokens everything after it comes, and nothing twice.
        for number, item in enumerate(watcher.items):
            with watching(node, "conf", "--since", item["token"]) as other:
                other.wait(*watcher.changes()[number:])


def test_a_daemon_that_ends(node: Node, point: Path) -> None:
    with watching(node, "conf") as watcher:
        (point / "f").write_text("one")
        watcher.wait("create /f")
        node.basefs("unmount", "conf")
        code, message = watcher.end()
        assert code == 1
        assert message == (
            f"basefs: the daemon of conf has ended; continue later with: basefs watch conf --since {watcher.token}\n"
        )
    done = node.spawn("watch", "conf")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "conf is not running" in done.stderr


def test_reconnecting(node: Node, point: Path) -> None:
    with watching(node, "conf", "--reconnect") as watcher:
        (point / "f").write_text("one")
        watcher.wait("create /f")
        node.kill("conf")
        node.mount("conf")
        (point / "g").write_text("two")
        watcher.wait("create /f", "create /g")
        node.basefs("unmount", "conf")
        node.mount("conf")
        (point / "h").write_text("three")
        watcher.wait("create /f", "create /g", "create /h")


def test_a_slow_reader_costs_the_daemon_nothing(node: Node, point: Path) -> None:
    process = psutil.Process(node.daemon("conf"))
    with watching(node, "conf") as watcher:
        first = watcher.token
        os.kill(watcher.process.pid, signal.SIGSTOP)
        for number in range(3000):
            os.symlink("x" * 200, point / f"{'n' * 200}{number}")
        with watching(node, "conf", "--since", first) as other:
            wait_until(lambda: len(other.changes()) == 3000, 2 * DEADLINE, "another one has all")
        before = process.memory_info().rss
        with watching(node, "conf", "--since", first) as other:
            wait_until(lambda: len(other.changes()) == 3000, 2 * DEADLINE, "another one has all")
        assert process.memory_info().rss - before < 20_000_000
        os.kill(watcher.process.pid, signal.SIGCONT)
        wait_until(lambda: len(watcher.changes()) == 3000, 2 * DEADLINE, "the slow one has all")
        assert watcher.changes() == other.changes()


def test_a_watcher_that_goes_away_is_forgotten(node: Node, point: Path) -> None:
    process = psutil.Process(node.daemon("conf"))
    before = process.num_fds()
    with watching(node, "conf"):
        opened = process.num_fds()
    assert opened > before
    wait_until(lambda: process.num_fds() < opened, DEADLINE, "its connection is closed")


def test_what_is_no_token(node: Node, point: Path) -> None:
    done = node.spawn("watch", "conf", "--since", "nonsense")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "is not a token of this node's journal" in done.stderr


def test_lines_for_people(node: Node, point: Path) -> None:
    with subprocess.Popen(
        [COMMAND, "watch", "conf"], env=node.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stdout is not None
            assert process.stderr.readline().startswith("from ")
            (point / "a\nb").write_text("x")
            fields = process.stdout.readline().rstrip("\n").split("\t")
            assert fields[1:4] == ["create", "file", "/a\\nb"]
            assert fields[4] == node.query("keys", "conf")[0]["name"]
        finally:
            process.kill()
