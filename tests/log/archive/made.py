"""Archives of any records."""

from __future__ import annotations

import io

from basefs.log.archive.records import ArchiveWriter, Header, RecordKind
from basefs.log.entries import MAX_ENTRY

IDENTITY = bytes(range(28))
RECORDS = [
    (RecordKind.ENTRY, b"e" * MAX_ENTRY),
    (RecordKind.BLOCK, b"b" * (28 + 32768)),
    (RecordKind.ENTRY, b"x"),
    (RecordKind.BLOCK, b""),
]


def archive(
    records: list[tuple[RecordKind, bytes]] | None = None,
    names: tuple[bytes, ...] = (b"a", b"\xff"),
    identity: bytes = IDENTITY,
) -> bytes:
    """A whole archive of any records."""
    stream = io.BytesIO()
    writer = ArchiveWriter(stream, Header(identity, names))
    for kind, data in RECORDS if records is None else records:
        (writer.entry if kind is RecordKind.ENTRY else writer.block)(data)
    writer.end()
    assert writer.size == len(stream.getvalue())
    return stream.getvalue()
