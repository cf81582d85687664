"""Jobs: changes of the worktree that the daemon has prepared, done by compare-and-swap (docs/fs.md).

The daemon decides what a path is to become and what must be there until then.  Whoever serves the mount performs the
job between two requests of applications; without a mount the daemon does it itself.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Action(Enum):
    """What a job does to a path."""

    #: Remove a file, a link, a special file or an empty directory.
    REMOVE = "remove"
    #: Make a directory with these attributes.
    MAKE_DIRECTORY = "mkdir"
    #: Put what was prepared in `incoming` there, in place of what is there, if anything.
    PUT = "put"
    #: Set mode, owner and time of what is there.
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


class Attributes(NamedTuple):
    """What a path is to have: all twelve bits, ids of this machine, nanoseconds since 1970, and the complete set of
    `user.*` attributes (`None` to leave them).  `None` for the ids leaves the owner to the process."""

    mode: int
    owner: tuple[int, int] | None
    mtime: int
    xattrs: dict[bytes, bytes] | None = None


class Job(NamedTuple):
    """One change of one path.

    Attributes:
        path: "/a/b", as the kernel writes it.
        action: what is done.
        expected: what must be there; `None` for nothing.
        temporary: of `PUT`, a name in `incoming`, complete with its attributes.
        attributes: of `MAKE_DIRECTORY` and `ATTRIBUTES`.
        others: further names of the file that is there or comes, whose cached attributes become wrong.
    """

    path: bytes
    action: Action
    expected: Expected | None
    temporary: bytes = b""
    attributes: Attributes | None = None
    others: tuple[bytes, ...] = ()


class Found(NamedTuple):
    """What is at a path after a job: fields of stat(2), times in nanoseconds."""

    mode: int
    inode: int
    size: int
    mtime: int
    ctime: int
    uid: int
    gid: int
    links: int


class Result(NamedTuple):
    """Whether a job was done, what is at its path now (`None` for nothing), and why it was not done."""

    done: bool
    found: Found | None
    reason: str = ""
