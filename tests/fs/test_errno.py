"""errno: every error of ours has one."""

from __future__ import annotations

import errno

import pytest
from basefs.fs.fuse.errno import ERRNO, errno_of

from basefs import errors
from tests.support.errors import ALL


def test_the_table_lists_every_class_and_no_other() -> None:
    assert set(ERRNO) == set(ALL)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_each_number_is_an_errno_of_this_system(cls: type[errors.BaseFSError]) -> None:
    assert ERRNO[cls] in errno.errorcode


def test_an_error_that_the_table_does_not_know_has_that_of_its_parent() -> None:
    class Odd(errors.NotEmpty):
        pass

    assert errno_of(Odd("odd")) == errno.ENOTEMPTY


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (errors.NotFound, errno.ENOENT),
        (errors.Exists, errno.EEXIST),
        (errors.NotADirectory, errno.ENOTDIR),
        (errors.IsADirectory, errno.EISDIR),
        (errors.NotEmpty, errno.ENOTEMPTY),
        (errors.InvalidName, errno.EINVAL),
        (errors.NameTooLong, errno.ENAMETOOLONG),
        (errors.PermissionDenied, errno.EACCES),
        (errors.NotPermitted, errno.EPERM),
        (errors.TooLarge, errno.EFBIG),
        (errors.ReadOnly, errno.EROFS),
        (errors.NoSpace, errno.ENOSPC),
        (errors.DamagedLog, errno.EIO),
        (errors.UnreadableContent, errno.EIO),
    ],
)
def test_what_applications_rely_on(cls: type[errors.BaseFSError], expected: int) -> None:
    assert errno_of(cls("message")) == expected


def test_every_line_of_the_tree_in_the_documentation_is_a_class() -> None:
    assert errors.__doc__ is not None
    for cls in ALL:
        assert f" {cls.__name__}" in errors.__doc__
