"""Other users of the machine: none of them reads or reaches what belongs to a node, however its directory was made."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import COMMAND, Node
from tests.support.patience import DEADLINE
from tests.support.ports import free_port
from tests.support.wait import wait_until

#: On every system, and never who runs these tests.
NOBODY = 65534
pytestmark = [pytest.mark.root, pytest.mark.process, pytest.mark.logs("was open to other users of this machine")]

#: Tries to open each path of its input, as a file and as a socket; prints those that it could.
_INTRUDER = """
import os, socket, sys
for path in sys.stdin.read().split("\\0"):
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, "rb").close()
        print(path)
    except OSError:
        pass
    with socket.socket(socket.AF_UNIX) as end:
        try:
            end.connect(path)
            print(path)
        except OSError:
            pass
"""


def reached(paths: list[Path]) -> set[str]:
    """Which of these another user of this machine can open, list or connect to."""
    command = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    text = "\0".join(map(str, paths))
    done = subprocess.run(
        [*command, sys.executable, "-I", "-c", _INTRUDER], input=text, capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines())


@pytest.fixture
def loose(base: Path) -> Iterator[Node]:
    """A node whose home was made by somebody who thought of no other users, below a directory that all can enter."""
    base.chmod(0o755)
    before = os.umask(0)
    try:
        with Node.temporary(base) as node:
            for name in ("", "fs", "run", "logs"):
                (node.home / name).mkdir()
            (node.home / "logs" / "conf.log").touch()
            yield node
    finally:
        os.umask(before)


@pytest.mark.fuse
@pytest.mark.serf
def test_another_user_reaches_nothing_of_a_running_node(loose: Node) -> None:
    loose.address, loose.port = "127.0.0.1", free_port()
    loose.basefs("bootstrap", "conf")
    point = loose.mount("conf", "--profile", "local", "-d")
    (point / "secret").write_text("x" * 100_000)
    (point / "secret").chmod(0o600)
    loose.settle("conf")
    # Contents are unpacked.
    loose.basefs("cat", "conf:/secret")
    wait_until(lambda: loose.query("members", "conf"), DEADLINE, "Serf runs")
    paths = [loose.home, *loose.home.rglob("*")]
    names = {path.name for path in paths}
    assert {"log.db", "cache.db", "conf.sock", "conf.mount.sock", "conf.log", "key"} <= names
    assert {"serf.json", "serf.snapshot", "secret", ".cluster"} <= names
    public = {"key.pub", "conf.root.key.pub"}
    assert reached(paths) == {str(loose.home), *(str(loose.home / name) for name in public)}
    # Behind the directories nothing is open, either, but what was there before, and what has the modes of the mount.
    tree = loose.home / "fs" / "conf" / "tree"
    closed = [path for path in paths if not (path.is_symlink() or path == tree or tree in path.parents)]
    loose_ones = {path.name for path in closed if stat.S_IMODE(path.stat().st_mode) & 0o077}
    assert loose_ones == {"home", "conf.log"} | public
    assert reached([point / "secret"]) == set()
    # The home itself was chosen by somebody, so it is theirs to close.
    assert loose.spawn("doctor", "conf").stdout.count("is writable by other users") == 1
    loose.basefs("unmount", "conf")
    left = (path for path in loose.home.rglob("*") if not (path == tree or tree in path.parents))
    rest = {path.name for path in left if stat.S_IMODE(path.lstat().st_mode) & 0o077}
    assert rest == {"conf.log"} | public


def test_a_home_that_nobody_chose_is_closed_and_that_is_said(base: Path) -> None:
    home = base / ".basefs"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    environment = {**os.environ, "HOME": str(base)}
    del environment["BASEFS_HOME"]
    said = []
    for name in ("one", "two"):
        done = subprocess.run([COMMAND, "bootstrap", name], env=environment, capture_output=True, text=True, check=True)
        said.append(done.stderr)
    assert said[0].count("\n") == 1
    assert f"{home} was open to other users of this machine (mode 0755), and is not any more" in said[0]
    assert said[1] == ""
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_home_that_another_user_can_enter_gives_no_control(base: Path) -> None:
    base.chmod(0o755)
    with Node.temporary(base) as node:
        node.home.mkdir(mode=0o777)
        node.basefs("bootstrap", "conf")
        node.basefs("run", "conf", "-s")
        path = node.home / "run" / "conf.sock"
        # Even where somebody opens the directories afterwards.
        for directory in (
            node.home,
            node.home / "run",
            node.home / "logs",
            node.home / "fs",
            node.home / "fs" / "conf",
        ):
            directory.chmod(0o755)
        files = {str(found) for found in node.home.rglob("*") if not found.is_dir()}
        assert reached([path, *map(Path, files)]) & files == {
            str(node.home / "key.pub"),
            str(node.home / "conf.root.key.pub"),
            # As on the mount: what others may do with it is what its mode says.
            str(node.home / "fs" / "conf" / "tree" / ".cluster"),
        }
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(str(path))
        node.basefs("unmount", "conf")


@pytest.mark.fuse
def test_handlers_have_the_umask_of_who_started_the_daemon(base: Path) -> None:
    told = base / "umask"
    before = os.umask(0o027)
    try:
        with Node.temporary(base) as node:
            node.basefs("bootstrap", "conf")
            point = node.mount("conf", "--handler", f"umask > {told}")
            (point / "f").touch()
            wait_until(lambda: told.exists() and told.read_text() == "0027\n", DEADLINE, "the handler ran")
            node.basefs("unmount", "conf")
    finally:
        os.umask(before)
