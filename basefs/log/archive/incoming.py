"""Import: from an archive into a log, in batches that are judged as if a peer had sent them.

An archive proves nothing by itself: every entry and block takes the one way into a log, `Replica.add`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from basefs.errors import ArchiveError
from basefs.log.archive.records import ArchiveReader, RecordKind
from basefs.log.interface import AddResult

#: How a log takes in encoded entries and blocks.
Add = Callable[[Sequence[bytes], Sequence[bytes]], AddResult]


@dataclass(frozen=True, slots=True)
class Batching:
    """How much a log is given at once: entries, and bytes of both.

    Larger: fewer transactions, each of which writes every page that it touches; smaller: readers wait less.
    """

    entries: int
    size: int


#: For a log that nobody else uses, and for one that a daemon serves.
ALONE = Batching(1024, 4 * 1024 * 1024)
SHARED = Batching(64, 512 * 1024)


@dataclass(slots=True)
class _Batch:
    entries: list[bytes] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)
    size: int = 0

    def put(self, kind: RecordKind, data: bytes) -> None:
        (self.entries if kind is RecordKind.ENTRY else self.blocks).append(data)
        self.size += len(data)


def import_all(reader: ArchiveReader, add: Add, batching: Batching, progress: Callable[[int], None]) -> None:
    """Take in a whole archive.

    `progress` is called with how many bytes were read so far.  Raises OSError, `ArchiveError` where the file is not
    whole or the log refuses something of it, and what `add` raises; what was taken in before stays.
    """
    for batch in _batches(reader, batching):
        result = add(batch.entries, batch.blocks)
        if result.rejected:
            raise ArchiveError(f"it is damaged or forged: {result.rejected[0]}")
        if result.missing_parents:
            raise ArchiveError(f"it is damaged or forged: the entry {result.missing_parents[0].hex()[:12]} is missing")
        progress(reader.size)


def salvage(reader: ArchiveReader, add: Add, batching: Batching, progress: Callable[[int], None]) -> list[str]:
    """Take in what is whole of an archive that is not; returns what is wrong with it.  Raises OSError."""
    problems: list[str] = []
    try:
        for batch in _batches(reader, batching):
            problems.extend(add(batch.entries, batch.blocks).rejected)
            progress(reader.size)
    except ArchiveError as error:
        problems.append(str(error))
    return problems


def _batches(reader: ArchiveReader, batching: Batching) -> Iterator[_Batch]:
    """The records in batches, the last one also where what follows it is damaged."""
    batch = _Batch()
    try:
        for kind, data in reader.records():
            batch.put(kind, data)
            if len(batch.entries) >= batching.entries or batch.size >= batching.size:
                yield batch
                batch = _Batch()
    except ArchiveError:
        if batch.size:
            yield batch
        raise
    if batch.size:
        yield batch
