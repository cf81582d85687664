"""The mirror and the kernel's caches on a real mount: what they fall back to, and that they leave nothing behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.node import Node
from eval.wait import wait_until
from tests.mounts import DEADLINE, temporary_directory

pytestmark = pytest.mark.fuse
NAME = "conf"


@pytest.fixture
def node() -> Iterator[Node]:
    """A node whose filesystem is not mounted yet."""
    with temporary_directory() as base, Node.temporary(base) as made:
        made.basefs("bootstrap", NAME)
        yield made


@pytest.mark.parametrize("option", ["--inotify", "--no-inotify"])
def test_what_a_command_changes_is_seen_at_once_or_very_soon(node: Node, option: str) -> None:
    """A revert changes the log behind the mount's back, as another node does."""
    point = node.mount(NAME, option)
    for text in ("one", "second"):
        (point / "f").write_text(text)
        node.settle(NAME)
    first = node.query("log", f"{NAME}:/f")[-1]["entry"]
    assert (point / "f").stat().st_size == 6
    node.basefs("revert", f"{NAME}:/f", first)
    wait_until(lambda: (point / "f").read_text() == "one", DEADLINE, "the revert is seen")
    wait_until(lambda: (point / "f").stat().st_size == 3, DEADLINE, "its size is seen")


def test_a_watcher_of_a_file_hears_of_it(node: Node) -> None:
    point = node.mount(NAME)
    for text in ("one", "second"):
        (point / "f").write_text(text)
        node.settle(NAME)
    first = node.query("log", f"{NAME}:/f")[-1]["entry"]
    with subprocess.Popen(["inotifywait", "-e", "close_write", point / "f"], stderr=subprocess.PIPE) as watcher:
        assert watcher.stderr is not None
        while b"established" not in watcher.stderr.readline():
            pass
        node.basefs("revert", f"{NAME}:/f", first)
        assert watcher.wait(DEADLINE) == 0
    assert node.entries(NAME) == len(node.query("log", f"{NAME}:/f")) + 3


def test_a_killed_daemon_leaves_no_mount_that_hangs(node: Node, tmp_path: Path) -> None:
    point = node.mount(NAME)
    (point / "f").write_text("x")
    node.kill(NAME)
    with pytest.raises(OSError, match="not connected"):
        os.listdir(point)
    node.mount(NAME)
    assert (point / "f").read_text() == "x"
