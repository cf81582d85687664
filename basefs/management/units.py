"""Sizes and spans of time as people read them."""

from __future__ import annotations

from rich.filesize import decimal

#: Seconds -> the unit that is used from there on.
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def size(count: float) -> str:
    """Bytes, in powers of 1000: `1.2 MB`."""
    return decimal(int(count))


def span(seconds: float) -> str:
    """A length of time, in its largest unit: `2 h`; less than a second is 0 s."""
    length, unit = next((found for found in _SPANS if seconds >= found[0]), _SPANS[-1])
    return f"{int(max(seconds, 0) // length)} {unit}"


def counted(number: int, noun: str) -> str:
    """`1 block`, `2 blocks`."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun}"
