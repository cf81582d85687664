"""Operations: paths, attributes and errors on their way between libfuse and the filesystem."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable

import pytest
from basefs.fs.fuse.operations import Operations, parse
from hypothesis import given
from hypothesis import strategies as st

from tests.fs.local import MOUNT_OWNER, Local

NAME = st.binary(min_size=1, max_size=255).filter(lambda name: not set(name) & set(b"/\0"))


@pytest.fixture
def operations(local: Local) -> Operations:
    return Operations(local.fs, lambda: None)


def errno_from(call: Callable[[], object]) -> int | None:
    """The errno with which a call fails."""
    with pytest.raises(OSError) as caught:
        call()
    return caught.value.errno


@given(st.lists(NAME))
def test_every_byte_of_a_path_survives(names: list[bytes]) -> None:
    # As mfusepy decodes what libfuse passes.
    text = (b"/" + b"/".join(names)).decode("utf-8", "surrogateescape")
    assert parse(text) == tuple(names)


def test_names_with_odd_bytes_are_made_listed_and_removed(operations: Operations) -> None:
    odd = b"\xff\xfe\n \t'\"\x7f\xc3"
    text = "/" + odd.decode("utf-8", "surrogateescape")
    operations.release(text, operations.create(text, 0o644))
    listed = [name for name, _, _ in operations.readdir("/", 0)]
    assert text[1:] in listed
    assert listed[:2] == [".", ".."]
    operations.unlink(text)
    assert errno_from(lambda: operations.getattr(text)) == errno.ENOENT


def test_the_targets_of_links_keep_their_bytes(operations: Operations) -> None:
    target = b"\xff/\n".decode("utf-8", "surrogateescape")
    operations.symlink("/l", target)
    assert operations.readlink("/l") == target


def test_attributes(operations: Operations) -> None:
    handle = operations.create("/f", 0o640)
    assert operations.write("/f", b"x" * 1000, 0, handle) == 1000
    operations.utimens("/f", (1, 2_000_000_000_999_999_999))
    operations.flush("/f", handle)
    operations.release("/f", handle)
    found = operations.getattr("/f")
    assert found["st_mode"] == stat.S_IFREG | 0o640
    assert (found["st_nlink"], found["st_size"], found["st_blocks"]) == (1, 1000, 2)
    assert (found["st_uid"], found["st_gid"]) == MOUNT_OWNER
    assert found["st_mtime"] == 2_000_000_000_999_999_999


def test_utimens_knows_now_and_omit(operations: Operations) -> None:
    now, omit = (1 << 30) - 1, (1 << 30) - 2
    operations.release("/f", operations.create("/f", 0o644))
    operations.utimens("/f", (0, 5 * 10**9))
    operations.utimens("/f", (now, omit))
    assert operations.getattr("/f")["st_mtime"] == 5 * 10**9
    operations.utimens("/f", (omit, now))
    assert operations.getattr("/f")["st_mtime"] > 10**18
    operations.utimens("/f", (0, 5 * 10**9))
    operations.utimens("/f", None)
    assert operations.getattr("/f")["st_mtime"] > 10**18


@pytest.mark.parametrize("unchanged", [-1, 2**32 - 1])
def test_chown_knows_the_two_ways_of_saying_unchanged(operations: Operations, unchanged: int) -> None:
    operations.release("/f", operations.create("/f", 0o644))
    operations.chown("/f", unchanged, unchanged)
    operations.chown("/f", MOUNT_OWNER[0], unchanged)
    assert errno_from(lambda: operations.chown("/f", 1, unchanged)) == errno.EPERM


def test_rename_flags(operations: Operations) -> None:
    for text in ("/a", "/b"):
        operations.release(text, operations.create(text, 0o644))
    assert errno_from(lambda: operations.rename("/a", "/b", 1)) == errno.EEXIST
    assert errno_from(lambda: operations.rename("/a", "/c", 2)) == errno.ENOENT
    operations.rename("/a", "/b", 2)
    operations.rename("/a", "/b", 0)


def test_statfs_tells_how_long_a_name_may_be(operations: Operations) -> None:
    assert operations.statfs("/")["f_namemax"] == 255
    assert operations.statfs("/")["f_blocks"] > 0


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda ops: ops.getattr("/nothing"), errno.ENOENT),
        (lambda ops: ops.open("/", os.O_RDONLY), errno.EISDIR),
        (lambda ops: ops.mkdir("/.cluster", 0o755), errno.EEXIST),
        (lambda ops: ops.readdir("/.cluster", 0), errno.ENOTDIR),
        (lambda ops: ops.rmdir("/.cluster"), errno.ENOTDIR),
        (lambda ops: ops.create("/" + "n" * 256, 0o644), errno.ENAMETOOLONG),
        (lambda ops: ops.setxattr("/.cluster", "user.x", b"", 0), errno.ENOTSUP),
    ],
)
def test_errors_become_their_errno(operations: Operations, call: Callable[[Operations], object], expected: int) -> None:
    assert errno_from(lambda: call(operations)) == expected


def test_a_bug_is_eio_with_its_traceback_in_the_log(operations: Operations, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert errno_from(lambda: operations.read("/f", 1, 0, 987)) == errno.EIO
    assert caplog.records[0].exc_info is not None


def test_the_daemon_hears_when_the_kernel_has_accepted_the_mount(local: Local) -> None:
    heard: list[str] = []
    Operations(local.fs, lambda: heard.append("ready")).init("/")
    assert heard == ["ready"]
