"""Working files: what was written here and not published yet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import TooLarge
from basefs.fs.working import Handle, WorkingFile
from basefs.log.contents import MAX_CONTENT_BYTES


def test_a_write_makes_it_dirty_and_forgets_the_time_that_was_set() -> None:
    working = WorkingFile((b"f",), bytearray(b"abc"), mtime=5)
    assert not working.pending
    working.write(b"X", 1)
    assert (working.content, working.dirty, working.pending, working.mtime) == (b"aXc", True, True, None)


def test_what_is_private_or_new_is_pending() -> None:
    assert WorkingFile((b"f",), bytearray(), created=True).pending
    assert WorkingFile((b"f",), bytearray(), private=True).pending


def test_a_reader_sees_its_snapshot_and_a_writer_the_working_file() -> None:
    working = WorkingFile((b"f",), bytearray(b"new"))
    assert Handle(None, b"old", writes=False).content == b"old"
    assert Handle(working, b"", writes=True).content == b"new"


@given(
    st.binary(max_size=20),
    st.lists(st.one_of(st.integers(0, 40), st.tuples(st.binary(min_size=1, max_size=10), st.integers(0, 40)))),
)
def test_writes_and_truncations_are_those_of_a_plain_file(start: bytes, steps: list[int | tuple[bytes, int]]) -> None:
    working, expected = WorkingFile((b"f",), bytearray(start)), start
    for step in steps:
        if isinstance(step, int):
            working.truncate(step)
            expected = expected[:step].ljust(step, b"\0")
        else:
            data, offset = step
            working.write(data, offset)
            expected = expected.ljust(offset, b"\0")[:offset] + data + expected[offset + len(data) :]
        assert working.content == expected


def test_a_file_has_a_largest_size() -> None:
    working = WorkingFile((b"f",), bytearray())
    with pytest.raises(TooLarge):
        working.truncate(MAX_CONTENT_BYTES + 1)
    with pytest.raises(TooLarge):
        working.write(b"x", MAX_CONTENT_BYTES)
    assert not working.content
