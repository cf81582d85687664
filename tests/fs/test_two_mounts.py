"""Two mounts of one filesystem: random programs on both, and a test that decides when each hears of the other.

A directory of its own belongs to each side, in which it alone writes until they change places; there every outcome is
held against a plain directory.  In a third one both write whatever they like, and the two must be equal after quiet.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fs.served import Served, deliver, served
from tests.fs.twin import (
    CHANGES,
    HELD,
    LOOKS,
    NOTHING,
    OPENS,
    ROOT_CHANGES,
    Opened,
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

pytestmark = pytest.mark.fuse

#: Where both write.
COMMON = "z"
#: Exchanges after which nothing may be left to tell.
MAX_EXCHANGES = 8
#: What may come of a step where another node changes the same paths.
EXPECTED = {
    errno.errorcode[number]
    for number in (
        errno.ENOENT,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENOTEMPTY,
        errno.EINVAL,
        errno.ELOOP,
        errno.ENXIO,
        errno.EBADF,
        errno.EACCES,
        errno.EPERM,
        errno.ENODATA,
        errno.EXDEV,
    )
}
FIRST: tuple[Step, ...] = (
    ("mkdir", "d", 0o755),
    ("save", "a", 3, os.O_CREAT),
    ("save", "d/a", 3, os.O_CREAT),
    ("save", "d/b", 4200, os.O_CREAT),
)
SIDES = st.sampled_from([0, 1])
STEPS = st.one_of(NOTHING, CHANGES, CHANGES, CHANGES, ROOT_CHANGES, OPENS, HELD, LOOKS)
EVENTS = st.one_of(
    st.just(("nothing",)),
    st.tuples(st.just("deliver"), SIDES),
    st.tuples(st.just("deliver"), SIDES),
    st.tuples(st.just("hear"), SIDES),
    st.tuples(st.just("kill"), SIDES),
    st.tuples(st.just("quiet"), st.booleans()),
)
#: Steps of a side, in its own directory or in the common one; and what happens then.
Program = list[tuple[int, str, list[Step], tuple[Any, ...]]]
PROGRAMS: st.SearchStrategy[Program] = st.lists(
    st.tuples(SIDES, st.sampled_from(["own", "own", COMMON]), st.lists(STEPS, min_size=4, max_size=12), EVENTS),
    min_size=6,
    max_size=12,
)


def contents(place: Place) -> set[bytes]:
    """What is in files that nobody here writes to."""
    open_ones = {os.fstat(opened.file).st_ino for opened in place.opened if opened.writes}
    found = set()
    for text, (seen, _) in place.tree().items():
        path = place.root / text
        if seen.content and not path.is_symlink() and path.lstat().st_ino not in open_ones:
            found.add(seen.content)
    return found


class Side:
    """One of the mounts.

    Attributes:
        served: the mount and its daemon.
        own: the directory that belongs to it, beside a plain one.
        common: the directory in which both write.
        other: the directory that belongs to the other side.
    """

    def __init__(self, host: Served, disk: Path) -> None:
        self.served, self._disk = host, disk
        self.common = Place(host.mount / COMMON)
        self._copies = 0
        #: Contents that were written and closed here in the common directory, and are not published.
        self._owed: set[bytes] = set()
        self._number = 0

    def take(self, own: str, other: str) -> None:
        """Write to this directory from now on, which is copied, and read in the other one."""
        self._copies += 1
        copy = self._disk / f"{own}{self._copies}"
        subprocess.run(["cp", "-a", self.served.mount / own, copy], check=True)
        self.own, self.other = Twins(copy, self.served.mount / own), Place(self.served.mount / other)

    def share(self, step: Step) -> None:
        """A step in the common directory.  A content that it makes and closes is owed until it is published."""
        before = contents(self.common)
        found = self.common.do(self.common.resolve(step))
        assert not isinstance(found, str) or found in EXPECTED, (step, found)
        after = contents(self.common)
        self._owed = (self._owed | (after - before)) - (before - after)

    def publish(self) -> None:
        """Publish what was closed."""
        self.served.ask("publish")
        published = self.served.ask("contents")
        assert self._owed <= published, "a file that was closed is lost"
        self._owed.clear()

    def differing(self, other: Side) -> list[Any]:
        """What is not as in the other one's own directory, once all that has arrived is on the disk."""
        self.served.ask("settle")
        for _ in range(MAX_EXCHANGES):
            found = differences(view(other.own.disk.tree()), view(self.other.tree()))
            if not found:
                break
            # The server may have refused it for what was closed a moment ago.
            self.served.ask("publish")
        return found

    def close_writers(self) -> None:
        """Close what is open for writing."""
        before = contents(self.common)
        self.own.close_all(lambda opened: opened.writes)
        self.common.close_all(lambda opened: opened.writes)
        self._owed |= contents(self.common) - before

    def readers(self) -> list[Opened]:
        """What is held open for reading where others write."""
        return [opened for opened in (*self.common.opened, *self.other.opened) if not opened.writes]


class Play:
    """What goes on between the two."""

    def __init__(self, base: Path, hosts: list[Served]) -> None:
        for host in hosts:
            (base / "disk" / host.mount.parent.name).mkdir(parents=True)
        self.sides = [Side(host, base / "disk" / host.mount.parent.name) for host in hosts]
        for top in ("x", "y", COMMON):
            (hosts[0].mount / top).mkdir()
            for step in FIRST:
                Place(hosts[0].mount / top).do(step)
        self.own = ["x", "y"]
        self.meet()
        self.take()

    def take(self) -> None:
        """Each goes on in its directory."""
        for side, own, other in zip(self.sides, self.own, reversed(self.own), strict=True):
            side.take(own, other)

    def meet(self) -> None:
        """Until both are equal."""
        for _ in range(MAX_EXCHANGES):
            for sender, receiver in (self.sides, reversed(self.sides)):
                sender.served.ask("publish")
                deliver(sender.served, receiver.served)
                receiver.served.ask("settle")
            views = [side.served.ask("view") for side in self.sides]
            trees = [view(Place(side.served.mount).tree()) for side in self.sides]
            left = [side.served.ask("publish") for side in self.sides]
            if views[0] == views[1] and not any(left) and not any(differences(tree, views[0]) for tree in trees):
                break
        assert left == [0, 0]
        for tree in (views[1], *trees):
            differing = differences(tree, views[0])
            assert differing == [], differing
        assert [side.served.ask("problems") for side in self.sides] == [[], []]

    # -- events -------------------------------------------------------------------------------------------------------

    def nothing(self) -> None:
        """What shrunk examples are made of."""

    def deliver(self, sender: int) -> None:
        """What one side has closed arrives at the other one, whatever is open there."""
        here, there = self.sides[sender], self.sides[1 - sender]
        here.own.close_all(lambda opened: opened.writes)
        held = [(opened, opened.content()) for opened in there.readers()]
        here.publish()
        deliver(here.served, there.served)
        differing = there.differing(here)
        for opened, content in held:
            assert opened.content() == content, f"{opened.where} is not what was opened"
        assert differing == [], differing
        for side in self.sides:
            side.own.check()

    def hear(self, receiver: int) -> None:
        """Entries arrive, and are not brought to the disk yet."""
        here, there = self.sides[1 - receiver], self.sides[receiver]
        here.publish()
        deliver(here.served, there.served)

    def kill(self, side: int) -> None:
        """The daemon is killed, and started again."""
        self.sides[side].served.kill_daemon()
        self.sides[side].served.start()

    def quiet(self, swap: bool) -> None:
        """All is closed for writing, published and delivered; `swap`: each goes on in the other one's directory."""
        for side in self.sides:
            side.close_writers()
            side.publish()
        self.meet()
        for side in self.sides:
            side.own.check()
        if swap:
            for side in self.sides:
                side.own.close_all()
                side.other.close_all()
            self.own.reverse()
            self.take()

    def play(self, program: Program) -> None:
        """All of a program."""
        for number, where, steps, (event, *arguments) in program:
            side = self.sides[number]
            for step in steps:
                if where == COMMON:
                    side.share(step)
                else:
                    side.own.do(step)
            getattr(self, event)(*arguments)
            # The other side reads, and holds open what it reads.
            other = self.sides[1 - number]
            for step in steps[:2]:
                if step[0] == "open":
                    other.other.do(("open", step[1] if isinstance(step[1], str) else "a", os.O_RDONLY))
        self.quiet(False)
        for side in self.sides:
            for place in (side.own, side.common, side.other):
                place.close_all()
        self.meet()


@part(75)
@given(PROGRAMS)
def test_two_mounts_are_one_filesystem(program: Program) -> None:
    with temporary_directory() as base, served(base, "root", "bob", host=Served) as hosts:
        Play(base, hosts).play(program)
        for host in hosts:
            assert "Traceback" not in host.log()
