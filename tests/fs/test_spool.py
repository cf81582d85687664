"""Spools: bytes in memory or in a file, which nobody can tell apart."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import TooLarge
from basefs.fs import spool as module
from basefs.fs.spool import Spool
from basefs.log.contents import MAX_CONTENT_BYTES
from tests.mounts import temporary_directory

STEPS = st.lists(st.one_of(st.integers(0, 60), st.tuples(st.binary(min_size=1, max_size=20), st.integers(0, 60))))


@given(STEPS, st.sampled_from([0, 16, 1000]))
def test_writes_and_truncations_are_those_of_a_plain_file(steps: list[int | tuple[bytes, int]], memory: int) -> None:
    with temporary_directory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MEMORY_BYTES", memory)
        spool, expected = Spool(scratch / "spool"), b""
        for step in steps:
            if isinstance(step, int):
                spool.truncate(step)
                expected = expected[:step].ljust(step, b"\0")
            else:
                data, offset = step
                spool.write(data, offset)
                expected = expected.ljust(offset, b"\0")[:offset] + data + expected[offset + len(data) :]
            assert len(spool) == len(expected)
            assert spool.read(1000, 0) == expected
            if spool.is_on_disk and len(expected) % 2:
                assert spool.checksum() == zlib.crc32(expected)
        copy = spool.copy(scratch / "copy")
        assert copy.content().whole() == expected
        assert spool.is_on_disk == (scratch / "spool").exists()
        if spool.is_on_disk:
            again = Spool.reopen(scratch / "spool", len(expected), spool.checksum())
            assert again.read(1000, 0) == expected
            # Not the file: that is the other one's.
            os.close(again._descriptor)
        for closing in (spool, copy):
            closing.close()
        assert list(scratch.iterdir()) == []


def test_a_file_has_a_largest_size(scratch: Path) -> None:
    spool = Spool(scratch / "spool")
    with pytest.raises(TooLarge):
        spool.truncate(MAX_CONTENT_BYTES + 1)
    with pytest.raises(TooLarge):
        spool.write(b"x", MAX_CONTENT_BYTES)
    assert len(spool) == 0


def test_a_large_file_is_sparse(scratch: Path) -> None:
    spool = Spool(scratch / "spool")
    spool.write(b"end", 10**9)
    assert (scratch / "spool").stat().st_blocks * 512 < 10**6
    assert spool.read(5, 10**9 - 2) == b"\0\0end"
    spool.close()
