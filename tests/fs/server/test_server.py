"""The mount server's process: what it tells a daemon, what a daemon tells it, and how both live without the other."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from basefs.fs.channel import Flags, Serving, who_serves
from basefs.fs.disk import Disk
from basefs.fs.jobs import Expected, JobAction, TreeJob, apply
from tests.fs.server.mounted import NOBODY, Daemon, Mounted, mounted, watching
from tests.fs.server.test_posix import as_nobody
from tests.support.mounts import temporary_directory, wait_until
from tests.support.patience import DEADLINE

pytestmark = [pytest.mark.fuse, pytest.mark.root]


def errno_from(call: Callable[[], object]) -> int | None:
    """The errno with which a call fails; `None` if it does not."""
    try:
        call()
    except OSError as error:
        return error.errno
    return None


class TestChanges:
    def test_each_operation_is_reported_after_it(self, mount: Mounted, daemon: Daemon) -> None:
        point = mount.point
        (point / "d").mkdir()
        daemon.wait_for("/d")
        (point / "f").write_text("x")
        daemon.wait_for("/f", flags=Flags.CLOSED)
        (point / "f").write_text("again")
        daemon.wait_for("/f", flags=Flags.CLOSED | Flags.URGENT)
        (point / "l").symlink_to("f")
        (point / "g").hardlink_to(point / "f")
        (point / "f").chmod(0o600)
        daemon.wait_for("/l", "/g", "/f")
        os.setxattr(point / "f", "user.x", b"1")
        daemon.wait_for("/f")
        os.utime(point / "f", (1, 1))
        daemon.wait_for("/f", flags=Flags.TIMED)
        os.truncate(point / "f", 1)
        daemon.wait_for("/f", flags=Flags.CLOSED | Flags.URGENT)
        (point / "g").rename(point / "d" / "h")
        daemon.wait_for("/g", "/d/h")
        (point / "d").rename(point / "e")
        daemon.wait_for("/d", "/e")
        (point / "e" / "h").unlink()
        (point / "e").rmdir()
        daemon.wait_for("/e/h", "/e")
        (point / "f").read_text()
        os.listdir(point)
        (point / "l").unlink()
        daemon.wait_for("/l")
        assert daemon.changes == []

    def test_a_change_has_the_inode_of_the_disk(self, mount: Mounted, daemon: Daemon) -> None:
        (mount.point / "f").write_text("x")
        (mount.point / "g").hardlink_to(mount.point / "f")
        with (mount.point / "g").open("a") as file:
            file.write("y")
        wait_until(lambda: bool(daemon.flags("/f") & Flags.CLOSED), "the change")
        inode = (mount.tree / "f").stat().st_ino
        assert {change.inode for change in daemon.changes} == {inode} == {(mount.point / "g").stat().st_ino}

    def test_what_is_written_to_is_known_until_it_is_flushed(self, mount: Mounted, daemon: Daemon) -> None:
        with (mount.point / "f").open("wb", buffering=0) as file:
            file.write(b"x")
            daemon.wait_for("/f", flags=Flags.WRITING)
            assert mount.daemon().server.hello.writing == ((mount.point / "f").stat().st_ino,)
            again = mount.daemon()
            os.fsync(file.fileno())
            again.wait_for("/f", flags=Flags.CLOSED)
            assert mount.daemon().server.hello.writing == ()

    def test_what_is_said_before_a_daemon_has_begun_waits_for_it(self, mount: Mounted, daemon: Daemon) -> None:
        with (mount.point / "f").open("wb", buffering=0) as file:
            file.write(b"x")
            daemon.wait_for("/f", flags=Flags.WRITING)
            again = mount.daemon(start=False)
            assert again.server.hello.writing == (os.fstat(file.fileno()).st_ino,)
        # A daemon that took the end now would then learn from `hello` that somebody writes.
        wait_until(again.has_message, "the end of the write")
        assert not again.changes
        again.server.start()
        again.wait_for("/f", flags=Flags.CLOSED)

    def test_an_emptied_file_is_written_to_until_its_last_handle_is_closed(
        self, mount: Mounted, daemon: Daemon
    ) -> None:
        (mount.point / "f").write_text("old")
        daemon.wait_for("/f", flags=Flags.CLOSED)
        again = mount.daemon()
        first = os.open(mount.point / "f", os.O_WRONLY | os.O_TRUNC)
        second = os.dup(first)
        os.close(first)
        again.server.perform([], 0)
        assert again.flags("/f") & Flags.WRITING and not again.flags("/f") & Flags.CLOSED
        os.close(second)
        again.wait_for("/f", flags=Flags.CLOSED | Flags.URGENT)

    @pytest.mark.parametrize("end", [Path.unlink, lambda path: path.rename(path.with_name("g"))])
    def test_a_file_is_closed_under_whichever_name(
        self, mount: Mounted, daemon: Daemon, end: Callable[[Path], object]
    ) -> None:
        def of(inode: int, flags: Flags) -> bool:
            return any(change.inode == inode and change.flags & flags for change in daemon.changes)

        with (mount.point / "f").open("wb", buffering=0) as file:
            inode = os.fstat(file.fileno()).st_ino
            wait_until(lambda: of(inode, Flags.WRITING), "the beginning")
            daemon.changes.clear()
            end(mount.point / "f")
        wait_until(lambda: of(inode, Flags.CLOSED), "the end")
        daemon.changes.clear()
        with (mount.point / "f").open("wb") as file:
            inode = os.fstat(file.fileno()).st_ino
            wait_until(lambda: of(inode, Flags.WRITING), "the beginning")
        end(mount.point / "f")
        wait_until(lambda: of(inode, Flags.CLOSED), "the end")

    def test_a_written_file_that_loses_its_name_or_gets_one(self, mount: Mounted, daemon: Daemon) -> None:
        for lose in ((mount.point / "f").unlink, lambda: (mount.point / "g").rename(mount.point / "f")):
            (mount.point / "g").touch()
            with (mount.point / "f").open("wb", buffering=0) as file:
                file.write(b"x")
                daemon.server.perform([], 0)
                inode = os.fstat(file.fileno()).st_ino
                daemon.changes.clear()
                lose()
                daemon.server.perform([], 0)
                assert Flags.CLOSED in [change.flags for change in daemon.changes if change.inode == inode]
                assert mount.daemon().server.hello.writing == ()
                daemon = mount.daemon()
        found = os.open(mount.point, os.O_TMPFILE | os.O_WRONLY)
        os.write(found, b"x")
        os.link(f"/proc/self/fd/{found}", mount.point / "new", src_dir_fd=found, follow_symlinks=True)
        daemon.wait_for("/new", flags=Flags.WRITING)
        os.close(found)
        daemon.wait_for("/new", flags=Flags.CLOSED)

    def test_a_daemon_that_catches_up_has_all_changes(self, mount: Mounted, daemon: Daemon) -> None:
        for number in range(100):
            (mount.point / f"{number}").write_text("x")
            daemon.server.perform([], 0)
            assert daemon.flags(f"/{number}") & Flags.CLOSED

    def test_a_slow_daemon_keeps_nobody(self, mount: Mounted) -> None:
        daemon = mount.daemon()
        os.kill(mount.process.pid, 0)
        with pytest.MonkeyPatch.context() as patch:
            held = Handled(daemon)
            patch.setattr(daemon, "changed", held.changed)
            for number in range(2000):
                (mount.point / f"{number}").touch()
            held.release()
            wait_until(lambda: len({change.path for change in daemon.changes}) == 2000, "all changes")


class Handled:
    """A handler that stands still until it may go on."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._may = daemon, threading.Event()

    def changed(self, seq: int, changes: object) -> None:
        assert self._may.wait(DEADLINE)
        self._daemon.changes += changes  # type: ignore[call-overload]

    def release(self) -> None:
        self._may.set()


class TestOrders:
    def test_rights(self, mount: Mounted, daemon: Daemon) -> None:
        point = mount.point
        for name in ("mine", "theirs", "theirs/in", "damaged"):
            (point / name).mkdir()
        for name in ("mine/f", "theirs/f", "theirs/in/f", "damaged/f"):
            (point / name).write_text("x")
        assert stat.S_IMODE((point / "theirs" / "f").stat().st_mode) == 0o644
        daemon.server.rights({b"/": errno.EACCES, b"/mine": 0, b"/theirs/in": 0, b"/damaged": errno.EROFS})
        assert stat.S_IMODE((point / "theirs" / "f").stat().st_mode) == 0o444
        (point / "mine" / "f").write_text("y")
        (point / "theirs" / "in" / "f").write_text("y")
        for call in (
            lambda: (point / "theirs" / "f").write_text("y"),
            lambda: os.open(point / "theirs" / "f", os.O_RDONLY | os.O_TRUNC),
            lambda: os.truncate(point / "theirs" / "f", 0),
            (point / "theirs" / "f").unlink,
            (point / "theirs" / "d").mkdir,
            lambda: (point / "theirs" / "f").chmod(0o600),
            lambda: os.utime(point / "theirs" / "f"),
            lambda: os.setxattr(point / "theirs" / "f", "user.x", b""),
            lambda: (point / "theirs" / "f").rename(point / "mine" / "g"),
            lambda: (point / "mine" / "f").rename(point / "g"),
        ):
            assert errno_from(call) == errno.EACCES
        assert errno_from(lambda: (point / "damaged" / "f").write_text("y")) == errno.EROFS
        # What is written to the one would change the other.
        assert errno_from(lambda: (point / "mine" / "g").hardlink_to(point / "theirs" / "f")) == errno.EPERM
        assert (point / "theirs" / "f").read_text() == "x"
        # They hold on without a daemon.
        daemon.server.close()
        wait_until(lambda: daemon.ends == [False], "the end")
        assert errno_from(lambda: (point / "theirs" / "f").write_text("y")) == errno.EACCES
        mount.daemon().server.rights({b"/": 0})
        (point / "theirs" / "f").write_text("y")

    def test_room(self, mount: Mounted, daemon: Daemon) -> None:
        (mount.point / "f").write_text("12345")
        daemon.server.room(False)

        def made() -> int | None:
            failed = errno_from((mount.point / "d").mkdir)
            if failed is None:
                (mount.point / "d").rmdir()
            return failed

        wait_until(lambda: made() == errno.ENOSPC, "no room")
        with (mount.point / "f").open("r+b", buffering=0) as file:
            assert errno_from(lambda: os.pwrite(file.fileno(), b"x", 5)) == errno.ENOSPC
            assert os.pwrite(file.fileno(), b"x", 0) == 1
        assert errno_from(lambda: os.truncate(mount.point / "f", 9)) == errno.ENOSPC
        os.truncate(mount.point / "f", 2)
        (mount.point / "f").unlink()
        daemon.server.room(True)
        wait_until(lambda: made() is None, "room")

    def test_virtual_attributes(self, mount: Mounted, daemon: Daemon) -> None:
        (mount.point / "f").touch()
        daemon.attributes[b"user.basefs.entry"] = b"\xff\0"
        assert os.getxattr(mount.point / "f", "user.basefs.entry") == b"\xff\0"
        assert os.listxattr(mount.point / "f") == []
        assert errno_from(lambda: os.getxattr(mount.point / "f", "user.basefs.none")) == errno.ENODATA
        for call in (
            lambda: os.setxattr(mount.point / "f", "user.basefs.entry", b""),
            lambda: os.removexattr(mount.point / "f", "user.basefs.mode"),
        ):
            assert errno_from(call) == errno.EPERM
        daemon.server.close()
        wait_until(lambda: daemon.ends == [False], "the end")
        assert errno_from(lambda: os.getxattr(mount.point / "f", "user.basefs.entry")) == errno.ENODATA

    def test_stop(self, mount: Mounted, daemon: Daemon) -> None:
        (mount.point / "f").write_text("last")
        daemon.server.stop()
        assert mount.process.wait(DEADLINE) == 0
        wait_until(lambda: daemon.ends == [True], "the end")
        # What was changed before is reported before.
        assert daemon.flags("/f") & Flags.CLOSED
        assert os.listdir(mount.point) == [] and (mount.tree / "f").read_text() == "last"
        assert not (mount.base / "socket").exists()

    def test_stop_while_another_mount_namespace_has_a_copy(self, mount: Mounted, daemon: Daemon) -> None:
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo copied; exec sleep infinity"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as copy:
            assert copy.stdout is not None and copy.stdout.readline() == b"copied\n"
            daemon.server.stop()
            assert mount.process.wait(DEADLINE) == 0
            wait_until(lambda: daemon.ends == [True], "the end")
            copy.kill()

    def test_stop_while_the_mount_is_in_use(self, mount: Mounted, daemon: Daemon) -> None:
        (mount.point / "f").write_text("x")
        with (mount.point / "f").open():
            mount.process.send_signal(signal.SIGTERM)
            assert mount.process.wait(DEADLINE) == 0
            wait_until(lambda: daemon.ends == [True], "the end")
            assert not os.path.ismount(mount.point)

    @pytest.mark.parametrize(
        "helper",
        [
            # It has just been started when a service manager signals all processes of the service.
            'case $1 in -u) kill -TERM $$ ;; esac; exec {} "$@"',
            # The mount server is signalled as soon as it has mounted.
            '{} "$@" && case $1 in -o) kill -TERM $PPID ;; esac',
        ],
        ids=["unmounting", "mounting"],
    )
    def test_a_signal_at_a_bad_moment(
        self, helper: str, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script = tmp_path / "fusermount3"
        script.write_text(f"#!/bin/sh\n{helper.format(shutil.which('fusermount3'))}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with mounted(scratch) as mount:
            mount.process.send_signal(signal.SIGTERM)
            assert mount.process.wait(DEADLINE) == 0
            # Not the error of a dead mount.
            assert os.listdir(mount.point) == []


class TestLives:
    def test_a_mount_outlives_its_daemons(self, mount: Mounted) -> None:
        """Readers and writers see no error, and each new daemon knows up to which change its scan sees."""
        for number in range(3):
            daemon = mount.daemon()
            before = daemon.server.hello.seen
            (mount.point / f"with{number}").write_text("x")
            daemon.wait_for(f"/with{number}", flags=Flags.CLOSED)
            assert daemon.seen > before
            daemon.server.close()
            wait_until(lambda d=daemon: d.ends == [False], "the end")  # type: ignore[misc]
            (mount.point / f"without{number}").write_text("x")
            assert (mount.point / f"with{number}").read_text() == "x"
        last = mount.daemon()
        assert last.server.hello.pid == mount.process.pid
        assert last.changes == []

    def test_the_latest_daemon_replaces_the_others(self, mount: Mounted) -> None:
        first, second = mount.daemon(), mount.daemon()
        wait_until(lambda: first.ends == [False], "the end of the first")
        (mount.point / "f").write_text("x")
        second.wait_for("/f", flags=Flags.CLOSED)
        assert first.changes == []
        assert not mount.put(first, "/f", b"remote").done
        second.seen, seen = first.server.hello.seen, second.seen
        # What the first one decided may be done after the second one has compared all.
        assert not mount.put(second, "/f", b"remote").done
        second.seen = seen
        assert mount.put(second, "/f", b"remote").done

    def test_who_serves_is_told_without_a_daemon_and_beside_one(self, mount: Mounted) -> None:
        found = Serving(mount.process.pid, os.fsencode(mount.point))
        assert who_serves(mount.base / "socket") == found
        daemon = mount.daemon()
        assert who_serves(mount.base / "socket") == found
        (mount.point / "f").write_text("x")
        daemon.wait_for("/f", flags=Flags.CLOSED)
        mount.process.send_signal(signal.SIGSTOP)
        assert who_serves(mount.base / "socket") == Serving(mount.process.pid, None)
        mount.process.send_signal(signal.SIGCONT)
        assert who_serves(mount.base / "nothing") is None

    def test_jobs_that_are_done_too_late_end_the_connection(self, mount: Mounted) -> None:
        """The daemon has noted that they were not done."""
        daemon = mount.daemon(patience=0.01)
        mount.process.send_signal(signal.SIGSTOP)
        assert not mount.put(daemon, "/f", b"late").done
        assert daemon.ends == []
        mount.process.send_signal(signal.SIGCONT)
        wait_until(lambda: daemon.ends == [False], "the end")
        assert (mount.point / "f").read_text() == "late"

    @pytest.mark.logs("which is a bug")
    def test_a_daemon_that_fails_is_cut_off_and_attaches_again(self, mount: Mounted) -> None:
        """What it missed is found by its scan."""
        daemon = mount.daemon()
        daemon.changes = cast(Any, None)
        (mount.point / "f").write_text("x")
        wait_until(lambda: daemon.ends == [False], "the end")
        again = mount.daemon()
        (mount.point / "g").write_text("x")
        again.wait_for("/g", flags=Flags.CLOSED)

    def test_a_killed_server_leaves_a_mount_that_can_be_replaced(self, scratch: Path) -> None:
        with mounted(scratch, "--keep-owners") as mount:
            daemon = mount.daemon()
            (mount.point / "f").write_text("x")
            mount.process.kill()
            wait_until(lambda: daemon.ends == [False], "the end")
            assert errno_from(lambda: os.listdir(mount.point)) == errno.ENOTCONN
            subprocess.run(["umount", "-l", mount.point], check=True)
        with mounted(scratch, "--keep-owners") as mount:
            assert (mount.point / "f").read_text() == "x"

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            (["--options", "nonsense"], "nonsense"),
            (["--mountpoint", "/nowhere"], "/nowhere"),
        ],
    )
    def test_why_it_does_not_mount(self, scratch: Path, options: list[str], why: str) -> None:
        made = Mounted(scratch, *options)
        try:
            assert made.said.startswith("failed: ") and why in made.said
            assert made.process.wait(DEADLINE) == 1
        finally:
            made.close()

    def test_few_descriptors(self, scratch: Path) -> None:
        """One a file that is open, and some directories."""
        with mounted(scratch, "--keep-owners", limit=256) as mount:
            daemon = mount.daemon()
            for number in range(300):
                (mount.point / f"d{number}").mkdir()
                (mount.point / f"d{number}" / "f").write_text("x")
            with contextlib.ExitStack() as stack:
                for number in range(150):
                    stack.enter_context((mount.point / f"d{number}" / "f").open())
                assert len(os.listdir(f"/proc/{mount.process.pid}/fd")) < 150 + 100
                for number in range(300):
                    assert (mount.point / f"d{number}" / "f").read_text() == "x"
                    assert mount.put(daemon, f"/d{number}/g", b"y").done
            wait_until(lambda: len(os.listdir(f"/proc/{mount.process.pid}/fd")) < 100, "closed files")

    def test_as_many_descriptors_as_the_machine_allows(self, mount: Mounted) -> None:
        soft, hard = resource.prlimit(mount.process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard

    def test_nothing_but_the_shared_modules_is_loaded(self, mount: Mounted) -> None:
        code = "import sys, basefs.fs.server.__main__; print(*sorted(m for m in sys.modules if m.startswith('basefs')))"
        loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
        assert {name.split(".")[1] for name in loaded if "." in name} == {"durable", "errors", "fs", "notify", "path"}
        parts = {".".join(name.split(".")[1:3]) for name in loaded if name.count(".") > 1}
        assert parts == {"fs.channel", "fs.disk", "fs.jobs", "fs.server", "fs.sockets"}

    def test_names_that_are_not_listed(self, scratch: Path) -> None:
        with mounted(scratch, "--keep-owners", "--hide", ".cluster", "--hide", ".readers") as mount:
            (mount.point / ".cluster").write_text("x")
            (mount.point / "d").mkdir()
            (mount.point / "d" / ".cluster").touch()
            assert os.listdir(mount.point) == ["d"] and os.listdir(mount.point / "d") == [".cluster"]
            assert (mount.point / ".cluster").read_text() == "x"

    def test_links_that_nobody_follows(self, scratch: Path) -> None:
        with mounted(scratch, "--keep-owners", "--options", "nosymfollow,noexec") as mount:
            (mount.point / "l").symlink_to("/etc/passwd")
            assert errno_from((mount.point / "l").read_text) == errno.ELOOP
            assert os.readlink(mount.point / "l") == "/etc/passwd"
            assert os.statvfs(mount.point).f_flag & (os.ST_NOEXEC | os.ST_NOSUID | os.ST_NODEV)

    def test_owners_that_are_not_kept(self, scratch: Path) -> None:
        with mounted(scratch, "--uid", "5", "--gid", "6") as mount:
            (mount.point / "f").touch()
            status = (mount.point / "f").stat()
            assert (status.st_uid, status.st_gid) == (5, 6)
            os.chown(mount.point / "f", 5, 6)
            assert errno_from(lambda: os.chown(mount.point / "f", 0, 0)) == errno.EPERM


class TestOrdinaryUsers:
    @pytest.fixture
    def theirs(self, scratch: Path) -> Iterator[Mounted]:
        # Users may open it on every system with udev.  The lock is for tests of other processes.
        device = Path("/dev/fuse")
        with device.open("rb", buffering=0) as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            mode = stat.S_IMODE(device.stat().st_mode)
            device.chmod(mode | 0o666)
            try:
                made = Mounted(scratch, user=NOBODY)
            finally:
                device.chmod(mode)
        try:
            assert made.said == "ready", made.said
            yield made
        finally:
            made.close()

    @staticmethod
    def do(code: str, mount: Mounted) -> str:
        """Run Python as the user; `p` is the mount point and `d` the disk."""
        prelude = (
            "import os, pathlib, stat, socket, sys; from basefs.fs.disk import *; from basefs.fs.jobs import *\n"
            f"p = pathlib.Path({str(mount.point)!r}); t = pathlib.Path({str(mount.tree)!r})\n"
        )
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, "-c"]
        done = subprocess.run([*command, prelude + code], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_modes_that_the_owner_cannot_use(self, theirs: Mounted) -> None:
        found = self.do(
            """
os.umask(0)
for name, mode in (("r", 0o444), ("w", 0o200), ("no", 0), ("sticky", 0o1600)):
    fd = os.open(p / name, os.O_CREAT | os.O_WRONLY, mode)
    os.write(fd, b"x"); os.close(fd)
    (p / name).chmod(mode)
(p / "d").mkdir(); (p / "d" / "f").touch(); (p / "d").chmod(0o555)
for name in ("r", "w", "no", "sticky", "d"):
    shown, real = (oct(stat.S_IMODE((top / name).stat().st_mode)) for top in (p, t))
    print(name, shown, real, os.listxattr(p / name))
for call in (lambda: (p / "r").write_text("y"), (p / "w").read_text, (p / "d" / "g").touch, (p / "d" / "f").unlink):
    try: call(); print("no error")
    except PermissionError as error: pass
(p / "r").chmod(0o640); (p / "r").write_text("y")
print(oct(stat.S_IMODE((p / "r").stat().st_mode)), oct(stat.S_IMODE((t / "r").stat().st_mode)))
""",
            theirs,
        )
        assert found.splitlines() == [
            "r 0o444 0o1600 []", "w 0o200 0o1600 []", "no 0o0 0o1600 []", "sticky 0o1600 0o1600 []",
            "d 0o555 0o1700 []", "0o640 0o640",
        ]  # fmt: skip

    def test_changes_come_with_events_whatever_the_modes(self, theirs: Mounted) -> None:
        """The daemon runs as the user, too."""
        self.do(
            """
(p / "d").mkdir(); (p / "d" / "f").write_text("one"); (p / "d" / "f").chmod(0o444); (p / "d").chmod(0o555)
""",
            theirs,
        )
        script = """
sys.path.insert(0, os.getcwd())
from tests.fs.server.mounted import Daemon
daemon = Daemon(p.parent / "socket"); disk = Disk(p.parent / "home", cached=False)
def expected(path):
    found = disk.look(path)
    return None if found is None else Expected(*found[:4], found.uid, found.gid)
def put(path, content, mode):
    fd = os.open(b"n", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=disk.incoming)
    os.write(fd, content); os.close(fd)
    disk.set_attributes(disk.incoming, b"n", FileAttributes(mode, None, 10**18))
    return daemon.server.perform([TreeJob(path, JobAction.PUT, expected(path), b"n")], 10**9)[0]
print(put(b"/d/f", b"two", 0o444).done, (p / "d" / "f").read_text(), oct((p / "d" / "f").stat().st_mode))
with (p / "d" / "f").open() as file:
    print(put(b"/d/f", b"three", 0o444).done, (p / "d" / "f").read_text(), file.read())
print(put(b"/d/g", b"new", 0o200).done, oct(disk.look(b"/d/g").mode))
removed = daemon.server.perform([TreeJob(b"/d/f", JobAction.REMOVE, expected(b"/d/f"))], 10**9)
print(removed[0].done, os.listdir(p / "d"))
daemon.server.close()
"""
        with contextlib.ExitStack() as stack:
            events = Path(theirs.base / "events")
            command = ["inotifywait", "-m", "-q", "-r", "-o", events, "--format", "%e %f", theirs.point]
            user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            events.touch()
            events.chmod(0o666)
            watcher = stack.enter_context(subprocess.Popen([*user, *command]))
            stack.callback(watcher.kill)
            self.wait_for_watches(watcher.pid, 2)
            found = self.do(script, theirs)
            wait_until(lambda: "DELETE f" in events.read_text(), "the events")
            said = events.read_text().splitlines()
        assert found.splitlines() == ["True two 0o100444", "True three two", "True 0o100200", "True ['g']"]
        wanted = ["MODIFY f", "CLOSE_WRITE,CLOSE f", "MOVED_TO f", "CREATE g", "DELETE f"]
        assert [event for event in said if event in wanted] and set(wanted) <= set(said)

    @staticmethod
    def wait_for_watches(pid: int, count: int) -> None:
        """Wait until a process watches as many directories."""

        def watches() -> int:
            with contextlib.suppress(OSError):
                return sum(info.read_text().count("inotify wd") for info in Path(f"/proc/{pid}/fdinfo").iterdir())
            return 0

        wait_until(lambda: watches() >= count, "the watches")


class TestBlocked:
    #: Lists a directory into memory that is a file of another mount, whose server is stopped meanwhile.  The kernel
    #: holds the directory's lock until it can write there, so that nobody can make or remove a name in it.
    LISTING = """
import ctypes, mmap, os, sys
opened = os.open(sys.argv[2], os.O_RDWR)
memory = mmap.mmap(opened, 1 << 20)
buffer = (ctypes.c_char * len(memory)).from_buffer(memory)
directory = os.open(sys.argv[1], os.O_RDONLY)
print("ready", flush=True)
sys.stdin.readline()
sys.exit(ctypes.CDLL(None).getdents64(directory, ctypes.byref(buffer), len(buffer)) <= 0)
"""

    @contextlib.contextmanager
    def blocked(self, directory: Path, other: Mounted) -> Iterator[None]:
        """Somebody holds a directory's lock all the time."""
        memory = other.point / "memory"
        memory.touch()
        os.truncate(memory, 1 << 20)
        command = [sys.executable, "-c", self.LISTING, directory, memory]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listing:
            try:
                assert listing.stdin is not None and listing.stdout is not None
                assert listing.stdout.readline() == b"ready\n"
                os.kill(other.process.pid, signal.SIGSTOP)
                listing.stdin.write(b"\n")
                listing.stdin.flush()
                state = Path(f"/proc/{listing.pid}/stat")
                wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "D", "the listing waits")
                yield
                assert listing.poll() is None
            finally:
                os.kill(other.process.pid, signal.SIGCONT)
            assert listing.wait(DEADLINE) == 0

    def test_a_job_that_hangs_is_done_without_the_mount(self, mount: Mounted, daemon: Daemon) -> None:
        for name in ("held", "free"):
            (mount.point / name).mkdir()
        with temporary_directory() as base, mounted(base, "--keep-owners") as other:
            with self.blocked(mount.point / "held", other):
                assert mount.put(daemon, "/held/f", b"one").done
                assert (mount.tree / "held" / "f").read_text() == "one"
                # Applications go on meanwhile, and further jobs.
                (mount.point / "free" / "new").write_text("new")
                for content in ("two", "three"):
                    assert mount.put(daemon, "/free/f", content.encode()).done
                    assert (mount.point / "free" / "f").read_text() == content
                    assert (mount.point / "free" / "f").stat().st_size == len(content)
                assert mount.perform(daemon, TreeJob(b"/free/f", JobAction.REMOVE, mount.expected("/free/f"))).done
                assert not (mount.point / "free" / "f").exists()
            assert (mount.point / "held" / "f").read_text() == "one"
            with watching(mount.point / "free") as watch:
                # Free again, so that watchers are notified.
                wait_until(lambda: self.notified(mount, daemon, watch), "an event")

    @staticmethod
    def notified(mount: Mounted, daemon: Daemon, watch: object) -> bool:
        assert mount.put(daemon, "/free/f", os.urandom(9)).done
        (mount.point / "free" / "mark").write_text("x")
        return any("MODIFY f" in event for event in watch.until("CLOSE_WRITE,CLOSE mark"))  # type: ignore[attr-defined]


class TestAdversary:
    def test_a_directory_that_becomes_a_link_behind_its_back(self, scratch: Path) -> None:
        """Of a server that runs as root, by calls of a user who may do nothing with the victim."""
        victim = scratch / "victim"
        victim.mkdir()
        (victim / "secret").write_text("secret")
        (victim / "secret").chmod(0o600)
        before = (victim / "secret").stat(), victim.stat()
        with mounted(scratch, "--keep-owners") as mount:
            point, tree = mount.point, mount.tree
            scratch.chmod(0o755)
            point.chmod(0o777)
            for name in ("cached", "fresh"):
                (point / name).mkdir()
                (point / name).chmod(0o777)
                (point / name / "secret").write_text("mine")
                os.chown(point / name / "secret", NOBODY, NOBODY)
                os.listdir(point / name)
            for name in ("cached", "fresh"):
                if name == "fresh":
                    # The kernel still knows the directory.
                    (tree / name).rename(tree / "away")
                    (tree / name).symlink_to(victim)
                else:
                    (tree / name / "secret").unlink()
                    (tree / name / "secret").symlink_to(victim / "secret")
                for call in (
                    lambda n=name: os.write(1, (point / n / "secret").read_bytes()),
                    lambda n=name: (point / n / "secret").write_text("x"),
                    lambda n=name: (point / n / "secret").chmod(0o777),
                    lambda n=name: os.utime(point / n / "secret", (1, 1)),
                    lambda n=name: os.truncate(point / n / "secret", 0),
                    lambda n=name: os.setxattr(point / n / "secret", "user.x", b""),
                    lambda n=name: (point / n / "made").mkdir(),
                    lambda n=name: (point / "hard").hardlink_to(point / n / "secret"),
                    lambda n=name: (point / n / "secret").unlink(),
                    lambda n=name: (point / n / "secret").write_text("new"),
                ):
                    as_nobody(call)
            for found in point.rglob("*"):
                assert found.is_symlink() or found.is_dir() or found.read_text() != "secret"
            # But the time of the last access, by this test.
            assert [tuple(each)[:7] for each in before] == [
                tuple(path.stat())[:7] for path in (victim / "secret", victim)
            ]
            assert os.listdir(victim) == ["secret"] and (victim / "secret").read_text() == "secret"

    def test_the_disk_itself_follows_nothing(self, scratch: Path) -> None:
        (scratch / "victim").write_text("x")
        disk = Disk(scratch, cached=False)
        os.symlink(scratch, scratch / "tree" / "out")
        os.symlink("victim", scratch / "tree" / "file")
        try:
            assert disk.look(b"/out/victim") is None and disk.look(b"/../victim") is None
            assert stat.S_ISLNK(disk.look(b"/out").mode)
            for path in (b"/out/victim", b"/../victim", b"/file"):
                with pytest.raises(OSError):
                    disk.open(path, os.O_RDONLY)
                assert not apply(disk, TreeJob(path, JobAction.REMOVE, Expected(1, 1, 1, 1, 0, 0))).done
        finally:
            disk.close()
        assert (scratch / "victim").read_text() == "x"
