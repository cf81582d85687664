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
    value = shift = 0
    for byte in data[offset : offset + max_bytes]:
        offset += 1
        if byte < 0x80:
            if not byte and shift:
                raise InvalidEntry("an integer is not in its shortest form")
            return value | byte << shift, offset
        value |= (byte & 0x7F) << shift
        shift += 7
    raise InvalidEntry("an integer is cut off or too long")
