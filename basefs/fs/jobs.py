"""Jobs: changes of the tree that the daemon has prepared, done by compare-and-swap (docs/fs.md).

The daemon decides what a path becomes and what must be there until then.  The mount server performs the job between
two requests of applications; without a mount the daemon does it itself.
"""

from __future__ import annotations

import os
import stat
from enum import Enum
from typing import NamedTuple

from basefs.fs.disk import Disk, FileAttributes, Found


class JobAction(Enum):
    """What a job does to a path."""

    #: Remove a file, a link, a special file or an empty directory.
    REMOVE = "remove"
    #: Make a directory with these attributes.
    MAKE_DIRECTORY = "mkdir"
    #: Give a directory this name, with all that is in it.
    MOVE = "move"
    #: Put what was prepared in `incoming` there, in place of what is there, if anything.
    PUT = "put"
    #: Set mode, owner, time and extended attributes of what is there.
    ATTRIBUTES = "attributes"


class Expected(NamedTuple):
    """What must be on the disk for a job to be done: fields of stat(2), times in nanoseconds.

    `size` and `mtime` are not compared for a directory.
    """

    mode: int
    inode: int
    size: int
    mtime: int
    uid: int
    gid: int


class TreeJob(NamedTuple):
    """One change of one path.

    Attributes:
        path: "/a/b", as the kernel writes it.
        action: what is done.
        expected: what must be there; `None` for nothing.  For `MOVE`: at `source`, and nothing at `path`.
        temporary: of `PUT`, a name in `incoming`, complete with its attributes.
        attributes: of `MAKE_DIRECTORY` and `ATTRIBUTES`.
        source: of `MOVE`, the path that the directory has.
    """

    path: bytes
    action: JobAction
    expected: Expected | None
    temporary: bytes = b""
    attributes: FileAttributes | None = None
    source: bytes = b""


class JobResult(NamedTuple):
    """Whether a job was done, what is at its path now (`None` for nothing), and why it was not done."""

    done: bool
    found: Found | None
    reason: str = ""


def expects(disk: Disk, job: TreeJob, found: Found | None) -> bool:
    """Whether a job may be done where its path is `found`."""
    if job.action is JobAction.MOVE:
        if found is not None:
            return False
        found = disk.look(job.source)
    expected = job.expected
    if found is None or expected is None:
        return found is None and expected is None
    if stat.S_ISDIR(found.mode):
        found = found._replace(size=expected.size, mtime=expected.mtime)
    return expected == (found.mode, found.inode, found.size, found.mtime, found.uid, found.gid)


def apply(disk: Disk, job: TreeJob) -> JobResult:
    """Do a job on the disk, if it expects what is there."""
    found = disk.look(job.path)
    if not expects(disk, job, found):
        return JobResult(False, found, "changed meanwhile")
    try:
        _perform(disk, job, found)
    except OSError as error:
        return JobResult(False, disk.look(job.path), error.strerror or str(error))
    return JobResult(True, disk.look(job.path))


def _perform(disk: Disk, job: TreeJob, found: Found | None) -> None:
    if job.action is JobAction.MOVE:
        disk.move(job.source, job.path)
        return
    above, name = disk.parent(job.path)
    if job.action is JobAction.REMOVE:
        assert found is not None
        if stat.S_ISDIR(found.mode):
            os.rmdir(name, dir_fd=above)
            disk.forget()
        else:
            os.unlink(name, dir_fd=above)
    elif job.action is JobAction.PUT:
        put = os.stat(job.temporary, dir_fd=disk.incoming, follow_symlinks=False)
        os.rename(job.temporary, name, src_dir_fd=disk.incoming, dst_dir_fd=above)
        if found is not None and found.inode == put.st_ino:
            # rename(2) does nothing between two names of one file.
            os.unlink(job.temporary, dir_fd=disk.incoming)
    else:
        assert job.attributes is not None
        if job.action is JobAction.MAKE_DIRECTORY:
            os.mkdir(name, 0o700, dir_fd=above)
        disk.set_attributes(above, name, job.attributes)
