"""Integers: minimal encodings only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import InvalidEntry
from basefs.log import varint


@given(st.integers(0, 2**64), st.binary(max_size=4), st.binary(max_size=4))
def test_round_trip(value: int, before: bytes, after: bytes) -> None:
    encoded = varint.encode(value)
    decoded = varint.decode(before + encoded + after, len(before), max_bytes=10)
    assert decoded == (value, len(before) + len(encoded))


@pytest.mark.parametrize(("value", "size"), [(0, 1), (127, 1), (128, 2), (16383, 2), (16384, 3)])
def test_size(value: int, size: int) -> None:
    assert len(varint.encode(value)) == size


@given(st.binary(max_size=4))
def test_any_bytes_are_an_integer_or_refused(data: bytes) -> None:
    try:
        value, end = varint.decode(data, 0, max_bytes=2)
    except InvalidEntry:
        return
    assert varint.encode(value) == data[:end]


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x00", b"\xff\x00", b"\x80\x80\x01", b"\xff\xff\xff"])
def test_refused(data: bytes) -> None:
    with pytest.raises(InvalidEntry):
        varint.decode(data, 0, max_bytes=2)
