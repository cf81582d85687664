"""Spools: bytes in memory or in a file, which nobody can tell apart."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import pytest
from basefs.fs.staging import spool as module
from basefs.fs.staging.spool import Spool
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import NoSpace, StoreError, TooLarge
from basefs.log.blocks import MAX_CONTENT_BYTES
from tests.support.mounts import temporary_directory

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


def test_a_write_that_fails_leaves_what_was_there(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole after a restart, and shows zeros where it is extended."""
    spool = Spool(scratch / "spool")
    # Too large for the memory, so that it is on the disk.
    first = b"x" * (module.MEMORY_BYTES + 1)
    size = len(first)
    spool.write(first, 0)
    pwrite = os.pwrite

    def half(descriptor: int, data: bytes, offset: int) -> int:
        pwrite(descriptor, data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "pwrite", half)  # type: ignore[attr-defined]
        with pytest.raises(NoSpace):
            spool.write(b"second", size)
    assert len(spool) == size
    os.close(Spool.reopen(scratch / "spool", size, spool.checksum())._descriptor)
    spool.truncate(size + 3)
    assert spool.read(size + 3, 0) == first + b"\0\0\0"
    os.close(Spool.reopen(scratch / "spool", size + 3, spool.checksum())._descriptor)
    spool.close()


def test_what_finds_no_room_on_the_disk_stays_in_memory(scratch: Path) -> None:
    spool = Spool(scratch / "missing" / "spool")
    spool.write(b"small", 0)
    with pytest.raises(StoreError):
        spool.write(bytes(module.MEMORY_BYTES), 5)
    assert spool.read(100, 0) == b"small" and len(spool) == 5
