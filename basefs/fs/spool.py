"""Spools: the bytes of files that are being written here (design, section 5).

A small file stays in memory until it is closed, a larger one is a sparse file on disk, so that what applications
write never fills the memory.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from basefs.errors import NoSpace, StoreError, TooLarge
from basefs.log.content import BytesContent, Content, FileContent
from basefs.log.contents import MAX_CONTENT_BYTES

#: Largest content kept in memory, and in the journal once it is closed, bytes.  Most configuration files are smaller,
#: and a file on disk for each would slow a copy down; the journal gives its room back when all of it is published.
MEMORY_BYTES = 8 * 1024


def as_store_error(error: OSError, what: object) -> StoreError:
    """What a failed write of ours means to applications."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"no space left for {what}: free some, nothing that was closed is lost")
    return StoreError(f"cannot write {what}: {error.strerror}")


class Spool:
    """The content of one file that is being written."""

    __slots__ = ("_descriptor", "_memory", "_size", "path")

    def __init__(self, path: Path) -> None:
        """`path`: the file that holds it once it is large; it must not exist."""
        self.path = path
        self._descriptor = -1
        self._size = 0
        self._memory = bytearray()

    @classmethod
    def of(cls, path: Path, content: Content) -> Spool:
        """One that begins with a content.  Raises `NoSpace`, `StoreError`."""
        spool = cls(path)
        try:
            for piece in content.pieces():
                spool.write(piece, len(spool))
        except StoreError:
            spool.close()
            raise
        return spool

    @classmethod
    def reopen(cls, path: Path, size: int) -> Spool:
        """One that an earlier process left on disk.  Raises `StoreError`."""
        spool = cls(path)
        try:
            spool._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise as_store_error(error, path) from None
        spool._size = size
        return spool

    def __len__(self) -> int:
        return self._size

    @property
    def is_on_disk(self) -> bool:
        """Whether the bytes are in the file, not in memory."""
        return self._descriptor >= 0

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`.  Raises `StoreError`."""
        if self._descriptor < 0:
            return bytes(self._memory[offset : offset + size])
        wanted = min(size, self._size - offset)
        if wanted <= 0:
            return b""
        try:
            return os.pread(self._descriptor, wanted, offset)
        except OSError as error:
            raise as_store_error(error, self.path) from None

    def write(self, data: bytes, offset: int) -> None:
        """Replace or append bytes; a gap reads as zeros.  Raises `TooLarge`, `NoSpace`, `StoreError`."""
        end = offset + len(data)
        self._make_room(end)
        if self._descriptor < 0:
            memory = self._memory
            if offset > len(memory):
                memory.extend(bytes(offset - len(memory)))
            memory[offset:end] = data
        else:
            try:
                view = memoryview(data)
                while view:
                    written = os.pwrite(self._descriptor, view, offset)
                    view, offset = view[written:], offset + written
            except OSError as error:
                raise as_store_error(error, "this file") from None
        self._size = max(self._size, end)

    def truncate(self, length: int) -> None:
        """Cut, or extend with zeros.  Raises `TooLarge`, `NoSpace`, `StoreError`."""
        self._make_room(length)
        if self._descriptor < 0:
            if length < self._size:
                del self._memory[length:]
            else:
                self._memory.extend(bytes(length - self._size))
        else:
            try:
                os.ftruncate(self._descriptor, length)
            except OSError as error:
                raise as_store_error(error, "this file") from None
        self._size = length

    def _make_room(self, size: int) -> None:
        if size > MAX_CONTENT_BYTES:
            raise TooLarge(f"a file has up to {MAX_CONTENT_BYTES} bytes")
        if self._descriptor >= 0 or size <= MEMORY_BYTES:
            return
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.pwrite(self._descriptor, self._memory, 0)
        except OSError as error:
            self.close()
            self._descriptor = -1
            raise as_store_error(error, "this file") from None
        self._memory = bytearray()

    def content(self) -> Content:
        """All of it, for a reader who closes it; nobody may change the spool while a file of it is being read."""
        if self._descriptor < 0:
            return BytesContent(bytes(self._memory))
        return FileContent(os.dup(self._descriptor), self._size)

    def copy(self, path: Path) -> Spool:
        """The same bytes in another place.  Raises `NoSpace`, `StoreError`."""
        content = self.content()
        try:
            return Spool.of(path, content)
        finally:
            content.close()

    def sync(self) -> None:
        """Make the file, if there is one, survive a power cut.  Raises `StoreError`."""
        if self._descriptor >= 0:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise as_store_error(error, "this file") from None

    def close(self) -> None:
        """Forget the bytes, and remove the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self.path.unlink(missing_ok=True)
        self._memory = bytearray()
        self._size = 0
