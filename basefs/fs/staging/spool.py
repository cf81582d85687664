"""Spools: the bytes of files that are being written here (docs/fs.md).

A small file stays in memory until it is closed, a larger one is a sparse file on disk, so that what applications
write never fills the memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from basefs.errors import NoSpace, StoreError, TooLarge
from basefs.log.blocks import MAX_CONTENT_BYTES
from basefs.log.content import BytesContent, Content, FileContent

#: Largest content kept in memory, and in the journal once it is closed, bytes.  Most configuration files are smaller,
#: and a file on disk for each would slow a copy down; the journal gives its room back when all of it is published.
MEMORY_BYTES = 8 * 1024
#: Bytes that are read again for a checksum when a file is closed, at the most; 0.05 s.  What is written from the
#: beginning to the end need not be.  Larger ones that are not have none: somebody waits for the close.
_CHECKED_BYTES = 32 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024


class TornSpool(StoreError):
    """The file of a spool is not what was written: it was not on the disk when the power was cut."""


def as_store_error(error: OSError, what: object) -> StoreError:
    """What a failed write of ours means to applications."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"the disk is full: free some space for {what}; closed files are not lost")
    return StoreError(f"cannot write {what}: {error.strerror}")


class Spool:
    """The content of one file that is being written.

    Attributes:
        path: the file that holds it once it is large.
        is_recorded: whether a record of the journal has it, so that it must stay as it is.
    """

    __slots__ = ("_checked", "_checksum", "_descriptor", "_memory", "_remove", "_size", "is_recorded", "path")

    def __init__(self, path: Path, remove: Callable[[Path], object] = Path.unlink) -> None:
        """`path`: it must not exist.  `remove` is called when the file of a recorded one may go."""
        self.path = path
        self.is_recorded = False
        self._remove = remove
        self._descriptor = -1
        self._size = 0
        self._memory = bytearray()
        #: CRC-32 of so many bytes at the beginning of the file.
        self._checksum = self._checked = 0

    @classmethod
    def of(cls, path: Path, content: Content, remove: Callable[[Path], object] = Path.unlink) -> Spool:
        """One that begins with a content.  Raises `NoSpace`, `StoreError`."""
        spool = cls(path, remove)
        try:
            for piece in content.pieces():
                spool.write(piece, len(spool))
        except StoreError:
            spool.close()
            raise
        return spool

    @classmethod
    def reopen(
        cls, path: Path, size: int, checksum: int | None, remove: Callable[[Path], object] = Path.unlink
    ) -> Spool:
        """One that an earlier process left on disk; `checksum`: what `checksum` told of it.

        Raises `TornSpool` if it is not what that process wrote.
        """
        spool = cls(path, remove)
        try:
            spool._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            spool._size = os.fstat(spool._descriptor).st_size
            if spool._size == size and (checksum is None or checksum == spool._check()):
                return spool
            reason = "it is not what was written"
        except OSError as error:
            reason = os.strerror(error.errno or errno.EIO)
        if spool.is_on_disk:
            os.close(spool._descriptor)
        raise TornSpool(f"{path}: {reason}")

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
            begin = offset
            try:
                view = memoryview(data)
                while view:
                    written = os.pwrite(self._descriptor, view, offset)
                    view, offset = view[written:], offset + written
            except OSError as error:
                self._checksum = self._checked = 0
                with contextlib.suppress(OSError):
                    # What came after the end is no part of it, whatever it is extended to.
                    os.ftruncate(self._descriptor, self._size)
                raise as_store_error(error, "this file") from None
            if begin == self._checked:
                self._checksum = zlib.crc32(data, self._checksum)
                self._checked = end
            elif begin < self._checked:
                self._checksum = self._checked = 0
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
            if length < self._checked:
                self._checksum = self._checked = 0
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
        descriptor = -1
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            if os.pwrite(descriptor, self._memory, 0) < len(self._memory):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            # It stays what it is, in memory.
            if descriptor >= 0:
                os.close(descriptor)
                self.path.unlink(missing_ok=True)
            raise as_store_error(error, "this file") from None
        self._descriptor = descriptor
        self._checksum, self._checked = zlib.crc32(self._memory), len(self._memory)
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
            return Spool.of(path, content, self._remove)
        finally:
            content.close()

    def checksum(self) -> int | None:
        """By which `reopen` knows the file; `None` if it would take too long.  Raises `StoreError`."""
        if self._size - self._checked > _CHECKED_BYTES:
            return None
        try:
            return self._check()
        except OSError as error:
            raise as_store_error(error, self.path) from None

    def _check(self) -> int:
        while self._checked < self._size:
            piece = os.pread(self._descriptor, min(_PIECE_BYTES, self._size - self._checked), self._checked)
            if not piece:
                # Somebody else has cut the file.
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._checksum = zlib.crc32(piece, self._checksum)
            self._checked += len(piece)
        return self._checksum

    def close(self) -> None:
        """Forget the bytes, and have the file removed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with contextlib.suppress(FileNotFoundError):
                (self._remove if self.is_recorded else Path.unlink)(self.path)
        self._memory = bytearray()
        self._size = 0
