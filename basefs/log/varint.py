"""Unsigned LEB128 integers, minimal form only, so that a value has exactly one encoding."""

from __future__ import annotations

from basefs.errors import InvalidEntry


def encode(value: int) -> bytes:
    """Encode a non-negative integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes, offset: int, max_bytes: int) -> tuple[int, int]:
    """Decode the integer at `offset`.

    Returns (value, offset behind it).  Raises `InvalidEntry` where the data end too soon, the integer takes more than
    `max_bytes` bytes, or a shorter encoding exists.
    """
    value = 0
    for index in range(max_bytes):
        if offset + index >= len(data):
            raise InvalidEntry("an integer is cut off")
        byte = data[offset + index]
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            if byte == 0 and index:
                raise InvalidEntry("an integer is not in its shortest form")
            return value, offset + index + 1
    raise InvalidEntry("an integer is too long")
