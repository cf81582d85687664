"""Content: the bytes of one file, in memory or in a file on disk, read in pieces.

Code that handles contents of any size reads them piece by piece, so memory does not grow with their size.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator

from basefs.errors import StoreError
from basefs.log.hashes import new_digest, sha224

#: Contents of more bytes than this are kept in files on disk, smaller ones in memory.
LARGE_CONTENT = 4 * 1024 * 1024
#: Bytes that are read and handled at a time.
PIECE = 1024 * 1024


class Content(ABC):
    """Bytes of a known size.  Thread-safe.

    Attributes:
        size: in bytes.
    """

    size: int

    @property
    @abstractmethod
    def key(self) -> bytes:
        """A key that identifies this content: its digest, or the entry that it comes from."""

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end.  Raises `StoreError`."""

    def pieces(self) -> Iterator[bytes]:
        """All of it in order, `PIECE` bytes at a time.  Raises `StoreError`."""
        for offset in range(0, self.size, PIECE):
            yield self.read(offset, min(PIECE, self.size - offset))

    def whole(self) -> bytes:
        """All of it in memory.  Raises `StoreError`."""
        return b"".join(self.pieces())

    def close(self) -> None:  # noqa: B027
        """Release its resources, of which most contents have none; reading it then is an error."""


class BytesContent(Content):
    """A content in memory."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data
        self._key: bytes | None = None

    @property
    def key(self) -> bytes:
        if self._key is None:
            self._key = sha224(self._data)
        return self._key

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def whole(self) -> bytes:
        return self._data


class FileContent(Content):
    """A content in a file, which must not change while it is used.

    Once its key is known, `pieces` ends with a `StoreError` after a change.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        """Take over an open descriptor."""
        self.size = size
        self._descriptor = descriptor
        self._key: bytes | None = None

    @property
    def key(self) -> bytes:
        if self._key is None:
            self._key = digest_of(self)
        return self._key

    def read(self, offset: int, size: int) -> bytes:
        size = min(size, self.size - offset)
        parts: list[bytes] = []
        try:
            # One call reads 2 GiB at the most, and a signal may cut it short.
            while size > 0 and (part := os.pread(self._descriptor, size, offset)):
                parts.append(part)
                size -= len(part)
                offset += len(part)
        except OSError as error:
            raise StoreError(f"cannot read a content of {self.size} bytes: {error.strerror}") from None
        if size > 0:
            raise StoreError(f"a file that held {self.size} bytes was truncated while it was read: save it again")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pieces(self) -> Iterator[bytes]:
        if self._key is None:
            yield from super().pieces()
            return
        digest = new_digest()
        for piece in super().pieces():
            digest.update(piece)
            yield piece
        if digest.digest() != self._key:
            raise StoreError("a file changed while it was read: save it again")

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def digest_of(content: Content) -> bytes:
    """SHA-224 of all bytes."""
    digest = new_digest()
    for piece in content.pieces():
        digest.update(piece)
    return digest.digest()
