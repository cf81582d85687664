"""Reach: what lies in the mount, found without ever leaving it.

Whoever may write in the tree can put a symbolic link in place of a file or a directory at any moment, also while the
mirror, which may run as root, is about to change that path; and other filesystems may be mounted inside of this one.
So each name is opened inside of the directory above it, links are not followed, and what was reached must be of the
mount.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from basefs.path import Path


class Reach:
    """What lies in one mount, for a thread that may have a file table of its own.

    Its descriptors are of the kind that only refers to something (O_PATH, open(2)): the filesystem does not hear of
    them, but they keep the mount in use.
    """

    def __init__(self, mountpoint: bytes) -> None:
        """`mountpoint`: where the mount will be."""
        self._mountpoint = mountpoint
        self._mount = b""

    def begin(self) -> None:
        """The mount is there; before this nothing is reached.  Raises `OSError`."""
        root = self._open_root()
        try:
            self._mount = _mount_of(root)
        finally:
            os.close(root)

    @contextlib.contextmanager
    def directory(self, path: Path) -> Iterator[int]:
        """A descriptor of a directory, for `dir_fd`.

        Raises `OSError`: it is not there, it is no directory, or (EXDEV) it is not of this mount.
        """
        descriptor = self._open_root()
        try:
            for name in path:
                inner = _open(name, descriptor, os.O_DIRECTORY)
                os.close(descriptor)
                descriptor = inner
            self._check(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def entry(self, name: bytes, directory: int) -> Iterator[int]:
        """A descriptor of what is in a directory that was reached, a link itself.  Raises `OSError` as `directory`."""
        descriptor = _open(name, directory)
        try:
            self._check(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_root(self) -> int:
        # Links on the way to it are followed: who mounts has chosen them.
        return os.open(self._mountpoint, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _check(self, descriptor: int) -> None:
        if _mount_of(descriptor) != self._mount:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def path_of(descriptor: int) -> bytes:
    """A path of what a descriptor of the calling thread refers to, for calls that need one; a link is not followed."""
    return b"/proc/thread-self/fd/%d" % descriptor


def _open(name: bytes, directory: int, flags: int = 0) -> int:
    return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory)


def _mount_of(descriptor: int) -> bytes:
    """The number of the mount that a descriptor belongs to (proc_pid_fdinfo(5)), without asking its filesystem."""
    info = os.open(b"/proc/thread-self/fdinfo/%d" % descriptor, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return next(line for line in os.read(info, 4096).splitlines() if line.startswith(b"mnt_id:"))
    finally:
        os.close(info)
