"""Extensions: the optional fields of an entry, by number (docs/formats.md, section 1).

    extensions   := extension, any number of times, their numbers ascending
    extension    := number (1 B), varint length, value

A version ignores extensions with an odd number that it does not know, but keeps and syncs them; it refuses an entry
with an even one, which may change what the entry means.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from basefs.errors import InvalidEntry, UnsupportedEntry
from basefs.log import varint

#: Bytes of all extensions of an entry.
MAX_EXTENSIONS = 1024
MAX_SIZE = 2**48 - 1
MIN_TIME, MAX_TIME = -(2**63), 2**63 - 1

#: Of a quota.
NO_LIMIT = 2**64 - 1

_MTIME, _SIZE, _QUOTA, _OPEN = 1, 2, 3, 4
_TIME = struct.Struct(">q")
_LIMITS = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True)
class Quota:
    """How much the holder of a granted key may add; `NO_LIMIT` is no limit.

    Attributes:
        bytes: of contents.
        entries: signed by the key.
    """

    bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class Extensions:
    """The optional fields of an entry.

    Attributes:
        size: bytes of the file after a write, 0 to `MAX_SIZE`; 0 without one.
        mtime: nanoseconds since 1970, `MIN_TIME` to `MAX_TIME`; `None` without one.
        quota: of a grant; `None` without one.
        unknown: number and value of those that this version does not know, all odd, ascending.
        is_open: of the root entry: whether anybody may read the filesystem.
    """

    size: int = 0
    mtime: int | None = None
    quota: Quota | None = None
    unknown: tuple[tuple[int, bytes], ...] = ()
    is_open: bool = False

    def encode(self) -> bytes:
        """The one encoding of these fields."""
        values = dict(self.unknown)
        if self.mtime is not None:
            values[_MTIME] = _TIME.pack(self.mtime)
        if self.size:
            values[_SIZE] = self.size.to_bytes((self.size.bit_length() + 7) // 8, "big")
        if self.quota is not None:
            values[_QUOTA] = _LIMITS.pack(self.quota.bytes, self.quota.entries)
        if self.is_open:
            values[_OPEN] = b""
        return b"".join(
            bytes((number,)) + varint.encode(len(value)) + value for number, value in sorted(values.items())
        )

    @classmethod
    def decode(cls, data: bytes) -> Extensions:
        """Parse the one encoding.  Raises `UnsupportedEntry` for an unknown even number, `InvalidEntry`."""
        if len(data) > MAX_EXTENSIONS:
            raise InvalidEntry(f"the extensions of an entry have up to {MAX_EXTENSIONS} bytes")
        values: dict[int, bytes] = {}
        at, last = 0, -1
        while at < len(data):
            number = data[at]
            length, start = varint.decode(data, at + 1, max_bytes=2)
            at = start + length
            if number <= last or at > len(data):
                raise InvalidEntry("the extensions of an entry are cut off or out of order")
            last = number
            values[number] = data[start:at]
        mtime, size, quota, is_open = (values.pop(number, None) for number in (_MTIME, _SIZE, _QUOTA, _OPEN))
        for number in values:
            if number % 2 == 0:
                raise UnsupportedEntry(f"an entry with extension {number}")
        return cls(_size(size), _mtime(mtime), _quota(quota), tuple(values.items()), _is_open(is_open))


NO_EXTENSIONS = Extensions()


def _mtime(value: bytes | None) -> int | None:
    if value is None:
        return None
    if len(value) != _TIME.size:
        raise InvalidEntry(f"a modification time has {_TIME.size} bytes")
    mtime: int = _TIME.unpack(value)[0]
    return mtime


def _size(value: bytes | None) -> int:
    if value is None:
        return 0
    if not 0 < len(value) <= 6 or value[0] == 0:
        raise InvalidEntry("a size has up to 6 bytes and no leading zero")
    return int.from_bytes(value, "big")


def _quota(value: bytes | None) -> Quota | None:
    if value is None:
        return None
    if len(value) != _LIMITS.size:
        raise InvalidEntry(f"a quota has {_LIMITS.size} bytes")
    return Quota(*_LIMITS.unpack(value))


def _is_open(value: bytes | None) -> bool:
    if value:
        raise InvalidEntry("the mark of an open filesystem has no value")
    return value is not None
