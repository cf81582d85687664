"""A set of row numbers that takes one bit for each that there could be: 16 MB for the rows of a log of 4 TB."""

from __future__ import annotations


class Numbers:
    """A set of numbers from 0 to `most`."""

    def __init__(self, most: int) -> None:
        self._bits = bytearray((most >> 3) + 1)

    def add(self, number: int) -> bool:
        """Put a number in; returns whether it is new."""
        byte, bit = number >> 3, 1 << (number & 7)
        is_new = not self._bits[byte] & bit
        self._bits[byte] |= bit
        return is_new

    def __contains__(self, number: int) -> bool:
        return bool(self._bits[number >> 3] & (1 << (number & 7)))
