"""What readers and writers meet when something breaks: docs/posix.md says it, section 'When something breaks'."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mounts import temporary_directory
from tests.support.node import Node, mount_points
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = pytest.mark.fuse

NAME = "conf"
#: The disk of the tests that fill it.
DISK_BYTES = 16 << 20


@contextlib.contextmanager
def made(base: Path) -> Iterator[Node]:
    """A node with a filesystem in a directory."""
    with Node.temporary(base) as node:
        node.basefs("genkey")
        node.basefs("bootstrap", NAME)
        yield node


@pytest.fixture
def node() -> Iterator[Node]:
    """A node whose filesystem is not mounted yet."""
    with temporary_directory() as base, made(base) as node:
        yield node


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of a few megabytes."""
    with temporary_directory() as directory:
        disk = directory / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", disk], check=True)
        try:
            yield disk
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


def error_of(path: Path, content: bytes | None = None) -> int | None:
    """The errno of reading a file, or of writing it; `None` where that works."""
    try:
        if content is None:
            path.read_bytes()
        else:
            path.write_bytes(content)
    except OSError as error:
        return error.errno
    return None


class TestFullDisk:
    def test_writers_are_told_readers_go_on_and_nothing_that_was_saved_is_lost(self, small_disk: Path) -> None:
        with made(small_disk) as node:
            point = node.mount(NAME)
            (point / "before").write_text("safe")
            saved = self._fill(point)
            # It was refused with the right error, by write, fsync or close.
            assert (point / "before").read_text() == "safe"
            assert os.statvfs(point).f_bavail * os.statvfs(point).f_frsize < DISK_BYTES
            for name, size in saved.items():
                assert (point / name).stat().st_size == size
            node.kill(NAME)
            # Room again, and a daemon that takes up where the other one was killed.
            (small_disk / "filler").unlink()
            node.mount(NAME)
            assert (point / "before").read_text() == "safe"
            for name, size in saved.items():
                assert (point / name).read_bytes() == self._content(name, size)
            (point / "after").write_text("works again")
            node.settle(NAME)
            assert {f"/{name}" for name in saved} | {"/after", "/before"} <= {
                row["path"] for row in node.query("show", NAME)
            }

    def test_a_restart_without_a_byte_of_room_is_told_why_if_it_fails_and_loses_nothing(self, small_disk: Path) -> None:
        with made(small_disk) as node:
            point = node.mount(NAME)
            saved = self._fill(point)
            self._fill_up(small_disk / "rest")
            node.kill(NAME)
            started = node.spawn("mount", NAME, str(point), "-s")
            if started.returncode:
                assert "is full: free some space" in started.stderr
            else:
                # What a failed write has left was taken away first, and was room enough.
                node.kill(NAME)
            for command in (("status", NAME), ("doctor", NAME), ("log", f"{NAME}:/")):
                told = node.spawn(*command)
                assert told.stdout, command
                assert "Traceback" not in told.stderr, command
            (small_disk / "filler").unlink()
            node.mount(NAME)
            for name, size in saved.items():
                assert (point / name).read_bytes() == self._content(name, size)
            node.settle(NAME)
            assert {f"/{name}" for name in saved} <= {row["path"] for row in node.query("show", NAME)}

    def test_a_restart_without_room_for_the_journal_reads_and_goes_on_when_there_is_some(
        self, small_disk: Path
    ) -> None:
        spare = small_disk / "spare"
        with made(small_disk) as node:
            point = node.mount(NAME)
            spare.write_bytes(bytes(256 * 1024))
            saved = self._fill(point)
            for number in range(200):
                # Small ones are in the journal itself.
                name, size = f"small{number}", 8000
                if error_of(point / name, self._content(name, size)) is None:
                    saved[name] = size
            self._fill_up(small_disk / "rest")
            node.kill(NAME)
            spare.unlink()
            node.mount(NAME)
            for name, size in saved.items():
                assert (point / name).read_bytes() == self._content(name, size)
            code = error_of(point / "more", b"x" * 512 * 1024)
            assert code == errno.ENOSPC
            (small_disk / "filler").unlink()
            wait_until(lambda: error_of(point / "after", b"works again") is None, DEADLINE, "writing works again")
            node.kill(NAME)
            node.mount(NAME)
            node.settle(NAME)
            assert {f"/{name}" for name in (*saved, "after")} <= {row["path"] for row in node.query("show", NAME)}
            for name, size in saved.items():
                assert (point / name).read_bytes() == self._content(name, size)

    @staticmethod
    def _fill_up(path: Path) -> None:
        """Take the last byte of a disk."""
        with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def _fill(self, point: Path) -> dict[str, int]:
        """Write until there is no room; returns the files whose saving succeeded, with their sizes."""
        filler = point.parent / "filler"
        with filler.open("wb") as file:
            file.write(bytes(DISK_BYTES // 2))
        saved: dict[str, int] = {}
        for number in range(1000):
            name, size = f"file{number}", 64 * 1024
            code = error_of(point / name, self._content(name, size))
            if code is not None:
                assert code == errno.ENOSPC
                return saved
            saved[name] = size
        raise AssertionError("the disk was never full")

    @staticmethod
    def _content(name: str, size: int) -> bytes:
        """Bytes that do not compress, so that they need the room."""
        return random.Random(name).randbytes(size)

    def test_a_write_that_does_not_fit_shows_until_there_is_room(self, small_disk: Path) -> None:
        with made(small_disk) as node:
            point = node.mount(NAME)
            filler = small_disk / "filler"
            filler.write_bytes(bytes(DISK_BYTES // 2))
            assert "no room" not in node.basefs("status", NAME)
            with (point / "large").open("wb", buffering=0) as file:
                with pytest.raises(OSError, match="No space left"):
                    while True:
                        file.write(bytes(65536))
                # Nothing is published of it, so nothing else can have noticed; a status publishes.
                wait_until(lambda: "disk full: " in node.log(NAME), DEADLINE, "the log says so")
                assert "no room: its disk is full" in node.basefs("status", NAME)
                with pytest.raises(OSError, match="No space left"):
                    file.write(bytes(65536))
                filler.unlink()
                wait_until(lambda: "room again: " in node.log(NAME), DEADLINE, "the log says so")
                assert "no room" not in node.basefs("status", NAME)
            assert node.log(NAME).count("disk full: ") == node.log(NAME).count("room again: ") == 1

    def test_with_room_again_the_same_mount_goes_on(self, small_disk: Path) -> None:
        with made(small_disk) as node:
            point = node.mount(NAME)
            self._fill(point)
            (small_disk / "filler").unlink()
            wait_until(lambda: error_of(point / "after", b"works again") is None, DEADLINE, "writing works again")
            node.settle(NAME)
            assert "/after" in {row["path"] for row in node.query("show", NAME)}


class TestStopped:
    def test_a_daemon_that_is_stopped_for_a_while_loses_nothing(self, node: Node) -> None:
        point = node.mount(NAME)
        (point / "f").write_text("old")
        node.settle(NAME)
        daemon = node.daemon(NAME)
        os.kill(daemon, signal.SIGSTOP)
        try:
            # A reader and a writer wait, without an error.
            ended: list[int | None] = []
            write = [sys.executable, "-c", f"open({str(point / 'f')!r}, 'w').write('new')"]
            with subprocess.Popen(write) as writer:
                reading = threading.Thread(target=lambda: ended.append(error_of(point / "unread")))
                reading.start()
                # Long enough for either to have failed, were it to.
                with pytest.raises(subprocess.TimeoutExpired):
                    writer.wait(2)
                assert not ended
                os.kill(daemon, signal.SIGCONT)
                assert writer.wait(DEADLINE) == 0
                reading.join(DEADLINE)
                assert ended == [errno.ENOENT]
        finally:
            os.kill(daemon, signal.SIGCONT)
        assert (point / "f").read_text() == "new"

    def test_who_waits_for_a_stopped_daemon_can_be_killed(self, node: Node) -> None:
        point = node.mount(NAME)
        daemon = node.daemon(NAME)
        os.kill(daemon, signal.SIGSTOP)
        try:
            with subprocess.Popen([sys.executable, "-c", f"open({str(point / 'f')!r}, 'w')"]) as writer:
                with pytest.raises(subprocess.TimeoutExpired):
                    writer.wait(1)
                writer.kill()
                writer.wait(DEADLINE)
        finally:
            os.kill(daemon, signal.SIGCONT)
        assert error_of(point / "g", b"the mount goes on") is None


class TestDead:
    def test_the_mount_never_looks_empty_and_mounting_again_repairs_it(self, node: Node) -> None:
        point = node.mount(NAME)
        (point / "f").write_text("safe")
        held = (point / "f").open("rb")
        node.kill(NAME)
        with pytest.raises(OSError, match="not connected") as failure:
            os.listdir(point)
        assert failure.value.errno == errno.ENOTCONN
        assert error_of(point / "f") == error_of(point / "g", b"") == errno.ENOTCONN
        # Who has a file open is told as well, once the kernel has to ask.
        with contextlib.suppress(OSError):
            held.close()
        node.mount(NAME)
        assert mount_points(node.base) == [point]
        assert (point / "f").read_text() == "safe"
        assert error_of(point / "g", b"x") is None

    def test_what_was_removed_while_it_was_open_stays_removed(self, node: Node) -> None:
        """libfuse keeps it under another name, and a moment later it might have been replaced and not removed."""
        point = node.mount(NAME)
        (point / "f").write_text("here")
        node.settle(NAME)
        journal = node.home / "fs" / NAME / "working" / "journal"
        with (point / "f").open("rb") as held:
            before = journal.read_bytes()
            (point / "f").unlink()
            # Sooner than it is published: the journal has it.
            wait_until(lambda: journal.read_bytes() != before, DEADLINE, "a record")
            node.kill(NAME)
            assert held.fileno()
        node.mount(NAME)
        assert not (point / "f").exists()

    def test_a_dead_mount_is_repaired_while_somebody_stands_in_it(self, node: Node) -> None:
        point = node.mount(NAME)
        (point / "d").mkdir()
        with subprocess.Popen(["sleep", "1000"], cwd=point / "d") as standing:
            node.kill(NAME)
            node.mount(NAME)
            assert sorted(os.listdir(point)) == ["d"]
            standing.kill()

    def test_unmount_clears_a_dead_mount(self, node: Node) -> None:
        point = node.mount(NAME)
        node.kill(NAME)
        node.basefs("unmount", NAME)
        assert mount_points(node.base) == []
        assert os.listdir(point) == []


class TestDamage:
    def test_a_damaged_row_is_refused_and_the_rest_can_be_read_but_not_written(self, node: Node) -> None:
        point = node.mount(NAME)
        for name in ("good", "bad"):
            (point / name).write_bytes(os.urandom(5000))
        content = (point / "good").read_bytes()
        node.settle(NAME)
        entry = node.query("log", f"{NAME}:/bad")[0]["entry"]
        node.basefs("unmount", NAME)
        self._damage(node, entry)
        node.mount(NAME)
        assert error_of(point / "good") is None
        assert (point / "good").read_bytes() == content
        # What was damaged is not shown as something else.
        assert error_of(point / "bad") in (errno.ENOENT, errno.EIO)
        assert error_of(point / "new", b"x") in (errno.EROFS, errno.EACCES)
        assert error_of(point / "good", b"x") in (errno.EROFS, errno.EACCES)
        assert node.summary(NAME)["damaged"] == 1

    @staticmethod
    def _damage(node: Node, entry: str) -> None:
        """One bit of one entry in the log turns over."""
        database = node.home / "fs" / NAME / "log.db"
        with contextlib.closing(sqlite3.connect(database)) as connection:
            for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f'DROP TRIGGER "{trigger}"')
            hash = bytes.fromhex(entry)
            (raw,) = connection.execute("SELECT data FROM entries WHERE hash = ?", (hash,)).fetchone()
            changed = raw[:-70] + bytes((raw[-70] ^ 1,)) + raw[-69:]
            connection.execute("UPDATE entries SET data = ? WHERE hash = ?", (changed, hash))
            connection.commit()
