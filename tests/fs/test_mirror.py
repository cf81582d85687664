"""The mirror and the kernel's caches on a real mount: what they fall back to, and that they leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from basefs.fs.fuse.binding import unmount

from basefs.errors import MountFailed
from tests.fs.pair import Side, two_mounts
from tests.support.mounts import temporary_directory
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

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
    before = node.entries(NAME)
    with subprocess.Popen(["inotifywait", "-e", "close_write", point / "f"], stderr=subprocess.PIPE) as watcher:
        assert watcher.stderr is not None
        while b"established" not in watcher.stderr.readline():
            pass
        node.basefs("revert", f"{NAME}:/f", first)
        assert watcher.wait(DEADLINE) == 0
    assert node.entries(NAME) == before + 1


def test_a_watcher_of_a_file_that_is_held_open_hears_of_every_change(node: Node, tmp_path: Path) -> None:
    """As long as it is open, and not by a name that nobody has given; afterwards the kernel forgets what was open."""
    point = node.mount(NAME)
    texts = ("first", "second", "third", "now")
    for text in texts:
        (point / "f").write_text(text)
        node.settle(NAME)
    entries = [row["entry"] for row in reversed(node.query("log", f"{NAME}:/f"))]
    told = tmp_path / "told"
    watcher = ["inotifywait", "-m", "-q", "-e", "close_write,delete_self", "--format", "%w %f %e", "-o", told]

    def heard(where: Path, event: str) -> int:
        return told.read_text().splitlines().count(f"{where} {event}") if told.exists() else 0

    with (point / "f").open() as held, subprocess.Popen([*watcher, point / "f", point]) as watching:
        try:
            established = Path(f"/proc/{watching.pid}/fdinfo")

            def watches() -> int:
                return sum(file.read_text().count("inotify wd") for file in established.iterdir())

            wait_until(lambda: watches() == 2, DEADLINE, "the watches")
            for number, (text, entry) in enumerate(zip(texts[:-1], entries, strict=False), 1):
                node.basefs("revert", f"{NAME}:/f", entry)
                wait_until(
                    lambda n=number: heard(point / "f", " CLOSE_WRITE,CLOSE") == n, DEADLINE, "the watcher hears"
                )
                assert os.pread(held.fileno(), 9, 0) == b"now"
                wait_until(lambda t=text: (point / "f").read_text() == t, DEADLINE, "the change")
            held.close()
            wait_until(lambda: heard(point / "f", " DELETE_SELF") == 1, DEADLINE, "what was open goes")
            assert ".fuse_hidden" not in told.read_text()
        finally:
            watching.kill()
    node.basefs("unmount", NAME)


@pytest.mark.parametrize(
    ("old", "new", "file"), [("d", "e", "e/f"), ("d/f", "d/g", "d/g")], ids=["its directory", "the file"]
)
def test_a_file_that_is_held_open_goes_along_with_a_rename(
    node: Node, tmp_path: Path, old: str, new: str, file: str
) -> None:
    """Those who watch it hear of the next change, and once it is closed nothing keeps the mount in use."""
    point = node.mount(NAME)
    (point / "d").mkdir()

    def write(name: str, *texts: str) -> str:
        """Write one after the other; returns the entry of the one before the last."""
        for text in texts:
            (point / name).write_text(text)
            node.settle(NAME)
        return str(node.query("log", f"{NAME}:/{name}")[1]["entry"])

    first = write("d/f", "first", "now")
    told = tmp_path / "told"
    watcher = ["inotifywait", "-m", "-q", "-e", "close_write,delete_self", "--format", "%e", "-o", told, point / "d/f"]
    with (point / "d/f").open() as held, subprocess.Popen(watcher) as watching:
        try:
            opened = Path(f"/proc/{watching.pid}/fdinfo")
            wait_until(
                lambda: any("inotify wd" in info.read_text() for info in opened.iterdir()), DEADLINE, "the watch"
            )
            node.basefs("revert", f"{NAME}:/d/f", first)
            wait_until(lambda: told.exists() and told.read_text().count("CLOSE_WRITE") == 1, DEADLINE, "it is heard")
            wait_until(lambda: (point / "d/f").read_text() == "first", DEADLINE, "the change")
            (point / old).rename(point / new)
            node.basefs("revert", f"{NAME}:/{file}", write(file, "second"))
            wait_until(lambda: told.read_text().count("CLOSE_WRITE") == 2, DEADLINE, "the next one is heard")
            assert os.pread(held.fileno(), 9, 0) == b"now"
            held.close()
            wait_until(lambda: "DELETE_SELF" in told.read_text(), DEADLINE, "what was open goes")
        finally:
            watching.kill()
    node.basefs("unmount", NAME)


@pytest.mark.parametrize("user", [0, 1000])
def test_what_was_closed_a_moment_ago_does_not_keep_the_mount_in_use(
    node: Node, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    """The kernel and the daemon let go of a file after the program that has closed it goes on."""
    point = node.mount(NAME)
    (point / "f").write_text("x")
    held = (point / "f").open()
    tried: list[bool] = []

    def let_go(seconds: float) -> None:
        tried.append(os.path.ismount(point))
        held.close()

    with monkeypatch.context() as patch:
        # Root does it with a system call, others with fusermount.
        patch.setattr(os, "geteuid", lambda: user)
        patch.setattr("basefs.fs.fuse.binding._ATTEMPTS", 2)
        with pytest.raises(MountFailed, match="is in use: close the files"):
            unmount(point, lazy=False)
        patch.setattr("basefs.fs.fuse.binding._ATTEMPTS", 1000)
        patch.setattr("basefs.fs.fuse.binding.time.sleep", let_go)
        unmount(point, lazy=False)
    assert tried[0]
    assert not os.path.ismount(point)


def test_a_killed_daemon_leaves_no_mount_that_hangs(node: Node, tmp_path: Path) -> None:
    point = node.mount(NAME)
    (point / "f").write_text("x")
    node.kill(NAME)
    with pytest.raises(OSError, match="not connected"):
        os.listdir(point)
    node.mount(NAME)
    assert (point / "f").read_text() == "x"


#: Lists a directory into memory that is a file of another mount, whose daemon is stopped meanwhile.  The kernel holds
#: the directory's lock until it can write there, so that nobody can make or remove a name in it.
_SUSPENDED_LISTING = """
import ctypes, mmap, os, sys, time
memory = None
while memory is None:
    # A file that changed a moment ago cannot be mapped until the kernel has its size.
    opened = os.open(sys.argv[2], os.O_RDWR)
    try:
        memory = mmap.mmap(opened, 1 << 20)
    except OSError:
        os.close(opened)
        time.sleep(0.05)
buffer = (ctypes.c_char * len(memory)).from_buffer(memory)
directory = os.open(sys.argv[1], os.O_RDONLY)
print("ready", flush=True)
sys.stdin.readline()
sys.exit(ctypes.CDLL(None).getdents64(directory, ctypes.byref(buffer), len(buffer)) <= 0)
"""


@contextlib.contextmanager
def suspended_listing(directory: Path, other: Node) -> Iterator[None]:
    """Somebody holds a directory's lock all the time."""
    memory = other.mount(NAME) / "memory"
    memory.touch()
    # Never written, so the kernel must ask for its pages.
    os.truncate(memory, 1 << 20)
    command = [sys.executable, "-c", _SUSPENDED_LISTING, directory, memory]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listing:
        try:
            assert listing.stdin is not None and listing.stdout is not None
            assert listing.stdout.readline() == b"ready\n"
            os.kill(other.daemon(NAME), signal.SIGSTOP)
            before = Path(f"/proc/{listing.pid}/syscall").read_text().split()[0]
            listing.stdin.write(b"\n")
            listing.stdin.flush()
            wait_until(lambda: is_suspended(listing.pid, before), DEADLINE, "the listing waits")
            yield
            assert listing.poll() is None
        finally:
            os.kill(other.daemon(NAME), signal.SIGCONT)
        assert listing.wait(DEADLINE) == 0


def is_suspended(pid: int, before: str) -> bool:
    """Whether a process waits in another system call than before, without being interrupted by anything."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()[0]
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return call not in (before, "running", "-1") and state == "D"


def test_a_notification_that_hangs_ends_caching_and_nothing_else(node: Node, tmp_path: Path) -> None:
    point = node.mount(NAME)
    for directory in ("held", "free"):
        (point / directory).mkdir()
    for text in ("one", "second"):
        for path in ("held/f", "free/changed"):
            (point / path).write_text(text)
        node.settle(NAME)
    (point / "free" / "other").write_text("other")
    (point / "held" / "f").unlink()
    node.settle(NAME)
    # The oldest comes last.
    entries = {path: node.query("log", f"{NAME}:/{path}")[-1]["entry"] for path in ("held/f", "free/changed")}
    with temporary_directory() as base, Node.temporary(base) as other:
        other.basefs("bootstrap", NAME)
        with suspended_listing(point / "held", other):
            assert (point / "free" / "changed").read_text() == "second"
            node.basefs("revert", f"{NAME}:/held/f", entries["held/f"])
            # Reads go on meanwhile: what is cached, and what nobody has looked at.
            assert (point / "free" / "changed").stat().st_size == 6
            assert (point / "free" / "other").read_text() == "other"
            wait_until(lambda: "kernel caching disabled" in node.log(NAME), DEADLINE, "the warning")
            assert (point / "free" / "changed").read_text() == "second"
            node.basefs("revert", f"{NAME}:/free/changed", entries["free/changed"])
            # Long before the minute for which the kernel believed what it had read before.
            wait_until(lambda: (point / "free" / "changed").stat().st_size == 3, DEADLINE, "the change is seen")
            assert (point / "free" / "changed").read_text() == "one"
            (point / "free" / "new").write_text("new")
            assert sorted(os.listdir(point / "free")) == ["changed", "new", "other"]
    assert (point / "held" / "f").read_text() == "one"
    assert node.log(NAME).count("WARNING") == 1


def test_the_thread_neither_reads_the_replica_nor_writes_to_the_daemons_log(tmp_path: Path) -> None:
    """It has none of their files: the database would wait for seconds, and everything else for it."""
    with two_mounts(tmp_path) as (here, there):

        def tell(sender: Side, receiver: Side) -> None:
            sender.publish()
            for delivery in sender.ask("take"):
                receiver.ask("give", *delivery)
            receiver.ask("settle")

        (here.mount / "f").write_bytes(b"one")
        tell(here, there)
        here.ask("watch_mirror")
        (there.mount / "f").unlink()
        tell(there, here)
        (there.mount / "f").write_bytes(b"two")
        tell(there, here)
        (there.mount / "f").unlink()
        there.publish()
        (there.mount / "f").write_bytes(b"three")
        (here.mount / "f").write_bytes(b"waits here")
        tell(there, here)
        here.ask("break_mirror", "g")
        (there.mount / "g").write_bytes(b"seen all the same")
        tell(there, here)
        logged = here.ask("logged")
        assert (here.mount / "g").read_bytes() == b"seen all the same"
    assert [thread for thread, _ in logged if thread == "mirror"] == []
    assert ["a bug in the mirror" in line for _, line in logged] == [True]
