"""What is prepared in HOME/NAME/incoming: whole files with their attributes, which enter the tree by rename."""

from __future__ import annotations

import itertools
import os
import stat

from basefs.fs.disk import Disk, FileAttributes
from basefs.log.content import BytesContent
from basefs.log.hashes import EntryHash, new_digest
from basefs.replica.replica import Replica
from basefs.view.states import Kind, State

_DEVICES = {Kind.FIFO: stat.S_IFIFO, Kind.CHARACTER: stat.S_IFCHR, Kind.BLOCK: stat.S_IFBLK}


class Incoming:
    """Makes files that are about to enter the tree."""

    def __init__(self, replica: Replica, disk: Disk) -> None:
        self._replica, self._disk = replica, disk
        self._numbers = itertools.count()
        self._is_root = os.geteuid() == 0
        # What a killed process has left.
        for left in os.listdir(disk.incoming):
            os.unlink(left, dir_fd=disk.incoming)

    def make(self, state: State, attributes: FileAttributes) -> tuple[bytes, bytes]:
        """Make what is no directory; returns its name here, and the digest of a file.

        Raises `OSError`, `StoreError`.
        """
        name, digest = b"%d" % next(self._numbers), b""
        if state.kind is Kind.FILE:
            assert state.content is not None
            return name, self._write(name, state.content, attributes)
        if state.kind is Kind.SYMLINK:
            os.symlink(state.target, name, dir_fd=self._disk.incoming)
        else:
            os.mknod(name, _DEVICES[state.kind] | 0o600, state.rdev, dir_fd=self._disk.incoming)
        self._disk.set_attributes(self._disk.incoming, name, attributes)
        return name, digest

    def _write(self, name: bytes, write: EntryHash, attributes: FileAttributes) -> bytes:
        content = self._replica.open_write(write)
        digest = new_digest()
        descriptor = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._disk.incoming
        )
        try:
            for piece in (content.whole(),) if isinstance(content, BytesContent) else content.pieces():
                digest.update(piece)
                _write_all(descriptor, piece)
            if self._is_root and not attributes.xattrs:
                # The same as below, in a quarter of the time.
                assert attributes.owner is not None
                if attributes.owner != (0, 0):
                    os.fchown(descriptor, *attributes.owner)
                os.fchmod(descriptor, attributes.mode)
                os.utime(descriptor, ns=(attributes.mtime, attributes.mtime))
        finally:
            os.close(descriptor)
            content.close()
        if not self._is_root or attributes.xattrs:
            self._disk.set_attributes(self._disk.incoming, name, attributes)
        return digest.digest()

    def link(self, path: bytes) -> bytes:
        """Make another name of what is at a path of the tree; returns it.  Raises `OSError`."""
        name = b"%d" % next(self._numbers)
        directory, old = self._disk.parent(path)
        os.link(old, name, src_dir_fd=directory, dst_dir_fd=self._disk.incoming, follow_symlinks=False)
        return name

    def again(self, name: bytes) -> bytes:
        """Make another name of what was made here; returns it.  Raises `OSError`."""
        other = b"%d" % next(self._numbers)
        os.link(name, other, src_dir_fd=self._disk.incoming, dst_dir_fd=self._disk.incoming, follow_symlinks=False)
        return other

    def drop(self, name: bytes) -> None:
        """Remove what did not enter the tree."""
        os.unlink(name, dir_fd=self._disk.incoming)


def _write_all(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]
