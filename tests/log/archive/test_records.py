"""The records of an archive."""

from __future__ import annotations

import io

import pytest

from basefs.errors import ArchiveError
from basefs.log.archive.records import MAGIC, VERSION, ArchiveReader, Header, RecordKind
from tests.log.archive.made import IDENTITY, RECORDS, archive


def read(data: bytes) -> list[tuple[RecordKind, bytes]]:
    return list(ArchiveReader(io.BytesIO(data)).records())


def test_what_is_written_is_read() -> None:
    reader = ArchiveReader(io.BytesIO(archive()))
    assert reader.header == Header(IDENTITY, (b"a", b"\xff"))
    assert list(reader.records()) == RECORDS
    assert (reader.entries, reader.blocks, reader.size) == (2, 2, len(archive()))
    assert ArchiveReader(io.BytesIO(archive(names=()))).header.path == ()
    assert read(archive([])) == []


def test_the_bytes_are_those_of_the_documentation() -> None:
    data = archive([(RecordKind.ENTRY, b"xy")], names=())
    start = b"basefs archive\n\x01" + IDENTITY + b"\x01/" + b"\x01\x02xy"
    assert data[: len(start)] == start
    assert data[len(start) :][:2] == b"\x03\x2c"
    assert len(data) == len(start) + 2 + 44


def test_it_is_refused_cut_anywhere() -> None:
    data = archive([(RecordKind.ENTRY, b"xy"), (RecordKind.BLOCK, b"z")])
    for size in range(len(data)):
        with pytest.raises(ArchiveError):
            read(data[:size])


def test_it_is_refused_with_any_bit_changed() -> None:
    data = archive([(RecordKind.ENTRY, b"xy"), (RecordKind.BLOCK, b"z")])
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            with pytest.raises(ArchiveError):
                read(bytes(changed))


def test_it_is_refused_with_something_behind_it() -> None:
    with pytest.raises(ArchiveError, match="follows its end"):
        read(archive() + b"\0")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not an archive of 'basefs export'"),
        (b"SQLite format 3\0", "not an archive of 'basefs export'"),
        (MAGIC, "not an archive of 'basefs export'"),
        (MAGIC + bytes((VERSION + 1,)), "upgrade BaseFS"),
    ],
)
def test_other_files(data: bytes, says: str) -> None:
    with pytest.raises(ArchiveError, match=says):
        ArchiveReader(io.BytesIO(data))


def test_no_length_makes_a_reader_take_more_than_a_record_may_have() -> None:
    start = MAGIC + bytes((VERSION,)) + IDENTITY + b"\x01/"
    for length in (b"\xff\xff\x7f", b"\xff\xff\xff", b"\x80\x00"):
        with pytest.raises(ArchiveError, match="no record has this length"):
            read(start + b"\x01" + length + bytes(1 << 21))
