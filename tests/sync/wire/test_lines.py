"""Bytes -> lines: whole, one byte at a time, with a tail."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import RemoteProtocolError
from basefs.sync.wire.codec import LineBuffer
from basefs.sync.wire.limits import MAX_LINE


def drain(buffer):
    lines = []
    while (line := buffer.next_line()) is not None:
        lines.append(line)
    return lines


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.integers(1, 50))
def test_cut_anywhere(lines, chunk):
    data = b"".join(line + b"\n" for line in lines) + b"tail"
    buffer = LineBuffer()
    found = []
    for start in range(0, len(data), chunk):
        buffer.feed(data[start : start + chunk])
        assert buffer.ready
        found += drain(buffer)
        assert not buffer.ready
    assert found == lines
    buffer.feed(b"\n")
    assert drain(buffer) == [b"tail"]


def test_line_length_at_the_limit_and_above():
    buffer = LineBuffer()
    buffer.feed(b"x" * MAX_LINE)
    assert buffer.next_line() is None
    buffer.feed(b"\n")
    assert buffer.next_line() == b"x" * MAX_LINE
    buffer.feed(b"x" * (MAX_LINE + 1))
    with pytest.raises(RemoteProtocolError):
        buffer.next_line()


def test_a_complete_line_above_the_limit_is_refused_too():
    buffer = LineBuffer()
    buffer.feed(b"x" * (MAX_LINE + 1) + b"\n")
    with pytest.raises(RemoteProtocolError):
        buffer.next_line()


def test_memory_does_not_grow_with_what_was_read():
    buffer = LineBuffer()
    tracemalloc.start()
    for _ in range(1000):
        buffer.feed(b"y" * 999 + b"\n" + b"z" * 500)
        assert buffer.next_line() is not None
        buffer.feed(b"\n")
        assert buffer.next_line() is not None
        assert not buffer.ready
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000
