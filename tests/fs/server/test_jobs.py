"""Changes of other nodes: done through the mount, between two requests, with the events of any program."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import threading
from pathlib import Path

import pytest

from basefs.fs.channel import Flags
from basefs.fs.disk import FileAttributes
from basefs.fs.jobs import Expected, JobAction, TreeJob
from tests.fs.server.mounted import NOBODY, Daemon, Mounted, mounted, watching
from tests.support.mounts import wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.root]
#: What a program does that saves a file, and what one does that replaces a file.
SAVED, REPLACED = ["OPEN f", "MODIFY f", "CLOSE_WRITE,CLOSE f"], "MOVED_TO f"


def closed(mount: Mounted, daemon: Daemon, path: str) -> None:
    """Wait until the server has heard that nobody has a file open: close(2) returns before."""

    def is_free() -> bool:
        result = mount.perform(
            daemon, TreeJob(os.fsencode(path), JobAction.ATTRIBUTES, mount.expected(path), b"", attributes)
        )
        return result.done

    status = (mount.tree / path.strip("/")).stat()
    attributes = FileAttributes(stat.S_IMODE(status.st_mode), None, status.st_mtime_ns)
    wait_until(is_free, "the file is closed")


def write(mount: Mounted, daemon: Daemon, name: str, text: str) -> None:
    """Write a file that nobody has open afterwards."""
    (mount.point / name).write_text(text)
    daemon.wait_for(f"/{name}", flags=Flags.CLOSED)
    closed(mount, daemon, f"/{name}")


def test_a_new_file_is_created(mount: Mounted, daemon: Daemon) -> None:
    assert not (mount.point / "f").exists()
    with watching(mount.point) as watch:
        result = mount.put(daemon, "/f", b"new")
        assert result.done and result.found is not None and result.found.size == 3
        assert watch.until("CLOSE_WRITE") == ["CREATE f", "OPEN f", "CLOSE_WRITE,CLOSE f"]
    status = (mount.point / "f").stat()
    assert (status.st_size, status.st_mtime_ns, stat.S_IMODE(status.st_mode)) == (3, 10**18, 0o644)
    assert (mount.point / "f").read_text() == "new"


def test_a_file_that_nobody_has_open_is_rewritten_in_place(mount: Mounted, daemon: Daemon) -> None:
    write(mount, daemon, "f", "one")
    assert (mount.point / "f").read_text() == "one"
    closed(mount, daemon, "/f")
    with watching(mount.point / "f") as watch:
        # Equal sizes and times: the kernel must not go on with its pages.
        assert mount.put(daemon, "/f", b"two").done
        assert watch.until("CLOSE_WRITE") == [event.removesuffix(" f") for event in SAVED]
        assert (mount.point / "f").read_text() == "two"
    assert daemon.changes == []


def test_who_has_it_open_keeps_the_old_file(mount: Mounted, daemon: Daemon) -> None:
    write(mount, daemon, "f", "first")
    with watching(mount.point) as watch, watching(mount.point / "f") as of_file, (mount.point / "f").open() as file:
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            for text, event in ((b"second", REPLACED), (b"the third", SAVED[1])):
                assert mount.put(daemon, "/f", text).done
                # Nobody has the second one open when the third comes; the watcher of the file hears of both.
                watch.until(event)
                of_file.until("CLOSE_WRITE")
                assert (mount.point / "f").read_bytes() == text
                assert (os.pread(file.fileno(), 99, 0), view[:]) == (b"first", b"first")
                assert (os.fstat(file.fileno()).st_size, os.fstat(file.fileno()).st_nlink) == (5, 0)
        file.close()
        of_file.until("DELETE_SELF")


def test_a_file_that_is_written_to_waits_until_it_is_closed(mount: Mounted, daemon: Daemon) -> None:
    write(mount, daemon, "f", "one")
    with (mount.point / "f").open("a") as file:
        result = mount.put(daemon, "/f", b"remote")
        assert (result.done, result.reason) == (False, "open for writing")
        assert (mount.point / "f").read_text() == "one"
        file.close()
    # Nothing was written, and the daemon hears that it may try again.
    daemon.wait_for("/f", flags=Flags.CLOSED)
    assert mount.put(daemon, "/f", b"remote").done
    assert (mount.point / "f").read_text() == "remote"


def test_what_was_changed_meanwhile_is_left_alone(mount: Mounted, daemon: Daemon) -> None:
    write(mount, daemon, "f", "one")
    expected = mount.expected("/f")
    seen = daemon.seen
    write(mount, daemon, "f", "two")
    job = TreeJob(b"/f", JobAction.PUT, expected, mount.prepare("p", b"remote"))
    assert mount.perform(daemon, job).reason == "changed meanwhile"
    # Though the disk is as expected, the daemon has not seen the last change.
    job = job._replace(expected=mount.expected("/f"))
    assert daemon.server.perform([job], seen)[0].reason == "changed meanwhile"
    assert (mount.point / "f").read_text() == "two"
    for wrong in (None, job.expected._replace(uid=1), job.expected._replace(mode=stat.S_IFREG | 0o600)):  # type: ignore[union-attr]
        assert not mount.perform(daemon, job._replace(expected=wrong)).done
    assert mount.perform(daemon, job).done


def test_directories_links_and_special_files(mount: Mounted, daemon: Daemon) -> None:
    assert mount.disk is not None
    os.symlink("target", b"l", dir_fd=mount.disk.incoming)
    os.mknod(b"p", stat.S_IFIFO | 0o600, dir_fd=mount.disk.incoming)
    os.mknod(b"d", stat.S_IFCHR | 0o600, os.makedev(1, 3), dir_fd=mount.disk.incoming)
    with watching(mount.point, recursive=True) as watch:
        jobs = [
            TreeJob(
                b"/d", JobAction.MAKE_DIRECTORY, None, b"", FileAttributes(0o2750, (1, 2), 10**18, {b"user.x": b"1"})
            ),
            TreeJob(b"/l", JobAction.PUT, None, b"l"),
            TreeJob(b"/p", JobAction.PUT, None, b"p"),
            TreeJob(b"/n", JobAction.PUT, None, b"d"),
        ]
        assert [result.done for result in daemon.server.perform(jobs, daemon.seen)] == [True] * 4
        assert {"CREATE,ISDIR d", "CREATE l", "CREATE p", "CREATE n"} <= set(watch.until("CREATE n"))
        status = (mount.point / "d").stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns) == (
            0o2750,
            1,
            2,
            10**18,
        )
        assert os.getxattr(mount.point / "d", "user.x") == b"1"
        assert os.readlink(mount.point / "l") == "target"
        assert stat.S_ISFIFO((mount.point / "p").stat().st_mode)
        assert (mount.point / "n").stat().st_rdev == os.makedev(1, 3)
        jobs = [
            TreeJob(b"/d", JobAction.ATTRIBUTES, mount.expected("/d"), b"", FileAttributes(0o700, (0, 0), 7, {})),
            TreeJob(b"/l", JobAction.ATTRIBUTES, mount.expected("/l"), b"", FileAttributes(0o777, (3, 4), 5)),
        ]
        assert [result.done for result in daemon.server.perform(jobs, daemon.seen)] == [True] * 2
        watch.until("ATTRIB l")
        status = (mount.point / "d").stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_mtime_ns) == (0o700, 0, 7)
        assert os.listxattr(mount.point / "d") == []
        assert (mount.point / "l").lstat().st_mtime_ns == 5
        jobs = [TreeJob(f"/{name}".encode(), JobAction.REMOVE, mount.expected(f"/{name}")) for name in "dlpn"]
        assert [result.done for result in daemon.server.perform(jobs, daemon.seen)] == [True] * 4
        watch.until("DELETE n")
    assert os.listdir(mount.point) == []
    assert daemon.changes == []


def test_a_directory_that_moves_takes_along_who_is_in_it(mount: Mounted, daemon: Daemon) -> None:
    below = mount.point / "d" / "below"
    below.mkdir(parents=True)
    (below / "f").write_text("x")
    (mount.point / "to").mkdir()
    daemon.wait_for("/d/below/f", "/to")
    job = TreeJob(b"/to/new", JobAction.MOVE, mount.expected("/d"), source=b"/d")
    inside = os.open(below, os.O_RDONLY)
    with watching(mount.point, mount.point / "to") as watch, (below / "f").open() as file:
        assert mount.perform(daemon, job).done
        watch.until("MOVED_TO,ISDIR new")
        assert os.listdir(inside) == ["f"] and file.read() == "x"
        assert os.fstat(inside).st_ino == (mount.point / "to" / "new" / "below").stat().st_ino
    os.close(inside)
    assert os.listdir(mount.point) == ["to"] and daemon.changes == []
    (mount.point / "d").mkdir()
    daemon.wait_for("/d")
    # Something is there, or it is another directory.
    for path, source, expected in ((b"/d", b"/to", "/to"), (b"/new", b"/d", "/to")):
        assert not mount.perform(daemon, TreeJob(path, JobAction.MOVE, mount.expected(expected), source=source)).done


def test_a_prepared_link_is_a_name_of_the_file(mount: Mounted, daemon: Daemon) -> None:
    assert mount.disk is not None
    write(mount, daemon, "f", "one")
    write(mount, daemon, "g", "another")
    for name in (b"g", b"h"):
        above, _ = mount.disk.parent(b"/f")
        os.link(b"f", name, src_dir_fd=above, dst_dir_fd=mount.disk.incoming)
        path = "/" + name.decode()
        assert mount.perform(daemon, TreeJob(os.fsencode(path), JobAction.PUT, mount.expected(path), name)).done
    assert {(mount.point / name).stat().st_nlink for name in "fgh"} == {3}
    (mount.point / "g").write_text("for all names")
    assert {(mount.point / name).read_text() for name in "fgh"} == {"for all names"}
    daemon.wait_for("/f", flags=Flags.CLOSED | Flags.URGENT)
    closed(mount, daemon, "/f")
    # A change of one name parts it.
    assert mount.put(daemon, "/g", b"apart").done
    assert [(mount.point / name).read_text() for name in "fgh"] == ["for all names", "apart", "for all names"]
    assert [(mount.point / name).stat().st_nlink for name in "fgh"] == [2, 1, 2]


def test_readers_see_whole_versions(mount: Mounted, daemon: Daemon) -> None:
    """Of two sizes, while they are swapped in place and by renames."""
    write(mount, daemon, "f", "a" * 10)
    stop = threading.Event()
    found: set[bytes] = set()

    def read() -> None:
        while not stop.is_set():
            found.add((mount.point / "f").read_bytes())

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    versions = {b"a" * 10}
    try:
        for number in range(200):
            content = bytes([98 + number % 20]) * (10, 5000, 10)[number % 3]
            versions.add(content)
            assert mount.put(daemon, "/f", content).done
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert found <= versions
    assert (mount.point / "f").read_bytes() == content


def test_applications_have_no_access_to_prepared_files(mount: Mounted, daemon: Daemon) -> None:
    mount.prepare("p", b"secret")
    hidden = mount.point / ".basefs-incoming"
    assert not hidden.exists() and os.listdir(mount.point) == []
    with pytest.raises(OSError) as raised:
        hidden.mkdir()
    assert raised.value.errno == errno.EPERM
    # Though a name was looked up in vain, the server finds it.
    write(mount, daemon, "f", "one")
    with (mount.point / "f").open() as file:
        assert mount.put(daemon, "/f", b"two").done
        assert file.read() == "one"
    assert not (hidden / "p").exists()


def test_without_events_the_kernel_forgets(scratch: Path) -> None:
    with mounted(scratch, "--keep-owners", "--no-events") as mount:
        daemon = mount.daemon()
        assert not (mount.point / "f").exists()
        for text in (b"one", b"two", b"three"):
            assert mount.put(daemon, "/f", text).done
            assert (mount.point / "f").read_bytes() == text
            assert (mount.point / "f").stat().st_size == len(text)
        assert mount.perform(daemon, TreeJob(b"/f", JobAction.REMOVE, mount.expected("/f"))).done
        assert not (mount.point / "f").exists()


def test_a_read_only_mount_still_gets_changes(scratch: Path) -> None:
    with mounted(scratch, "--keep-owners", "--options", "ro,noexec") as mount:
        daemon = mount.daemon()
        with watching(mount.point) as watch:
            assert mount.put(daemon, "/f", b"one").done
            watch.until("CLOSE_WRITE")
            assert mount.put(daemon, "/f", b"two").done
            assert SAVED[1] in watch.until("CLOSE_WRITE")
        assert (mount.point / "f").read_text() == "two"
        flags = os.statvfs(mount.point).f_flag
        assert flags & os.ST_RDONLY and flags & os.ST_NOEXEC
        for call in (
            lambda: (mount.point / "f").write_text("x"),
            lambda: (mount.point / "f").unlink(),
            lambda: (mount.point / "g").mkdir(),
            lambda: os.utime(mount.point / "f"),
        ):
            with pytest.raises(OSError) as raised:
                call()
            assert raised.value.errno == errno.EROFS


def test_a_job_for_what_is_behind_a_link_touches_nothing(mount: Mounted, daemon: Daemon, scratch: Path) -> None:
    """A directory is replaced by a link to a directory of root, also behind the server's back."""
    victim = scratch / "victim"
    victim.mkdir()
    (victim / "f").write_text("untouched")
    (mount.point / "d").mkdir()
    write(mount, daemon, "d/f", "one")
    expected = mount.expected("/d/f")
    status = (victim / "f").stat()
    behind = Expected(status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, 0, 0)
    (mount.tree / "d" / "f").rename(mount.tree / "g")
    (mount.tree / "d").rename(mount.tree / "e")
    (mount.tree / "d").symlink_to(victim)
    jobs = []
    for number, expects in enumerate((expected, behind, None)):
        temporary = mount.prepare(str(number), b"changed")
        jobs += [
            TreeJob(b"/d/f", JobAction.PUT, expects, temporary), TreeJob(b"/d/f", JobAction.REMOVE, expects),
            TreeJob(b"/d/x", JobAction.MAKE_DIRECTORY, None, b"", FileAttributes(0o755, None, 0)),
            TreeJob(b"/d/f", JobAction.ATTRIBUTES, expects, b"", FileAttributes(0o777, (NOBODY, NOBODY), 0)),
        ]  # fmt: skip
    daemon.server.perform(jobs, daemon.seen)
    assert os.listdir(victim) == ["f"] and (victim / "f").read_text() == "untouched"
    assert (victim / "f").stat() == status
