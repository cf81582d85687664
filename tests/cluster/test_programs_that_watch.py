"""Public programs that wait for a file to change, on one node, while another node changes it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from eval.saves import NEW, OLD, PROGRAMS
from tests.support.cluster import Cluster
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

#: Ways to save that are different for a watcher: in place, beside it and renamed, and with the old one kept a while.
SAVES = [p for p in PROGRAMS if p.name in ("`>` in a shell", "`sed -i`", "vim, default settings", "vim, backup on")]
#: What systemd listens for on the path of PathChanged= (systemd.path(5); `path_spec_watch` in its path.c).
SYSTEMD = "delete_self,move_self,attrib,close_write,create,delete,moved_from,moved_to"


@pytest.fixture
def pair(shared: Callable[[int], Cluster]) -> Cluster:
    """Two nodes that have the filesystem mounted, and a file."""
    made = shared(2)
    (made.nodes[0].mountpoint / "file").write_text(OLD)
    wait_until(lambda: (made.nodes[1].mountpoint / "file").read_text() == OLD, DEADLINE, "the file arrives")
    return made


def is_watching(process: subprocess.Popen[bytes]) -> bool:
    """Whether a program has an inotify watch, which its fdinfo tells (inotify(7))."""
    return any("inotify wd" in path.read_text() for path in Path(f"/proc/{process.pid}/fdinfo").iterdir())


class Entr:
    """`entr` that waits for a file, and notes what it reads then."""

    def __init__(self, file: Path, noted: Path) -> None:
        self._noted = noted
        noted.touch()
        # -a: also what comes while the command runs, which it leaves out otherwise, on a disk too.  -n: there is no
        # terminal.  -p: not before the first change.
        self._process = subprocess.Popen(
            ["entr", "-a", "-n", "-p", "sh", "-c", 'cat "$1" >> "$2"; echo END >> "$2"', "sh", file, noted],
            stdin=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(bytes(file) + b"\n")
        self._process.stdin.close()
        wait_until(lambda: is_watching(self._process), DEADLINE, "entr watches")

    def has_read(self, content: str) -> bool:
        """Whether the last thing that its command has read is this."""
        return self._noted.read_text().endswith(content + "END\n")

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@pytest.fixture
def entr(pair: Cluster, tmp_path: Path) -> Iterator[Entr]:
    """It waits on the second node."""
    made = Entr(pair.nodes[1].mountpoint / "file", tmp_path / "noted")
    yield made
    made.stop()


def saves(pair: Cluster, tmp_path: Path) -> Iterator[tuple[str, Callable[[], None], str]]:
    """Each way to save on the first node, and back in place; tells what it is, does it, and what is in the file then.

    On the second node the file is at rest, and then somebody has it open, so that it is made anew instead of rewritten.
    """
    there, here = (node.mountpoint for node in pair.nodes)
    for number, program in enumerate(SAVES):
        scratch = tmp_path / f"scratch{number}"
        scratch.mkdir()
        yield program.name, partial(program.save, there, scratch), NEW
        with (here / "file").open():
            yield f"back after {program.name}", partial((there / "file").write_text, OLD), OLD
        with (here / "file").open():
            yield f"{program.name}, while it is open", partial(program.save, there, scratch), NEW
        yield f"back after {program.name} again", partial((there / "file").write_text, OLD), OLD


def test_entr_runs_its_command_for_each_way_to_save(pair: Cluster, entr: Entr, tmp_path: Path) -> None:
    for name, save, content in saves(pair, tmp_path):
        save()
        wait_until(lambda content=content: entr.has_read(content), DEADLINE, f"entr: {name}")  # type: ignore[misc]


def test_systemd_would_see_that_the_path_has_changed(pair: Cluster, tmp_path: Path) -> None:
    """Played with its event mask on the file itself, watched anew after each event."""
    file = pair.nodes[1].mountpoint / "file"
    for name, save, content in saves(pair, tmp_path):
        with subprocess.Popen(["inotifywait", "-q", "-e", SYSTEMD, file], stdout=subprocess.DEVNULL) as watcher:
            try:
                wait_until(partial(is_watching, watcher), DEADLINE, "inotifywait watches")
                save()
                assert watcher.wait(DEADLINE) == 0, name
            finally:
                watcher.kill()
        wait_until(lambda content=content: file.read_text() == content, DEADLINE, f"the file: {name}")  # type: ignore[misc]
