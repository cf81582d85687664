"""Two mounts of one filesystem: random programs on both, and a test that decides when each hears of the other.

A directory of its own belongs to each side, in which it alone writes until they change places; there every outcome is
held against a plain directory.  In a third one both write whatever they like, and the two must be equal after quiet.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

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
    differences,
    view,
)
from tests.support.examples import part
from tests.support.mounts import temporary_directory
from tests.support.patience import DEADLINE

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
    """What is in files that are published and that nobody here writes to."""
    written = {os.fstat(opened.file).st_ino for opened in place.opened if opened.writes}
    paths = {place.root / text: seen for text, seen in view(place.tree()).items() if stat.S_ISREG(seen.mode)}
    return {seen.content for path, seen in paths.items() if seen.content and path.stat().st_ino not in written}


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
        for top in (self.served.mount / own, copy):
            # Times of directories are those at which names came: here, where they came from elsewhere, not for good.
            for directory, _, _ in os.walk(top):
                os.utime(directory)
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
            expected = view(other.own.disk.tree())
            found = differences(expected, view(self.other.tree(), expected))
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
            trees = [view(Place(side.served.mount).tree(), views[0]) for side in self.sides]
            left = [side.served.ask("publish") for side in self.sides]
            if views[0] == views[1] and not any(left) and not any(differences(tree, views[0]) for tree in trees):
                break
        assert left == [0, 0]
        for name, tree in (("view", views[1]), ("first", trees[0]), ("second", trees[1])):
            differing = differences(tree, views[0])
            assert differing == [], (name, differing)
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


@part(30)
@given(PROGRAMS)
def test_two_mounts_are_one_filesystem(program: Program) -> None:
    with temporary_directory() as base, served(base, "root", "bob", host=Served) as hosts:
        Play(base, hosts).play(program)
        for host in hosts:
            assert "Traceback" not in host.log()


# -- what those see who look while it happens --------------------------------------------------------------------------


class Watcher:
    """`inotifywait` on a directory and all below it, or on a file."""

    def __init__(self, watched: Path) -> None:
        self._directory = watched
        self._process = subprocess.Popen(
            ["inotifywait", "-m", "-r", "--format", "%w%f %e", watched],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while "established" not in self._errors.readline():
            pass
        self._marks = 0

    @property
    def _errors(self) -> IO[str]:
        assert self._process.stderr is not None
        return self._process.stderr

    def events(self) -> list[str]:
        """What has come since the last call, each kind at a path once, without those of looking."""
        self._marks += 1
        mark = self._directory / f"mark{self._marks}"
        mark.mkdir()
        found: dict[str, None] = {}
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(f"{mark} "):
                break
            path, _, kinds = line.strip().rpartition(" ")
            for kind in kinds.split(","):
                if kind in ("CREATE", "MODIFY", "CLOSE_WRITE", "MOVED_TO", "DELETE", "ATTRIB"):
                    found[f"{os.path.relpath(path, self._directory)} {kind}"] = None
        return list(found)

    def wait_for(self, kinds: str) -> None:
        """Until the next event of these kinds."""
        assert self._process.stdout is not None
        while not self._process.stdout.readline().endswith(f" {kinds}\n"):
            pass

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def hosts(scratch: Path) -> Iterator[list[Served]]:
    """Two mounts, with a directory and a file in it that both have."""
    with served(scratch, "root", "bob", host=Served) as found:
        (found[0].mount / "d").mkdir()
        (found[0].mount / "d" / "f").write_bytes(b"first")
        bring(*found)
        yield found
        assert all("Traceback" not in host.log() for host in found)


@pytest.fixture
def watcher(hosts: list[Served]) -> Iterator[Watcher]:
    """A watcher on the second one."""
    made = Watcher(hosts[1].mount / "d")
    yield made
    made.stop()


def bring(sender: Served, receiver: Served) -> None:
    """What one has saved is on the disk of the other one."""
    sender.ask("publish")
    deliver(sender, receiver)
    receiver.ask("settle")


def test_each_kind_of_change_is_an_event_on_the_other_node(hosts: list[Served], watcher: Watcher) -> None:
    here = hosts[0].mount / "d"
    changes: tuple[tuple[Callable[[], object], list[str]], ...] = (
        (lambda: (here / "new").write_bytes(b"new"), ["new CREATE", "new CLOSE_WRITE"]),
        (lambda: (here / "f").write_bytes(b"second"), ["f MODIFY", "f CLOSE_WRITE"]),
        (lambda: (here / "f").chmod(0o600), ["f ATTRIB"]),
        (lambda: (here / "e").mkdir(), ["e CREATE"]),
        (lambda: (here / "e" / "g").write_bytes(b"g"), ["e/g CREATE", "e/g CLOSE_WRITE"]),
        (lambda: (here / "s").symlink_to("f"), ["s CREATE"]),
        (lambda: (here / "new").unlink(), ["new DELETE"]),
    )
    for change, expected in changes:
        watcher.events()
        change()
        bring(*hosts)
        found = [event for event in watcher.events() if event in expected]
        assert found == expected


def test_a_watch_on_a_file_outlives_its_changes(hosts: list[Served]) -> None:
    here, there = (host.mount / "d" / "f" for host in hosts)
    watcher = Watcher(there)
    try:
        for content in (b"second", b"third, and longer"):
            here.write_bytes(content)
            bring(*hosts)
            assert there.read_bytes() == content
            watcher.wait_for("MODIFY")
            watcher.wait_for("CLOSE_WRITE,CLOSE")
    finally:
        watcher.stop()


def test_who_has_a_file_open_keeps_it(hosts: list[Served], watcher: Watcher) -> None:
    here, there = (host.mount / "d" for host in hosts)
    with (there / "f").open("rb") as held, mmap.mmap(held.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        # The second time nobody has open what is there.
        for content, expected in ((b"second", "f MOVED_TO"), (b"3", "f MODIFY")):
            watcher.events()
            (here / "f").write_bytes(content)
            bring(*hosts)
            assert (there / "f").read_bytes() == content
            assert (there / "f").stat().st_size == len(content)
            assert expected in watcher.events()
            assert (os.pread(held.fileno(), 100, 0), bytes(mapped)) == (b"first", b"first")
        (here / "f").unlink()
        bring(*hosts)
        assert "f DELETE" in watcher.events()
        assert not (there / "f").exists()
        assert (os.pread(held.fileno(), 100, 0), bytes(mapped)) == (b"first", b"first")
        assert os.fstat(held.fileno()).st_size == 5


def test_what_is_being_written_is_left_alone(hosts: list[Served]) -> None:
    here, there = (host.mount / "d" for host in hosts)
    with (there / "f").open("r+b", buffering=0) as held:
        held.write(b"F")
        (here / "f").write_bytes(b"second")
        bring(*hosts)
        assert (there / "f").read_bytes() == b"First"
        held.write(b"I")
        assert (there / "f").read_bytes() == b"FIrst"
    bring(hosts[1], hosts[0])
    bring(hosts[0], hosts[1])
    shown = {(mount / "f").read_bytes() for mount in (here, there)}
    assert len(shown) == 1 and shown <= {b"FIrst", b"second"}
    assert {b"FIrst", b"second"} <= hosts[0].ask("contents")


#: Reads a file again and again until it is gone: as a stream, by its size, and by a mapping.
READER = """
import mmap, os, sys
seen = set()
print("reads", flush=True)
while True:
    try:
        file = os.open(sys.argv[1], os.O_RDONLY)
    except FileNotFoundError:
        break
    size = os.fstat(file).st_size
    contents = {os.pread(file, 1 << 20, 0)}
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as mapped:
        contents |= {bytes(mapped), os.pread(file, 1 << 20, 0)}
    os.close(file)
    assert len(contents) == 1, contents
    content = contents.pop()
    assert len(content) == size, (len(content), size)
    assert content == content[:1] * (ord(content[:1]) * 100), content
    seen.add(content[:1])
print(len(seen))
"""


def test_readers_see_whole_versions(hosts: list[Served]) -> None:
    here, there = (host.mount / "d" / "f" for host in hosts)
    versions = [bytes([number]) * (number * 100) for number in (90, 30, 200, 1, 60, 120, 45)]
    here.write_bytes(versions[0])
    bring(*hosts)
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, there], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for reader in readers:
        assert reader.stdout is not None and reader.stdout.readline() == "reads\n"
    for number in range(40):
        content = versions[number % len(versions)]
        if number % 2:
            here.write_bytes(content)
        else:
            here.with_name("new").write_bytes(content)
            here.with_name("new").rename(here)
        bring(*hosts)
        assert there.read_bytes() == content
    here.unlink()
    bring(*hosts)
    for reader in readers:
        output, _ = reader.communicate(timeout=DEADLINE)
        assert reader.returncode == 0
        assert int(output) > 1


def test_what_is_there_under_another_name_is_no_edit_after_a_restart(scratch: Path) -> None:
    with served(scratch, "root", "bob", host=Served) as hosts:
        Play(scratch, hosts).play(
            [
                (1, "own", [("swap", "a", "d")], ("deliver", 1)),
                (0, "own", [], ("kill", 0)),
                (1, "own", [("rename", "a", "b")], ("deliver", 1)),
            ]
        )
