"""POSIX on a mount: what programs may expect of a disk."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fs.server.mounted import NOBODY, Mounted

pytestmark = [pytest.mark.fuse, pytest.mark.root]
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4


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


def owner_of(path: Path) -> tuple[int, int]:
    """User and group id."""
    status = path.lstat()
    return status.st_uid, status.st_gid


class TestFiles:
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
            os.fchmod(file.fileno(), 0o600)
            status = os.fstat(file.fileno())
            assert (status.st_size, status.st_nlink, stat.S_IMODE(status.st_mode)) == (3, 0, 0o600)

    def test_another_file_takes_the_name_of_an_unlinked_one(self, here: Path) -> None:
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
        (here / "d").mkdir()
        (here / "d" / "f").write_text("f")
        assert rename_with(RENAME_EXCHANGE, here / "b", here / "d") == 0
        assert [(here / "b" / "f").read_text(), (here / "d").read_text()] == ["f", "a"]
        assert rename_with(RENAME_WHITEOUT, here / "d", here / "e") == 0
        assert stat.S_ISCHR((here / "d").stat().st_mode) and (here / "e").read_text() == "a"

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


class TestNames:
    def test_a_directory_is_read_in_parts_while_others_remove_names_and_list_it(self, here: Path) -> None:
        for number in range(3000):
            (here / f"a-file-with-a-long-name-{number:05}").touch()
        names = os.listdir(here)
        with os.scandir(here) as reader:
            seen = {next(reader).name}
            for name in names[:500]:
                (here / name).unlink()
            assert sorted(os.listdir(here)) == sorted(names[500:])
            seen.update(entry.name for entry in reader)
        assert set(names[500:]) <= seen

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

    def test_a_name_that_nobody_has_looked_up_is_of_the_open_file(self, here: Path, shared: Mounted) -> None:
        (here / "a").write_text("one")
        os.link(shared.tree / here.name / "a", shared.tree / here.name / "b")
        with (here / "a").open("r+b", buffering=0) as file:
            (here / "a").unlink()
            assert (here / "b").read_text() == "one"
            file.write(b"two")
            assert (here / "b").read_text() == "two"
            assert os.path.sameopenfile(file.fileno(), os.open(here / "b", os.O_PATH))

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


class TestAttributes:
    def test_modes(self, here: Path) -> None:
        (here / "f").touch()
        for mode in (0o600, 0o777, 0o4755, 0o2755, 0o000):
            (here / "f").chmod(mode)
            assert stat.S_IMODE((here / "f").stat().st_mode) == mode
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
            # From 1901 to 2446, as ext4.
            for time in (-1, 1_234_567_890_999_999_999, -(2**31) * 10**9, 15_000_000_000 * 10**9 + 1):
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

    def test_what_another_user_makes_is_never_shown_as_roots(self, here: Path) -> None:
        here.chmod(0o777)
        assert as_nobody(lambda: (here / "file").write_text("* * * * * root id")) == 0
        assert as_nobody((here / "directory").mkdir) == 0
        assert as_nobody(lambda: (here / "link").symlink_to("file")) == 0
        assert as_nobody(lambda: (here / "hard").hardlink_to(here / "file")) == 0
        assert as_nobody(lambda: os.mknod(here / "node")) == 0
        names = ("file", "directory", "link", "hard", "node")
        assert {owner_of(here / name) for name in names} == {(NOBODY, NOBODY)}
        # Its maker can go on with it, and root's own things stay root's where others may write.
        assert as_nobody(lambda: (here / "file").chmod(0o600)) == 0
        (here / "shared").touch()
        (here / "shared").chmod(0o666)
        assert as_nobody(lambda: (here / "shared").write_text("x")) == 0
        assert owner_of(here / "shared") == (0, 0)

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

    def test_ids_have_32_bits(self, here: Path) -> None:
        (here / "f").touch()
        os.chown(here / "f", 2**32 - 2, 2**31)
        assert owner_of(here / "f") == (2**32 - 2, 2**31)

    def test_a_directory_hands_its_group_on(self, here: Path) -> None:
        (here / "d").mkdir()
        os.chown(here / "d", NOBODY, 7)
        (here / "d").chmod(0o2777)
        (here / "d" / "root").touch()
        assert as_nobody((here / "d" / "f").touch) == 0
        assert as_nobody((here / "d" / "e").mkdir) == 0
        assert [owner_of(here / "d" / name) for name in ("root", "f", "e")] == [(0, 7), (NOBODY, 7), (NOBODY, 7)]
        assert (here / "d" / "e").stat().st_mode & stat.S_ISGID

    def test_what_a_write_and_a_new_owner_clear(self, here: Path) -> None:
        for name in "fgh":
            (here / name).touch()
            (here / name).chmod(0o6777)
        with (here / "f").open("w") as file:
            file.write("by root")
        assert stat.S_IMODE((here / "f").stat().st_mode) == 0o6777
        assert as_nobody(lambda: (here / "f").open("a").write("x")) == 0
        assert stat.S_IMODE((here / "f").stat().st_mode) == 0o777
        assert as_nobody(lambda: os.truncate(here / "g", 0)) == 0
        assert stat.S_IMODE((here / "g").stat().st_mode) == 0o777
        os.chown(here / "h", NOBODY, NOBODY)
        assert stat.S_IMODE((here / "h").stat().st_mode) == 0o777

    def test_only_owners_remove_from_a_sticky_directory(self, here: Path) -> None:
        here.chmod(0o1777)
        (here / "f").touch()
        assert as_nobody((here / "f").unlink) == errno.EPERM
        assert as_nobody((here / "g").touch) == 0
        assert as_nobody((here / "g").unlink) == 0

    def test_extended_attributes(self, here: Path) -> None:
        (here / "f").touch()
        os.setxattr(here / "f", "user.x", b"\xff\0")
        os.setxattr(here / "f", "trusted.y", b"t")
        (here / "g").hardlink_to(here / "f")
        assert os.getxattr(here / "g", "user.x") == b"\xff\0"
        assert sorted(os.listxattr(here / "g")) == ["trusted.y", "user.x"]
        assert errno_from(lambda: os.setxattr(here / "f", "user.x", b"", os.XATTR_CREATE)) == errno.EEXIST
        assert errno_from(lambda: os.setxattr(here / "f", "user.basefs.x", b"")) == errno.EPERM
        os.removexattr(here / "f", "user.x")
        assert os.listxattr(here / "g") == ["trusted.y"]
        assert errno_from(lambda: os.getxattr(here / "f", "user.x")) == errno.ENODATA

    def test_access_control_lists(self, here: Path) -> None:
        (here / "f").write_text("x")
        (here / "f").chmod(0o600)
        assert as_nobody((here / "f").read_text) == errno.EACCES
        entries = (
            (0x01, 6, 0xFFFFFFFF),
            (0x02, 4, NOBODY),
            (0x04, 0, 0xFFFFFFFF),
            (0x10, 4, 0xFFFFFFFF),
            (0x20, 0, 0xFFFFFFFF),
        )
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
        os.setxattr(here / "f", "system.posix_acl_access", acl)
        assert as_nobody((here / "f").read_text) == 0
        assert as_nobody(lambda: (here / "f").write_text("y")) == errno.EACCES
        # The mask stands where the group's bits were, and a change of the mode is a change of it.
        assert stat.S_IMODE((here / "f").stat().st_mode) == 0o640
        (here / "f").chmod(0o600)
        assert as_nobody((here / "f").read_text) == errno.EACCES
        os.setxattr(here, "system.posix_acl_default", acl)
        before = os.umask(0o077)
        (here / "g").touch()
        os.umask(before)
        assert stat.S_IMODE((here / "g").stat().st_mode) == 0o640


class TestKinds:
    def test_fifos_sockets_and_devices(self, here: Path) -> None:
        os.mkfifo(here / "fifo", 0o640)
        with socket.socket(socket.AF_UNIX) as server:
            before = Path.cwd()
            os.chdir(here)
            try:
                server.bind("socket")
            finally:
                os.chdir(before)
        device = os.makedev(0xABC, 0x12345)
        os.mknod(here / "device", stat.S_IFBLK | 0o600, device)
        assert stat.S_ISFIFO((here / "fifo").stat().st_mode) and stat.S_ISSOCK((here / "socket").stat().st_mode)
        assert stat.S_ISBLK((here / "device").stat().st_mode) and (here / "device").stat().st_rdev == device
        reader = os.open(here / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(here / "fifo", os.O_WRONLY)
        os.write(writer, b"x")
        assert os.read(reader, 9) == b"x"
        os.close(reader)
        os.close(writer)

    def test_a_file_without_a_name(self, here: Path) -> None:
        found = os.open(here, os.O_TMPFILE | os.O_RDWR, 0o640)
        try:
            os.write(found, b"content")
            assert (os.fstat(found).st_nlink, os.fstat(found).st_size, os.listdir(here)) == (0, 7, [])
            # Python follows the link only if there is a directory; the path is absolute.
            os.link(f"/proc/self/fd/{found}", here / "f", src_dir_fd=found, follow_symlinks=True)
            os.write(found, b", more")
        finally:
            os.close(found)
        assert (here / "f").read_text() == "content, more"
        assert stat.S_IMODE((here / "f").stat().st_mode) == 0o640 & ~0o022

    def test_space_holes_and_ranges(self, here: Path) -> None:
        with (here / "f").open("w+b", buffering=0) as file, (here / "g").open("w+b", buffering=0) as other:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
            assert os.fstat(file.fileno()).st_size == 1 << 20
            other.truncate(1 << 21)
            os.pwrite(other.fileno(), b"x" * 4096, 1 << 20)
            assert os.lseek(other.fileno(), 0, os.SEEK_DATA) == 1 << 20
            assert os.lseek(other.fileno(), 1 << 20, os.SEEK_HOLE) == (1 << 20) + 4096
            copied = os.copy_file_range(other.fileno(), file.fileno(), 4096, offset_src=1 << 20, offset_dst=8192)
            assert os.pread(file.fileno(), copied, 8192) == b"x" * copied and copied

    def test_paths_of_4096_bytes(self, here: Path, shared: Mounted) -> None:
        """Absolute paths end earlier, at the length of the path to the mount."""
        name = "n" * 200
        depth = 4096 - len(os.fsencode(here.relative_to(shared.point))) - 1
        before = Path.cwd()
        os.chdir(here)
        try:
            while depth > len(name) + 1 + 10:
                os.mkdir(name)
                os.chdir(name)
                depth -= len(name) + 1
            last = "x" * (depth - 1)
            assert errno_from(lambda: os.mkdir(last + "x")) == errno.ENAMETOOLONG
            os.mkdir(last)
            Path("f").write_text("deep")
            assert Path("f").read_text() == "deep"
        finally:
            os.chdir(before)
