"""inotify on one node for what happens on another, and caches that never show what is gone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster import NAME, Cluster, ask
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


@pytest.fixture
def pair(shared: Callable[[int], Cluster]) -> Cluster:
    """Two nodes that have the filesystem mounted, with a key on `/` each."""
    return shared(2)


class Watcher:
    """`inotifywait -m -r` on a directory."""

    def __init__(self, directory: Path, output: Path) -> None:
        self._directory = directory
        self._output = output
        with output.open("w") as file:
            self._process = subprocess.Popen(
                ["inotifywait", "-m", "-r", "--format", "%w%f %e", directory], stdout=file, stderr=subprocess.PIPE
            )
        assert self._process.stderr is not None
        while b"established" not in self._process.stderr.readline():
            pass
        self._seen = 0

    def wait_for(self, *expected: str) -> None:
        """Until these events (`/path EVENT`) came since the last call, in this order, with others between them."""
        wait_until(lambda: self._has(expected), DEADLINE, f"{expected} in {self.events()}")
        self._seen = len(self.events())

    def _has(self, expected: tuple[str, ...]) -> bool:
        events = iter(self.events()[self._seen :])
        return all(any(event == wanted for event in events) for wanted in expected)

    def events(self) -> list[str]:
        """All that came, paths below the directory."""
        return [line.removeprefix(str(self._directory)) for line in self._output.read_text().splitlines()]

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def watcher(pair: Cluster, tmp_path: Path) -> Iterator[Watcher]:
    """A watcher on the second node, who knows a directory of the first."""
    (pair.nodes[0].mountpoint / "d").mkdir()
    wait_until(lambda: (pair.nodes[1].mountpoint / "d").is_dir(), DEADLINE, "the directory arrives")
    made = Watcher(pair.nodes[1].mountpoint, tmp_path / "events")
    yield made
    made.stop()


def test_each_kind_of_change_is_an_event(pair: Cluster, watcher: Watcher) -> None:
    there, here = (node.mountpoint for node in pair.nodes)
    (there / "d" / "f").write_text("one")
    watcher.wait_for("/d/f CREATE", "/d/f CLOSE_WRITE,CLOSE")
    assert (here / "d" / "f").read_text() == "one"
    (there / "d" / "f").write_text("two!")
    watcher.wait_for("/d/f MODIFY", "/d/f CLOSE_WRITE,CLOSE")
    assert (here / "d" / "f").read_text() == "two!"
    (there / "d" / "f").chmod(0o600)
    watcher.wait_for("/d/f ATTRIB")
    assert (here / "d" / "f").stat().st_mode & 0o777 == 0o600
    (there / "d" / "l").symlink_to("f")
    watcher.wait_for("/d/l CREATE")
    (there / "d" / "e").mkdir()
    watcher.wait_for("/d/e CREATE,ISDIR")
    (there / "d" / "f").rename(there / "d" / "e" / "g")
    watcher.wait_for("/d/f DELETE")
    assert (here / "d" / "e" / "g").read_text() == "two!"
    assert sorted(os.listdir(here / "d")) == ["e", "l"]
    (there / "d" / "e" / "g").unlink()
    (there / "d" / "e").rmdir()
    watcher.wait_for("/d/e DELETE,ISDIR")
    assert os.listdir(here / "d") == ["l"]
    before = pair.nodes[1].entries(NAME)
    pair.wait_until_equal(DEADLINE)
    assert pair.nodes[1].entries(NAME) == before
    assert "WARNING" not in pair.nodes[1].log(NAME)


def test_who_has_a_file_open_keeps_it_and_everybody_else_sees_the_new_one(pair: Cluster) -> None:
    there, here = (node.mountpoint for node in pair.nodes)
    (there / "f").write_text("old and longer " * 1000)
    (there / "g").write_text("goes")
    wait_until(lambda: (here / "g").exists() and (here / "f").exists(), DEADLINE, "the files arrive")
    with (here / "f").open() as changed, (here / "g").open() as removed:
        first = changed.read(10)
        (there / "f").write_text("new")
        (there / "g").unlink()
        wait_until(lambda: (here / "f").read_text() == "new", DEADLINE, "the change arrives")
        wait_until(lambda: not (here / "g").exists(), DEADLINE, "the removal arrives")
        assert first + changed.read() == "old and longer " * 1000
        assert removed.read() == "goes"
        assert os.fstat(changed.fileno()).st_size == 15_000
        assert (here / "f").stat().st_size == 3
    assert (here / "f").read_text() == "new"
    assert sorted(os.listdir(here)) == ["f"]


def test_a_removed_name_can_be_used_again_at_once(pair: Cluster) -> None:
    there, here = (node.mountpoint for node in pair.nodes)
    for number in range(20):
        (there / "f").write_text(f"there {number}")
        wait_until(lambda: (here / "f").exists(), DEADLINE, "the file arrives")
        assert (here / "f").stat().st_size
        (there / "f").unlink()
        wait_until(lambda: len(ask(pair.nodes[1], "show", path="/")) == 2, DEADLINE, "the removal arrives")
        # The view has it, the kernel may not know yet.
        with (here / "f").open("w") as file:
            file.write("here")
        assert (here / "f").read_text() == "here"
        (here / "f").unlink()
        pair.wait_until_equal(DEADLINE)
