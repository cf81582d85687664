"""Random programs on a mount beside a plain directory: the same outcomes, the same trees, and that is published.

Meanwhile the daemon is killed, which nobody notices; the mount server is killed; the filesystem is mounted anew.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.fs.worktree.owners import Owners
from basefs.replica.replica import LOG_FILE, Replica
from tests.fs.served import Served, answers, served, view_of
from tests.fs.twin import (
    CHANGES,
    HELD,
    LOOKS,
    NOBODY,
    NOTHING,
    OPENS,
    ROOT_CHANGES,
    Place,
    Step,
    Twins,
    View,
    content_of,
    differences,
    view,
)
from tests.support.examples import part
from tests.support.mounts import temporary_directory, wait_until
from tests.support.node import Node

pytestmark = pytest.mark.fuse

NAME = "conf"
#: Seconds in which all is published that nobody writes to.
PUBLISH_SECONDS = 20.0
#: What is there when a program begins.
FIRST: tuple[Step, ...] = (
    ("mkdir", "d", 0o755),
    ("mkdir", "d/e", 0o755),
    ("mkdir", "e", 0o777),
    ("save", "a", 3, os.O_CREAT),
    ("save", "d/a", 3, os.O_CREAT),
    ("save", "d/e/a", 4200, os.O_CREAT),
    ("link", "d/a", "b"),
)
USERS = st.sampled_from([0, 0, 0, 0, NOBODY])
STEPS = st.tuples(st.one_of(NOTHING, CHANGES, CHANGES, ROOT_CHANGES, OPENS, HELD, HELD, LOOKS), USERS)
EVENTS = st.sampled_from(
    [
        "nothing",
        "publish",
        "publish",
        "kill_daemon",
        "kill_daemon",
        "die_while_publishing",
        "start_daemon",
        "kill_server",
        "remount",
    ]
)
#: Steps, and what happens then.
Program = list[tuple[list[tuple[Step, int]], str]]
PROGRAMS: st.SearchStrategy[Program] = st.lists(
    st.tuples(st.lists(STEPS, min_size=10, max_size=30), EVENTS), min_size=3, max_size=6
)


class Host(Protocol):
    """A daemon and its mount.

    Attributes:
        mount: where it is mounted.
    """

    mount: Path

    @property
    def runs(self) -> bool:
        """Whether there is a daemon."""

    def start(self) -> None:
        """Start a daemon, and mount where nothing is mounted."""

    def stop(self) -> None:
        """Unmount, and end the daemon."""

    def kill_daemon(self) -> None:
        """End the daemon as a crash does; the mount stays."""

    def kill_server(self) -> None:
        """End the mount server as a crash does, and wait until the mount is back."""

    def die_while_publishing(self) -> None:
        """The daemon is killed while it publishes."""

    def published(self) -> View:
        """Publish all, and return what the log shows then."""


class Play:
    """A program, and what happens meanwhile."""

    def __init__(self, base: Path, host: Host) -> None:
        # Others than root run programs, too.
        base.chmod(0o755)
        (base / "disk").mkdir()
        self._host = host
        self.twins = Twins(base / "disk", host.mount)
        for step in FIRST:
            self.twins.do(step)

    def nothing(self) -> None:
        """What shrunk examples are made of."""

    def publish(self) -> None:
        """All is published."""
        self.start_daemon()
        deadline = time.monotonic() + PUBLISH_SECONDS
        while True:
            published = self._host.published()
            if any(opened.writes for opened in self.twins.disk.opened):
                return
            differing = differences(view(self.twins.disk.tree()), published)
            if not differing:
                return
            # A whole daemon publishes when it likes.
            assert time.monotonic() < deadline, differing

    def kill_daemon(self) -> None:
        """The mount goes on without a daemon."""
        if self._host.runs:
            self._host.kill_daemon()

    def die_while_publishing(self) -> None:
        """The daemon dies between two transactions."""
        self.start_daemon()
        self._host.die_while_publishing()

    def start_daemon(self) -> None:
        """A new daemon finds the mount."""
        if not self._host.runs:
            self._host.start()

    def kill_server(self) -> None:
        """What was open is lost, and nothing else."""
        self.start_daemon()
        self._host.kill_server()
        self.twins.disk.close_all()
        for opened in self.twins.mount.opened:
            with contextlib.suppress(OSError):
                opened.close()
        self.twins.mount.opened.clear()

    def remount(self) -> None:
        """Unmount and mount."""
        self.twins.close_all()
        self.start_daemon()
        self._host.stop()
        self._host.start()

    def play(self, program: Program) -> None:
        """All of a program."""
        for steps, event in program:
            for step, uid in steps:
                self.twins.do(step, uid)
            self.twins.check()
            getattr(self, event)()
            self.twins.check()
        self.twins.close_all()
        self.publish()
        self.remount()
        self.twins.check()
        self.publish()


class ServedHost(Served):
    """A daemon that publishes only when it is told to."""

    def published(self) -> View:
        """See `Host`."""
        self.ask("publish")
        assert self.ask("problems") == []
        found: View = self.ask("view")
        return found

    def die_while_publishing(self) -> None:
        """See `Host`."""
        self.ask("die_after", 1)
        with contextlib.suppress(EOFError):
            self.ask("publish")
        # If there was something to publish, it may still be ending; if not, it would die later.
        self.kill_daemon()


class RealHost:
    """A daemon as users start it, which publishes when it likes; see `Host`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        node.basefs("genkey")
        node.basefs("bootstrap", NAME)
        self.mount = node.mountpoint
        self.start()

    def start(self) -> None:
        """See `Host`."""
        self._node.mount(NAME)
        self.runs = True

    def stop(self) -> None:
        """See `Host`."""
        self._node.basefs("unmount", NAME)
        self.runs = False

    def kill_daemon(self) -> None:
        """See `Host`."""
        self._node.kill(NAME)
        self.runs = False

    die_while_publishing = kill_daemon

    def kill_server(self) -> None:
        """See `Host`."""
        self._node.kill_server(NAME)
        wait_until(lambda: answers(self.mount), "the mount")

    def published(self) -> View:
        """See `Host`."""
        self._node.settle(NAME)
        with temporary_directory() as base:
            for file in (self._node.home / "fs" / NAME).glob(f"{LOG_FILE}*"):
                shutil.copy(file, base)
            with contextlib.closing(Replica(base, [])) as replica:
                return view_of(replica, Owners(0, 0, keep=True))


@part(20)
@given(PROGRAMS)
def test_a_mount_is_like_a_disk(program: Program) -> None:
    with temporary_directory() as base, served(base, "root", host=ServedHost) as (host,):
        Play(base, host).play(program)
        assert "Traceback" not in host.log()


@part(100)
@given(PROGRAMS)
def test_a_mount_with_a_whole_daemon_is_like_a_disk(program: Program) -> None:
    with temporary_directory() as base, Node.temporary(base) as node:
        Play(base, RealHost(node)).play(program)
        assert "Traceback" not in node.log(NAME)


class Users:
    """Programs that read and write all the time, none of which may get an error."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ending = threading.Event()
        self.failures: list[BaseException] = []
        #: Turns that each has taken.
        self.turns: dict[str, int] = {}

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Meanwhile they work."""
        works: tuple[Callable[[Path, int], None], ...] = (_log, _save, _replace, _move)
        threads = [threading.Thread(target=self._work, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ending.set()
            for thread in threads:
                thread.join()

    def _work(self, work: Callable[[Path, int], None]) -> None:
        name = work.__name__
        directory = self._root / name
        try:
            directory.mkdir()
            while not self._ending.is_set():
                work(directory, self.turns.get(name, 0))
                self.turns[name] = self.turns.get(name, 0) + 1
        except BaseException as error:
            self.failures.append(error)

    def wait_for_turns(self) -> None:
        """Until each has taken some more."""
        before = dict(self.turns)
        wait_until(
            lambda: (
                bool(self.failures)
                or (len(self.turns) == 4 and all(turns > before.get(name, 0) + 3 for name, turns in self.turns.items()))
            ),
            "programs at work",
        )


def _log(directory: Path, turn: int) -> None:
    with (directory / "log").open("a") as file:
        file.write(f"{turn}\n")
    assert (directory / "log").read_text().splitlines()[-1] == str(turn)


def _save(directory: Path, turn: int) -> None:
    content = content_of(turn % 9000)
    (directory / "file").write_bytes(content)
    assert (directory / "file").read_bytes() == content


def _replace(directory: Path, turn: int) -> None:
    (directory / "file.tmp").write_bytes(content_of(turn % 9000))
    (directory / "file.tmp").rename(directory / "file")
    assert sorted(os.listdir(directory)) == ["file"]


def _move(directory: Path, turn: int) -> None:
    (directory / "a").mkdir()
    (directory / "a" / "file").touch()
    (directory / "a").rename(directory / "b")
    assert os.listdir(directory / "b") == ["file"]
    (directory / "b" / "file").unlink()
    (directory / "b").rmdir()


def test_nobody_notices_that_the_daemon_dies(scratch: Path) -> None:
    with Node.temporary(scratch) as node:
        host = RealHost(node)
        users = Users(host.mount)
        # A reader that has begun before all of them.
        (host.mount / "held").write_bytes(b"held")
        with (host.mount / "held").open("rb") as held, users.at_work():
            for _ in range(3):
                users.wait_for_turns()
                host.kill_daemon()
                users.wait_for_turns()
                host.start()
            users.wait_for_turns()
            assert held.read() == b"held"
        assert users.failures == []
        tree = Place(host.mount).tree()
        assert differences(view(tree), host.published()) == []


def test_a_listing_holds_each_name_that_stays_once(scratch: Path) -> None:
    with served(scratch, "root", host=ServedHost) as (host,):
        stay = {f"stays-{number}-{'long' * 40}" for number in range(900)}
        goes = [f"goes-{number}-{'long' * 40}" for number in range(150)]
        for name in sorted(stay) + goes:
            (host.mount / name).touch()
        seen = []
        with os.scandir(host.mount) as found:
            for number, entry in enumerate(found):
                seen.append(entry.name)
                if number % 6 == 0 and goes:
                    (host.mount / goes.pop()).unlink()
                    (host.mount / f"comes-{number}").touch()
        assert sorted(name for name in seen if name in stay) == sorted(stay)
        assert len(seen) == len(set(seen))


#: What the machine has found, step by step.
CASES: dict[str, Program] = {
    "a directory and a file change places": [([(("swap", "a", "d"), 0)], "publish")],
    "a time is set without a daemon": [
        ([], "kill_daemon"),
        ([(("utime", "d", 1), 0), (("utime", "a", 1), 0)], "publish"),
    ],
    "a time is set by another name": [([(("utime", "b", 1), 0), (("rotate", "b", 3), 0)], "publish")],
    "a new file is renamed at once": [([(("replace", "e/a", "{}.tmp", 0), 0)], "publish")],
}


@pytest.mark.parametrize("program", CASES.values(), ids=CASES)
def test_found(program: Program, scratch: Path) -> None:
    with served(scratch, "root", host=ServedHost) as (host,):
        Play(scratch, host).play(program)
