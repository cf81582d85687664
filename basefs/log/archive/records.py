"""The records of an archive: what is in the file, byte by byte (`docs/formats.md`, section 10).

    15 B   "basefs archive" and a newline
    1 B    version of this format
    28 B   identity of the filesystem
    v + n  path: varint length, then bytes; '/' for all of it
    then records:
    1 B    kind: 1 entry, 2 block, 3 end
    v + n  varint length of at most 3 bytes, then the encoding of an entry or a block, or what `_END` packs
    and nothing behind the end

An archive is written and read from its start to its end, so it can go through a pipe, and neither side keeps more of it
than one record.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from basefs.errors import ArchiveError
from basefs.log import varint
from basefs.log.blocks import SYNC_BLOCK_DATA
from basefs.log.entries import MAX_ENTRY
from basefs.log.hashes import HASH_SIZE
from basefs.path import MAX_PATH

MAGIC = b"basefs archive\n"
VERSION = 1
#: Entries, blocks, and the SHA-224 of all bytes of the file before this record.
_END = struct.Struct(">QQ28s")
#: Longest record of each kind, bytes.
_LONGEST = (MAX_ENTRY, HASH_SIZE + SYNC_BLOCK_DATA, _END.size)


class RecordKind(enum.IntEnum):
    """What a record holds.  The numbers are the format: append, never renumber."""

    ENTRY = 1
    BLOCK = 2
    END = 3


@dataclass(frozen=True, slots=True)
class Header:
    """What an archive is of: the filesystem's identity (28 bytes), and a path, the root for all of it."""

    identity: bytes
    path: tuple[bytes, ...]


class ArchiveWriter:
    """Writes an archive to a stream.

    Attributes:
        entries, blocks: how many were written.
        size: bytes written.
    """

    def __init__(self, stream: BinaryIO, header: Header) -> None:
        """Write the header.  Raises OSError."""
        path = b"/" + b"/".join(header.path)
        self._stream = stream
        self._digest = hashlib.sha224()
        self.entries = self.blocks = self.size = 0
        self._put(MAGIC + bytes((VERSION,)) + header.identity + varint.encode(len(path)) + path)

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._stream.write(data)
        self.size += len(data)

    def _record(self, kind: RecordKind, data: bytes) -> None:
        self._put(bytes((kind,)) + varint.encode(len(data)) + data)

    def entry(self, data: bytes) -> None:
        """Add an encoded entry.  Raises OSError."""
        self._record(RecordKind.ENTRY, data)
        self.entries += 1

    def block(self, data: bytes) -> None:
        """Add an encoded block.  Raises OSError."""
        self._record(RecordKind.BLOCK, data)
        self.blocks += 1

    def end(self) -> None:
        """End the archive.  Raises OSError."""
        self._record(RecordKind.END, _END.pack(self.entries, self.blocks, self._digest.digest()))
        self._stream.flush()


class ArchiveReader:
    """Reads an archive from a stream.

    Attributes:
        header: what it is of.
        entries, blocks: how many were read.
        size: bytes read.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """Read the header.  Raises OSError, `ArchiveError`."""
        self._stream = stream
        self._digest = hashlib.sha224()
        self.entries = self.blocks = self.size = 0
        start = self._stream.read(len(MAGIC) + 1)
        if start[: len(MAGIC)] != MAGIC or len(start) <= len(MAGIC):
            raise ArchiveError("it is not an archive of 'basefs export'")
        if start[-1] != VERSION:
            raise ArchiveError(f"it has format {start[-1]}, this version reads {VERSION}: upgrade BaseFS")
        self._note(start)
        identity = self._take(HASH_SIZE)
        path = self._take(self._length(2, MAX_PATH))
        self.header = Header(identity, tuple(name for name in path.split(b"/") if name))

    def _note(self, data: bytes) -> bytes:
        self._digest.update(data)
        self.size += len(data)
        return data

    def _take(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ArchiveError(f"it is cut off after {self.size + len(data)} bytes")
        return self._note(data)

    def _length(self, max_bytes: int, most: int) -> int:
        length = 0
        for index in range(max_bytes):
            (byte,) = self._take(1)
            length |= (byte & 0x7F) << (7 * index)
            if not byte & 0x80:
                if length > most or (index and not byte):
                    break
                return length
        raise ArchiveError(f"it is damaged at byte {self.size}: no record has this length")

    def records(self) -> Iterator[tuple[RecordKind, bytes]]:
        """The entries and blocks, encoded and not verified.

        Raises OSError, and `ArchiveError` where the file is not whole, which only its end can tell for sure.
        """
        while True:
            digest = self._digest.digest()
            (number,) = self._take(1)
            if not RecordKind.ENTRY <= number <= RecordKind.END:
                raise ArchiveError(f"it is damaged at byte {self.size}: there is no record of kind {number}")
            kind = RecordKind(number)
            data = self._take(self._length(3, _LONGEST[kind - 1]))
            if kind is RecordKind.END:
                self._end(data, digest)
                return
            self.entries += kind is RecordKind.ENTRY
            self.blocks += kind is RecordKind.BLOCK
            yield kind, data

    def _end(self, data: bytes, digest: bytes) -> None:
        if len(data) != _END.size or _END.unpack(data) != (self.entries, self.blocks, digest):
            raise ArchiveError("it is damaged: its checksum is wrong")
        if self._stream.read(1):
            raise ArchiveError("something follows its end")
