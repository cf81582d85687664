"""A real mount, made by the real command, under the tools that people use."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from basefs.fs.fuse.binding import check_mountpoint, parse_options, unmount

from basefs.daemon.api.client import FilesystemClient
from basefs.daemon.api.messages import AddToLog
from basefs.daemon.config import Home
from basefs.errors import MountFailed, UsageError
from basefs.log.entries import Action
from basefs.replica.replica import Replica
from basefs.view.states import encode_mode
from tests.support.helpers import ALICE
from tests.support.mounts import require_fuse, temporary_directory, wait_until
from tests.support.node import Node, mount_points

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
#: On every system, and never who runs these tests.
NOBODY = 65534
NAME = "conf"

Snapshot = dict[bytes, tuple[object, ...]]


def test_where_nothing_can_be_mounted_tests_are_skipped_but_never_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"only root can mount|no /dev/fuse"):
        require_fuse()
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="no test may be skipped"):
        require_fuse()


class TestOptions:
    def test_parse(self) -> None:
        assert parse_options("") == {}
        assert parse_options("ro,max_read=4096,,x=") == {"ro": True, "max_read": "4096", "x": ""}

    @pytest.mark.parametrize("name", ["fsname", "subtype", "attr_timeout", "default_permissions"])
    def test_options_that_decide_how_the_mount_works_are_refused(self, name: str) -> None:
        with pytest.raises(UsageError, match=name):
            parse_options(f"ro,{name}=1")

    @pytest.mark.root
    def test_only_root_can_mount_with_nosymfollow(self) -> None:
        def refused() -> None:
            with pytest.raises(UsageError, match="only root can mount with nosymfollow"):
                parse_options("ro,nosymfollow")

        assert as_nobody(refused) == 0
        assert parse_options("nosymfollow") == {"nosymfollow": True}

    def test_a_mount_point_must_be_a_directory(self, scratch: Path) -> None:
        (scratch / "file").touch()
        for text in ("file", "missing"):
            with pytest.raises(MountFailed, match=text):
                check_mountpoint(scratch / text)

    def test_what_is_not_mounted_cannot_be_unmounted(self, scratch: Path) -> None:
        with pytest.raises(MountFailed):
            unmount(scratch, lazy=False)


@contextlib.contextmanager
def bootstrapped() -> Iterator[Node]:
    """A node with a filesystem, reachable for other users of this machine."""
    with temporary_directory() as base, Node.temporary(base) as node:
        base.chmod(0o755)
        node.basefs("bootstrap", NAME)
        yield node


@pytest.fixture
def node() -> Iterator[Node]:
    """A node whose filesystem is not mounted yet."""
    with bootstrapped() as made:
        yield made


@pytest.fixture(scope="module")
def mounted() -> Iterator[Node]:
    """A node with a mount that all tests of this module share."""
    with bootstrapped() as made:
        made.mount(NAME)
        yield made
        made.basefs("unmount", NAME)
        written = (made.home / "logs" / f"{NAME}.log").read_text()
        assert "Traceback" not in written
        assert " ERROR " not in written


@pytest.fixture
def here(mounted: Node, request: pytest.FixtureRequest) -> Path:
    """An empty directory in the shared mount."""
    directory: Path = mounted.base / "mnt" / request.node.name[:200].replace("/", "_")
    directory.mkdir()
    return directory


@pytest.fixture
def source(scratch: Path) -> Path:
    """A tree like a configuration: modes, times, links, and names that nobody expects."""
    root = scratch / "source"
    (root / "conf.d" / "deep" / "er").mkdir(parents=True)
    (root / "empty.d").mkdir()
    (root / "main.conf").write_text("include conf.d/*\n")
    (root / "conf.d" / "one.conf").write_text("one = 1\n" * 100)
    (root / "conf.d" / "secret").write_bytes(os.urandom(5000))
    (root / "conf.d" / "deep" / "er" / "run.sh").write_text("#!/bin/sh\nexit 0\n")
    (root / "empty").touch()
    Path(os.fsdecode(os.fsencode(root) + b"/odd \xff\n'name'")).write_text("odd")
    (root / "link").symlink_to("conf.d/one.conf")
    (root / "conf.d" / "dangling").symlink_to("/nowhere/at all")
    (root / "hard").hardlink_to(root / "main.conf")
    (root / "conf.d" / "secret").chmod(0o600)
    (root / "conf.d" / "deep" / "er" / "run.sh").chmod(0o755)
    (root / "main.conf").chmod(0o444)
    (root / "empty.d").chmod(0o700)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, (1_500_000_000 + number,) * 2, follow_symlinks=False)
    return root


def snapshot(root: Path, *, directory_times: bool = True, links: bool = True) -> Snapshot:
    """Everything below a directory that a copy should keep, or all but the times of directories, or hard links."""
    found: Snapshot = {}
    top = os.fsencode(root)
    for directory, subdirectories, files in os.walk(top):
        for name in [*subdirectories, *files]:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content: object = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            is_directory = stat.S_ISDIR(status.st_mode)
            time = status.st_mtime_ns if directory_times or not is_directory else 0
            count = status.st_nlink if links and not is_directory else 0
            found[os.path.relpath(path, top)] = (status.st_mode, time, count, content)
    return found


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a tool, which must succeed and be silent on stderr."""
    environment = {**os.environ, "LC_ALL": "C", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), (command, done)
    return done.stdout


def errno_from(call: Callable[[], object]) -> int | None:
    """The errno with which a call fails."""
    with pytest.raises(OSError) as caught:
        call()
    return caught.value.errno


def rename_with(flags: int, source: Path, target: Path) -> int:
    """renameat2(2); returns 0 or the errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    at_fdcwd = -100
    failed = libc.renameat2(at_fdcwd, os.fsencode(source), at_fdcwd, os.fsencode(target), flags)
    return ctypes.get_errno() if failed else 0


def as_nobody(action: Callable[[], object]) -> int:
    """Do something as a user without rights; returns 0 or the errno."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            action()
            code = 0
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.fuse
class TestTools:
    def test_cp(self, here: Path, source: Path) -> None:
        run("cp", "-a", f"{source}/.", here)
        assert snapshot(here) == snapshot(source)

    def test_cp_over_the_same_tree_costs_nothing(self, mounted: Node, here: Path, source: Path) -> None:
        # Hard links are made anew by cp, so not here.
        (source / "hard").unlink()
        run("cp", "-a", f"{source}/.", here)
        before = mounted.entries(NAME)
        run("cp", f"{source}/conf.d/one.conf", f"{source}/conf.d/secret", here / "conf.d")
        # Nothing but new times, since the contents are equal.
        assert mounted.entries(NAME) == before
        assert (here / "conf.d" / "one.conf").read_bytes() == (source / "conf.d" / "one.conf").read_bytes()

    def test_rsync_twice(self, here: Path, source: Path) -> None:
        command = ("rsync", "-a", "--itemize-changes", f"{source}/", f"{here}/")

        def same() -> bool:
            copy, original = (snapshot(root, directory_times=False, links=False) for root in (here, source))
            return copy == original

        first = run(*command)
        assert ">f+++++++++ conf.d/one.conf" in first
        assert same()
        assert [line for line in run(*command).splitlines() if not line.startswith(".d")] == []
        (source / "conf.d" / "one.conf").write_text("changed\n")
        assert [line.split()[1] for line in run(*command).splitlines() if line.startswith(">f")] == ["conf.d/one.conf"]
        assert same()

    def test_tar_there_and_back(self, here: Path, source: Path, scratch: Path) -> None:
        run("tar", "-C", source, "-cf", scratch / "there.tar", ".")
        run("tar", "-C", here, "-xf", scratch / "there.tar")
        assert snapshot(here) == snapshot(source)
        (scratch / "back").mkdir()
        run("tar", "-C", here, "-cf", scratch / "back.tar", ".")
        run("tar", "-C", scratch / "back", "-xf", scratch / "back.tar")
        assert snapshot(scratch / "back") == snapshot(source)

    def test_sed_in_place(self, here: Path) -> None:
        (here / "f").write_text("port = 80\n")
        (here / "f").chmod(0o640)
        run("sed", "-i", "s/80/8080/", here / "f")
        assert (here / "f").read_text() == "port = 8080\n"
        assert stat.S_IMODE((here / "f").stat().st_mode) == 0o640
        assert os.listdir(here) == ["f"]

    def test_vim(self, here: Path) -> None:
        (here / "f").write_text("port = 80\n")
        for replacement in ("8080", "443"):
            run("vim", "-es", "-u", "NONE", "-c", f"%s/[0-9]\\+/{replacement}/", "-c", "wq", here / "f")
            assert (here / "f").read_text() == f"port = {replacement}\n"
        assert os.listdir(here) == ["f"]

    def test_git(self, here: Path) -> None:
        git = (
            "git",
            "-c",
            "user.name=n",
            "-c",
            "user.email=e@example.org",
            "-c",
            "init.defaultBranch=main",
            "-C",
            here,
        )
        run(*git, "init", "-q")
        (here / "f").write_text("one\n")
        (here / "d").mkdir()
        (here / "d" / "g").write_text("two\n")
        run(*git, "add", ".")
        run(*git, "commit", "-qm", "first")
        (here / "f").write_text("changed\n")
        assert run(*git, "status", "--short") == " M f\n"
        run(*git, "commit", "-qam", "second")
        run(*git, "fsck", "--strict", "--no-progress")
        run(*git, "checkout", "-q", "HEAD~1")
        assert (here / "f").read_text() == "one\n"
        run(*git, "gc", "-q")
        assert run(*git, "log", "--all", "--format=%s") == "second\nfirst\n"
        assert run(*git, "status", "--short") == ""

    def test_find_and_grep(self, here: Path, source: Path) -> None:
        run("cp", "-a", f"{source}/.", here)
        assert run("find", here, "-type", "f", "-perm", "600") == f"{here}/conf.d/secret\n"
        assert run("find", here, "-type", "l", "-printf", "%l\n").splitlines().count("conf.d/one.conf") == 1
        assert run("grep", "-rl", "one = 1", here / "conf.d") == f"{here}/conf.d/one.conf\n"

    def test_walks_find_every_directory_though_none_counts_its_links(self, here: Path) -> None:
        """find(1) takes a directory with 2 links for one without directories, where it trusts the filesystem."""
        made = [here / f"{a}" / f"{b}" / "c" for a in range(5) for b in range(5)]
        for directory in made:
            directory.mkdir(parents=True)
            (directory.parent / "f").touch()
        assert {directory.parent.stat().st_nlink for directory in made} == {2}
        expected = {str(path) for directory in made for path in (directory, *directory.parents) if here in path.parents}
        for options in ([], ["-noleaf"], ["-depth"], ["-mindepth", "1", "-name", "*"]):
            found = run("find", here, "-mindepth", "1", *options, "-type", "d").splitlines()
            assert (len(found), set(found)) == (len(expected), expected), options
        assert len(run("find", here, "-name", "f").splitlines()) == len(made)
        assert len(run("ls", "-R", here).split(":\n")) == len(expected) + 2

    def test_rm(self, here: Path, source: Path) -> None:
        run("cp", "-a", f"{source}/.", here / "copy")
        run("rm", "-r", here / "copy")
        assert os.listdir(here) == []

    def test_mv_of_a_tree(self, here: Path, source: Path) -> None:
        (source / "hard").unlink()
        run("cp", "-a", f"{source}/.", here / "old")
        run("mv", here / "old", here / "new")
        assert os.listdir(here) == ["new"]
        # The times of directories are those of the move.
        assert snapshot(here / "new", directory_times=False) == snapshot(source, directory_times=False)


@pytest.mark.fuse
class TestFiles:
    def test_one_save_is_one_entry(self, mounted: Node, here: Path) -> None:
        for content in ("one", "two"):
            before = mounted.entries(NAME)
            (here / "f").write_text(content)
            assert mounted.entries(NAME) == before + 1
        (here / "f").write_text("two")
        assert mounted.entries(NAME) == before + 1

    def test_truncating_an_open_file_shows_nothing_until_it_is_closed(self, mounted: Node, here: Path) -> None:
        (here / "f").write_text("old")
        before = mounted.entries(NAME)
        with (here / "f").open("r+") as file:
            file.truncate(0)
            assert mounted.status(NAME)["entries"] == before
            file.write("new")
        assert mounted.entries(NAME) == before + 1
        assert (here / "f").read_text() == "new"

    def test_an_unlinked_file_stays_with_who_has_it_open(self, here: Path) -> None:
        with (here / "f").open("w+b") as file:
            file.write(b"before")
            file.flush()
            (here / "f").unlink()
            assert os.listdir(here) == []
            status = os.fstat(file.fileno())
            assert (status.st_size, status.st_nlink) == (6, 0)
            file.write(b" after")
            file.seek(0)
            assert file.read() == b"before after"
            file.truncate(3)
            os.fchmod(file.fileno(), 0o600)
            assert os.fstat(file.fileno()).st_size == 3
        assert os.listdir(here) == []
        here.rmdir()

    def test_a_file_is_written_whose_directory_is_gone(self, here: Path) -> None:
        (here / "gone").mkdir()
        with (here / "gone/f").open("w+b", buffering=0) as file:
            shutil.rmtree(here / "gone")
            file.write(b"written")
            assert os.pread(file.fileno(), 100, 0) == b"written"
            file.truncate(3)
            assert os.pread(file.fileno(), 100, 0) == b"wri"
            # The kernel asks for these by path.
            assert errno_from(lambda: os.fstat(file.fileno())) == errno.ESTALE
            assert errno_from(lambda: os.fchmod(file.fileno(), 0o600)) == errno.ESTALE

    def test_a_published_file_that_is_unlinked_while_open(self, here: Path) -> None:
        (here / "f").write_text("content")
        with (here / "f").open() as file:
            (here / "f").unlink()
            (here / "f").write_text("another")
            assert file.read() == "content"
            assert os.fstat(file.fileno()).st_size == 7
        assert (here / "f").read_text() == "another"
        assert os.listdir(here) == ["f"]

    def test_a_directory_that_is_removed_while_somebody_has_it_open(self, here: Path) -> None:
        (here / "gone").mkdir()
        (here / "gone/file").touch()
        opened = os.open(here / "gone", os.O_RDONLY)
        try:
            (here / "gone/file").unlink()
            (here / "gone").rmdir()
            with pytest.raises(OSError) as caught:
                os.unlink("file", dir_fd=opened)
            assert caught.value.errno == errno.ESTALE
        finally:
            os.close(opened)

    def test_rename_over_a_file_that_somebody_reads(self, here: Path) -> None:
        (here / "f").write_text("old")
        (here / "new").write_text("new")
        with (here / "f").open() as file:
            (here / "new").rename(here / "f")
            assert file.read() == "old"
        assert (here / "f").read_text() == "new"
        assert os.listdir(here) == ["f"]

    def test_rename_replaces(self, here: Path) -> None:
        (here / "f").write_text("old")
        (here / "new").write_text("new")
        (here / "new").rename(here / "f")
        assert (here / "f").read_text() == "new"
        (here / "d").mkdir()
        (here / "d" / "g").write_text("inside")
        (here / "d").rename(here / "e")
        assert (here / "e" / "g").read_text() == "inside"

    def test_renameat2(self, here: Path) -> None:
        (here / "a").write_text("a")
        (here / "b").write_text("b")
        assert rename_with(RENAME_NOREPLACE, here / "a", here / "b") == errno.EEXIST
        assert rename_with(RENAME_NOREPLACE, here / "a", here / "c") == 0
        assert sorted(os.listdir(here)) == ["b", "c"]
        assert rename_with(RENAME_EXCHANGE, here / "b", here / "c") == 0
        assert [(here / "b").read_text(), (here / "c").read_text()] == ["a", "b"]
        assert rename_with(RENAME_EXCHANGE, here / "b", here / "d") == errno.ENOENT

    def test_o_excl(self, here: Path) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        os.close(os.open(here / "f", flags))
        assert errno_from(lambda: os.open(here / "f", flags)) == errno.EEXIST

    def test_o_append(self, here: Path) -> None:
        with (here / "f").open("ab", buffering=0) as first, (here / "f").open("ab", buffering=0) as second:
            for file, data in ((first, b"1"), (second, b"2"), (first, b"3")):
                file.write(data)
        assert (here / "f").read_bytes() == b"123"

    def test_o_trunc(self, here: Path) -> None:
        (here / "f").write_text("long content")
        os.close(os.open(here / "f", os.O_WRONLY | os.O_TRUNC))
        assert (here / "f").stat().st_size == 0
        assert (here / "f").read_bytes() == b""

    def test_truncate_and_holes(self, here: Path) -> None:
        (here / "f").write_bytes(b"012345")
        os.truncate(here / "f", 3)
        assert (here / "f").read_bytes() == b"012"
        os.truncate(here / "f", 5)
        assert (here / "f").read_bytes() == b"012\0\0"
        with (here / "g").open("wb") as file:
            file.seek(1_000_000)
            file.write(b"end")
        assert (here / "g").stat().st_size == 1_000_003
        assert (here / "g").read_bytes() == bytes(1_000_000) + b"end"

    def test_a_large_file(self, here: Path) -> None:
        content = os.urandom(3_000_000)
        (here / "f").write_bytes(content)
        assert (here / "f").read_bytes() == content

    def test_mmap(self, here: Path) -> None:
        (here / "f").write_bytes(b"0123456789" * 1000)
        with (here / "f").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            assert view[9990:] == b"0123456789"
        with (here / "f").open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
            view[5000:5004] = b"EDIT"
        content = (here / "f").read_bytes()
        assert (len(content), content[4999:5005]) == (10_000, b"9EDIT4")

    def test_mmap_of_a_file_that_is_only_appended_to(self, here: Path) -> None:
        (here / "f").write_bytes(b"0123456789")
        descriptor = os.open(here / "f", os.O_RDWR | os.O_APPEND)
        try:
            with mmap.mmap(descriptor, 0) as view:
                # What is written back of it goes where it belongs, and no longer to the end.
                view[2:4] = b"ab"
                view.flush()
            os.write(descriptor, b"end")
        finally:
            os.close(descriptor)
        assert (here / "f").read_bytes() == b"01ab456789end"

    def test_locks(self, here: Path) -> None:
        with (here / "f").open("w") as first, (here / "f").open("w") as second:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert errno_from(lambda: fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)) == errno.EWOULDBLOCK
            fcntl.flock(first, fcntl.LOCK_UN)
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_fsync(self, mounted: Node, here: Path) -> None:
        before = mounted.entries(NAME)
        with (here / "f").open("wb", buffering=0) as file:
            file.write(b"synced")
            os.fsync(file.fileno())
            assert mounted.entries(NAME) == before + 1
        directory = os.open(here, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


@pytest.mark.fuse
class TestNames:
    def test_hard_links_are_counted(self, here: Path) -> None:
        (here / "a").write_text("one")
        (here / "b").hardlink_to(here / "a")
        (here / "c").hardlink_to(here / "b")
        assert [(here / name).stat().st_nlink for name in "abc"] == [3, 3, 3]
        (here / "c").write_text("two")
        assert (here / "a").read_text() == "two"
        (here / "a").unlink()
        assert [(here / name).stat().st_nlink for name in "bc"] == [2, 2]
        assert (here / "b").read_text() == "two"

    @pytest.mark.parametrize("size", [1, 4000, 4095])
    def test_symbolic_links(self, here: Path, size: int) -> None:
        (here / "l").symlink_to("x" * size)
        assert os.readlink(here / "l") == "x" * size
        assert (here / "l").lstat().st_size == size

    def test_any_byte_may_be_in_a_name(self, here: Path) -> None:
        names = {b"new\nline", b"\xff\xfe\x80", b" ", b"-rf", "ñandú".encode(), bytes(range(1, 47)), b"\\040"}
        top = os.fsencode(here)
        for name in names:
            Path(os.fsdecode(top + b"/" + name)).write_bytes(name)
        assert set(os.listdir(top)) == names
        for name in names:
            assert Path(os.fsdecode(top + b"/" + name)).read_bytes() == name

    def test_names_have_up_to_255_bytes(self, here: Path) -> None:
        (here / ("n" * 255)).write_text("long")
        assert os.listdir(here) == ["n" * 255]
        long = here / ("n" * 256)
        for call in (
            lambda: long.write_text(""),
            long.mkdir,
            lambda: long.symlink_to("x"),
            lambda: (here / ("n" * 255)).rename(long),
            lambda: long.hardlink_to(here / ("n" * 255)),
        ):
            assert errno_from(call) == errno.ENAMETOOLONG
        assert os.listdir(here) == ["n" * 255]

    def test_errors(self, here: Path) -> None:
        (here / "d").mkdir()
        (here / "d" / "f").write_text("x")
        (here / "f").write_text("x")
        (here / "e").mkdir()
        expected = [
            (here / "d").rmdir, errno.ENOTEMPTY,
            (here / "f").rmdir, errno.ENOTDIR,
            (here / "d").unlink, errno.EISDIR,
            (here / "d").mkdir, errno.EEXIST,
            (here / "nothing").unlink, errno.ENOENT,
            lambda: (here / "d").write_text(""), errno.EISDIR,
            lambda: (here / "f" / "x").write_text(""), errno.ENOTDIR,
            lambda: (here / "nothing" / "x").write_text(""), errno.ENOENT,
            lambda: (here / "f").rename(here / "d"), errno.EISDIR,
            lambda: (here / "d").rename(here / "f"), errno.ENOTDIR,
            lambda: (here / "e").rename(here / "d"), errno.ENOTEMPTY,
            lambda: (here / "d").rename(here / "d" / "x"), errno.EINVAL,
            lambda: (here / "x").hardlink_to(here / "d"), errno.EPERM,
            lambda: (here / "f").symlink_to("x"), errno.EEXIST,
            lambda: os.mkfifo(here / "fifo"), errno.EPERM,
            lambda: os.setxattr(here / "f", "user.x", b""), errno.ENOTSUP,
            lambda: (here / ".fuse_hidden01").write_text("x"), errno.EPERM,
        ]  # fmt: skip
        for call, number in zip(expected[::2], expected[1::2], strict=True):
            assert errno_from(call) == number  # type: ignore[arg-type]

    def test_a_listing_tells_types_without_stat(self, here: Path) -> None:
        (here / "d").mkdir()
        (here / "f").touch()
        (here / "l").symlink_to("f")
        with os.scandir(here) as found:
            types = {e.name: (e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False)) for e in found}
        assert types == {"d": (True, False), "f": (False, True), "l": (False, False)}

    def test_many_names_in_one_directory(self, here: Path) -> None:
        for number in range(1000):
            (here / f"{number:04}-{'n' * 100}").touch()
        assert len(set(os.listdir(here))) == 1000
        shutil.rmtree(here)


@pytest.mark.fuse
class TestAttributes:
    def test_modes(self, here: Path) -> None:
        (here / "f").touch()
        for mode in (0o600, 0o777, 0o4755, 0o2755, 0o000):
            (here / "f").chmod(mode)
            assert stat.S_IMODE((here / "f").stat().st_mode) == mode & 0o777
        (here / "d").mkdir(mode=0o700)
        assert stat.S_IMODE((here / "d").stat().st_mode) == 0o700

    def test_the_umask_counts(self, here: Path) -> None:
        before = os.umask(0o077)
        try:
            (here / "f").touch()
            (here / "d").mkdir()
        finally:
            os.umask(before)
        assert [stat.S_IMODE((here / name).stat().st_mode) for name in "fd"] == [0o600, 0o700]

    def test_times(self, here: Path) -> None:
        (here / "f").touch()
        (here / "d").mkdir()
        for name in "fd":
            for time in (-1, 1_234_567_890_999_999_999):
                os.utime(here / name, ns=(5, time))
                assert (here / name).stat().st_mtime_ns == time
            assert (here / name).stat().st_atime_ns == 5
        (here / "d" / "x").touch()
        assert (here / "d").stat().st_mtime > 1_500_000_000

    def test_chown(self, here: Path) -> None:
        (here / "f").touch()
        os.chown(here / "f", NOBODY, -1)
        os.chown(here / "f", -1, NOBODY)
        assert owner_of(here / "f") == (NOBODY, NOBODY)
        assert as_nobody(lambda: os.chown(here / "f", 0, -1)) == errno.EPERM
        os.chown(here / "f", os.getuid(), os.getgid())
        assert owner_of(here / "f") == (os.getuid(), os.getgid())

    def test_what_another_user_makes_is_never_shown_as_roots(self, here: Path, mounted: Node) -> None:
        here.chmod(0o777)
        assert as_nobody(lambda: (here / "file").write_text("* * * * * root id")) == 0
        assert as_nobody((here / "directory").mkdir) == 0
        assert as_nobody(lambda: (here / "link").symlink_to("file")) == 0
        assert as_nobody(lambda: (here / "hard").hardlink_to(here / "file")) == 0
        assert as_nobody(lambda: os.mknod(here / "node")) == 0
        names = ("file", "directory", "link", "hard", "node")
        assert {owner_of(here / name) for name in names} == {(NOBODY, NOBODY)}
        # What is in the log is the same.
        mounted.settle(NAME)
        assert {owner_of(here / name) for name in names} == {(NOBODY, NOBODY)}
        # Its maker can go on with it, and root's own things stay root's where others may write.
        assert as_nobody(lambda: (here / "file").chmod(0o600)) == 0
        (here / "shared").touch()
        (here / "shared").chmod(0o666)
        assert as_nobody(lambda: (here / "shared").write_text("x")) == 0
        assert owner_of(here / "shared") == (0, 0)

    def test_a_link_of_another_key_opens_no_file_to_local_users(self, here: Path, mounted: Node, scratch: Path) -> None:
        """A key holder of `web` signs a link to a file of root with a mode of its own, which no program of ours does.

        A local user then writes to that name, and the key of this node signs what it writes.
        """
        (here / "sudoers.d").mkdir(0o700)
        admin = here / "sudoers.d" / "admin"
        admin.write_text("root ALL=(ALL) ALL\n")
        admin.chmod(0o440)
        (here / "web").mkdir()
        mounted.settle(NAME)
        top = here.relative_to(mounted.mountpoint)
        names = tuple(map(os.fsencode, top.parts))
        mounted.basefs("grant", f"{NAME}:/{top}/web", "alice", ALICE.public.hex())
        mounted.basefs("export", NAME, scratch / "archive")
        with Node.temporary(scratch / "alice") as alice:
            alice.base.mkdir()
            alice.basefs("import", NAME, scratch / "archive")
            with contextlib.closing(Replica(alice.home / "fs" / NAME, [ALICE])) as copy:
                web, secret = copy.attributes((*names, b"web")), copy.attributes((*names, b"sudoers.d", b"admin"))
                assert secret.origin is not None
                link = ALICE.sign(web.entry, 1, Action.LINK, b"x", bytes(secret.origin))
                mode = ALICE.sign(link.hash, 1, Action.MODE, b"x", encode_mode(0o666, None))
        before = mounted.query("log", f"{NAME}:/{top}/sudoers.d/admin")
        client = FilesystemClient(Home(mounted.home), NAME)
        assert client.ask_daemon(AddToLog([link.encode(), mode.encode()], [])).accepted == 2
        wait_until((here / "web" / "x").exists, "the link is here")
        assert stat.S_IMODE((here / "web" / "x").stat().st_mode) == 0o666
        assert as_nobody(admin.read_text) == errno.EACCES
        assert as_nobody(lambda: (here / "web" / "x").write_text("mallory ALL=(ALL) NOPASSWD: ALL\n")) == 0
        (here / "web" / "x").chmod(0o646)
        mounted.settle(NAME)
        assert (here / "web" / "x").read_text().startswith("mallory")
        assert admin.read_text() == "root ALL=(ALL) ALL\n"
        assert (stat.S_IMODE(admin.stat().st_mode), admin.stat().st_nlink) == (0o440, 1)
        assert mounted.query("log", f"{NAME}:/{top}/sudoers.d/admin") == before

    def test_statfs(self, here: Path, mounted: Node) -> None:
        space = os.statvfs(here)
        assert space.f_namemax == 255
        assert space.f_blocks * space.f_frsize == _size_of_disk(mounted.home)
        assert 0 < space.f_bavail <= space.f_blocks
        assert space.f_flag & os.ST_NOSUID
        assert space.f_flag & os.ST_NODEV

    def test_other_users_read_and_do_not_write(self, here: Path) -> None:
        (here / "f").write_text("public")
        (here / "secret").write_text("secret")
        (here / "secret").chmod(0o600)
        assert as_nobody(lambda: os.listdir(here)) == 0
        assert as_nobody((here / "f").read_text) == 0
        assert as_nobody((here / "secret").read_text) == errno.EACCES
        assert as_nobody(lambda: (here / "f").write_text("changed")) == errno.EACCES
        assert as_nobody((here / "f").unlink) == errno.EACCES
        assert as_nobody((here / "new").touch) == errno.EACCES
        assert as_nobody(lambda: (here / "f").chmod(0o777)) == errno.EPERM
        (here / "f").chmod(0o666)
        assert as_nobody(lambda: (here / "f").write_text("changed")) == 0
        assert (here / "f").read_text() == "changed"


def owner_of(path: Path) -> tuple[int, int]:
    """User and group id."""
    status = path.lstat()
    return status.st_uid, status.st_gid


def _size_of_disk(path: Path) -> int:
    space = os.statvfs(path)
    return space.f_blocks * space.f_frsize


@pytest.mark.fuse
class TestSystemConfiguration:
    """The /etc of this machine, with the owners, modes and links that it has."""

    @pytest.fixture
    def archive(self, scratch: Path) -> Path:
        run("tar", "-C", "/", "-cf", scratch / "etc.tar", "etc")
        return scratch / "etc.tar"

    @pytest.mark.parametrize("tool", ["cp", "rsync", "tar"])
    def test_a_copy_of_etc_ends_with_success_and_has_its_owners(self, here: Path, archive: Path, tool: str) -> None:
        commands: dict[str, tuple[str | Path, ...]] = {
            "cp": ("cp", "-a", "/etc", here),
            "rsync": ("rsync", "-a", "/etc", here),
            "tar": ("tar", "-C", here, "-xpf", archive),
        }
        run(*commands[tool])
        found = {path: owner_of(here / path.relative_to("/")) for path in Path("/etc").rglob("*")}
        assert found == {path: owner_of(path) for path in Path("/etc").rglob("*")}


@pytest.mark.fuse
class TestRemount:
    def test_what_is_kept(self, node: Node, source: Path) -> None:
        point = node.mount(NAME)
        run("cp", "-a", f"{source}/.", point / "tree")
        os.chown(point / "tree" / "main.conf", NOBODY, NOBODY)
        os.chown(point / "tree" / "conf.d", -1, NOBODY)
        os.chown(point / "tree" / "link", NOBODY, -1, follow_symlinks=False)
        before = snapshot(point)
        owners = {path: (path.lstat().st_uid, path.lstat().st_gid) for path in point.rglob("*")}
        assert owners[point / "tree" / "main.conf"] == owners[point / "tree" / "hard"] == (NOBODY, NOBODY)
        assert owners[point / "tree" / "conf.d"] == (os.getuid(), NOBODY)
        assert owners[point / "tree" / "link"] == (NOBODY, os.getgid())
        node.basefs("unmount", NAME)
        assert os.listdir(point) == []
        node.mount(NAME, "--owners")
        assert snapshot(point) == before
        assert {path: (path.lstat().st_uid, path.lstat().st_gid) for path in point.rglob("*")} == owners
        node.basefs("unmount", NAME)
        node.mount(NAME, "--uid", "5", "--gid", "6", "--no-owners")
        assert {(path.lstat().st_uid, path.lstat().st_gid) for path in point.rglob("*")} == {(5, 6)}
        assert errno_from(lambda: os.chown(point / "tree", NOBODY, -1)) == errno.EPERM
        assert errno_from(lambda: os.chown(point / "tree", -1, NOBODY)) == errno.EPERM

    def test_names_that_are_never_published_can_be_more(self, node: Node) -> None:
        point = node.mount(NAME)
        (point / "old.lock").write_text("published before")
        node.settle(NAME)
        node.basefs("unmount", NAME)
        (node.home / "config").write_text("[basefs]\nnever_publish = *.lock\n")
        assert "contains '/'" in node.spawn("mount", NAME, point, "-s", "--never-publish", "a/b").stderr
        node.mount(NAME, "--never-publish", "cache-*", "--never-publish", "*.pid")
        for name in ("x.lock", "cache-1", "x.pid", "kept", "old.lock"):
            (point / name).write_text("x")
        (point / "d.lock").mkdir()
        (point / "d.lock" / "f").write_text("x")
        node.settle(NAME)
        shown = {row["path"] for row in node.query("show", "-l", NAME)}
        assert shown == {"/", "/.cluster", "/kept", "/old.lock"}
        # What others have already goes on being published.
        assert node.basefs("cat", f"{NAME}:/old.lock") == "x"
        assert "never leaves this node" in node.spawn("log", f"{NAME}:/cache-1").stderr
        # They stay over a restart, and are published once nothing says otherwise.
        node.basefs("unmount", NAME)
        (node.home / "config").unlink()
        node.mount(NAME)
        assert (point / "d.lock" / "f").read_text() == "x"
        node.settle(NAME)
        assert {"/x.lock", "/d.lock/f", "/cache-1", "/x.pid"} < {row["path"] for row in node.query("show", "-l", NAME)}

    def test_the_addresses_of_the_nodes_survive_what_mirrors_a_directory(
        self, node: Node, source: Path, tmp_path: Path
    ) -> None:
        root = node.mount(NAME, "--owners")
        addresses = root / ".cluster"
        addresses.write_text("10.0.0.1:18374\n")
        (root / "old").write_text("x")
        subprocess.run(["rsync", "-a", "--delete", f"{source}/", f"{root}/"], check=True)
        assert not (root / "old").exists() and addresses.read_text() == "10.0.0.1:18374\n"
        assert {path.name for path in root.iterdir()} == {path.name for path in source.iterdir()}
        # Nor do copies and repositories take it along.
        subprocess.run(["cp", "-a", f"{root}/.", tmp_path / "copy"], check=True)
        assert not (tmp_path / "copy" / ".cluster").exists()
        subprocess.run(["git", "init", "-q", root], check=True)
        asked = ["git", "-C", root, "status", "--porcelain", "--untracked-files=all"]
        said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        assert ".cluster" not in said and said
        subprocess.run(["git", "-C", root, "clean", "-fdxq"], check=True)
        subprocess.run(f"rm -rf {root}/* {root}/.git", shell=True, check=True)
        assert os.listdir(root) == [] and addresses.read_text() == "10.0.0.1:18374\n"
        # Whoever names it means it.
        addresses.unlink()
        assert not addresses.exists()

    def test_read_only(self, node: Node) -> None:
        point = node.mount(NAME, "-o", "ro")
        assert os.listdir(point) == []
        assert errno_from(lambda: (point / "f").write_text("x")) == errno.EROFS
        assert errno_from((point / ".cluster").unlink) == errno.EROFS

    def test_links_that_nobody_follows(self, node: Node) -> None:
        point = node.mount(NAME, "-o", "nosymfollow,noexec")
        options = run("findmnt", "-n", "-o", "VFS-OPTIONS", point).strip().split(",")
        assert {"nosymfollow", "noexec", "nosuid", "nodev", "rw"} <= set(options)
        (point / "d").mkdir()
        (point / "d" / "f").write_text("x")
        (point / "out").symlink_to("/etc")
        (point / "passwd").symlink_to("/etc/passwd")
        (point / "within").symlink_to("d/f")
        for call in ((point / "out" / "passwd").read_text, (point / "passwd").read_text, (point / "within").read_text):
            assert errno_from(call) == errno.ELOOP
        assert errno_from(lambda: os.listdir(point / "out")) == errno.ELOOP
        assert os.readlink(point / "out") == "/etc" and (point / "d" / "f").read_text() == "x"
        # Also once more, after another mount: the option is of the mount, not of the tree.
        node.basefs("unmount", NAME)
        node.mount(NAME)
        assert (point / "within").read_text() == "x" and (point / "out" / "passwd").exists()

    def test_a_killed_daemon(self, node: Node) -> None:
        point = node.mount(NAME)
        (point / "closed").write_text("safe")
        (point / "replaced").write_text("old")
        (point / "replaced").write_text("new")
        duplicate = os.open(point / "open", os.O_CREAT | os.O_WRONLY)
        os.write(duplicate, b"half")
        os.close(os.dup(duplicate))
        os.write(duplicate, b" lost")
        node.kill(NAME)
        with contextlib.suppress(OSError):
            os.close(duplicate)
        for call in (
            lambda: os.listdir(point),
            lambda: point.stat(),
            lambda: (point / "closed").read_text(),
            lambda: (point / "nothing").stat(),
            lambda: (point / "new").write_text("x"),
        ):
            assert errno_from(call) == errno.ENOTCONN
        assert node.mount(NAME) == point
        assert mount_points(node.base) == [point]
        assert sorted(os.listdir(point)) == ["closed", "open", "replaced"]
        contents = [(point / name).read_text() for name in ("closed", "open", "replaced")]
        assert contents == ["safe", "half", "new"]

    def test_a_key_that_may_write_in_one_place(self, node: Node) -> None:
        point = node.mount(NAME)
        (point / "mine").mkdir()
        (point / "mine" / "f").write_text("x")
        (point / "theirs").write_text("x")
        (point / "empty").mkdir()
        node.basefs("genkey", node.base / "guest")
        node.basefs("grant", f"{NAME}:/mine", "guest", node.base / "guest.pub")
        node.basefs("unmount", NAME)
        node.mount(NAME, "-k", node.base / "guest")
        writable = {path: bool(path.stat().st_mode & 0o222) for path in [point, *point.rglob("*")]}
        assert {path for path, allowed in writable.items() if allowed} == {point / "mine", point / "mine" / "f"}
        for call in (
            lambda: os.open(point / "theirs", os.O_WRONLY),
            lambda: os.open(point / "theirs", os.O_RDWR | os.O_TRUNC),
            lambda: os.open(point / "new", os.O_CREAT | os.O_WRONLY),
            (point / "theirs").unlink,
            (point / "empty").rmdir,
            (point / "new").mkdir,
            lambda: (point / "new").symlink_to("x"),
            lambda: (point / "theirs").rename(point / "mine" / "stolen"),
            lambda: (point / "mine" / "f").rename(point / "moved"),
            lambda: (point / "theirs").chmod(0o600),
        ):
            assert errno_from(call) == errno.EACCES
        assert (point / "theirs").read_text() == "x"
        (point / "mine" / "f").write_text("changed")
        (point / "mine" / "new").write_text("new")
        (point / "mine" / "new").rename(point / "mine" / "newer")
        (point / "mine" / "d").mkdir()
        assert sorted(os.listdir(point / "mine")) == ["d", "f", "newer"]
        assert (point / "mine" / "f").read_text() == "changed"
