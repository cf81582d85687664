"""Export: from a log to an archive, in the order of arrival, so that each entry comes after all that it needs.

It reads one state of the log, however much is written meanwhile, and verifies the hash of whatever it writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from basefs.errors import DamagedLog, InvalidEntry, StoreError
from basefs.log.archive.records import ArchiveWriter, Header
from basefs.log.archive.selection import Numbers, select_paths
from basefs.log.blocks import BlockRole, distinct
from basefs.log.entries import Action, Entry
from basefs.log.hashes import BlockHash
from basefs.log.missing import decoded_block
from basefs.log.store import checksum_of

_REMEDY = "see 'basefs check'"


def export(
    source: sqlite3.Connection,
    path: Sequence[bytes],
    stream: BinaryIO,
    progress: Callable[[int], None] = lambda size: None,
) -> ArchiveWriter:
    """Write the log behind a connection (see `open_log`), or what it holds of one path, to a stream.

    `progress` is called with how many bytes were written so far.  Raises `NotFound` for a path that never was,
    `DamagedLog`, `StoreError`, OSError.
    """
    try:
        chosen = select_paths(source, path) if path else None
        (identity,) = source.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone() or (None,)
        if identity is None:
            raise StoreError("nothing of this filesystem has arrived yet: there is nothing to export")
        writer = ArchiveWriter(stream, Header(identity, tuple(path)))
        blocks = _Blocks(source)
        for entry in _entries(source, chosen):
            writer.entry(entry.encode())
            if entry.action is Action.WRITE:
                for block in blocks.of(entry):
                    writer.block(block)
                    progress(writer.size)
            progress(writer.size)
        writer.end()
        return writer
    except sqlite3.DatabaseError as error:
        raise DamagedLog(f"the log is damaged, {error}: {_REMEDY}") from None


def size_of(source: sqlite3.Connection) -> int:
    """About how many bytes the whole log takes in an archive."""
    sizes = [source.execute(f"SELECT total(length(data) + 4) FROM {table}").fetchone()[0] for table in _TABLES]
    return int(sum(sizes))


_TABLES = ("entries", "blocks")


def _entries(source: sqlite3.Connection, chosen: Numbers | None) -> Iterator[Entry]:
    for path, hash, data, checksum in source.execute("SELECT path, hash, data, checksum FROM entries ORDER BY seq"):
        if chosen is not None and path not in chosen:
            continue
        try:
            entry = Entry.decode(data)
        except InvalidEntry:
            entry = None
        if entry is None or entry.hash != hash or checksum != checksum_of(data):
            raise DamagedLog(f"the log is damaged, entry {hash.hex()[:12]} does not match its hash: {_REMEDY}")
        yield entry


class _Blocks:
    """The blocks of contents, each one once."""

    def __init__(self, source: sqlite3.Connection) -> None:
        self._source = source
        (most,) = source.execute("SELECT max(seq) FROM blocks").fetchone()
        self._told = Numbers(most or 0)
        self._walked: set[tuple[BlockHash, BlockRole]] = set()

    def of(self, write: Entry) -> Iterator[bytes]:
        """The blocks that a write needs, as far as they are here and were not told before; lists before what they
        name.
        """
        encoded = write.encoded
        if encoded is None:
            return
        for place in distinct(encoded.place, self._read, self._walked):
            row = self._source.execute("SELECT seq FROM blocks WHERE hash = ?", (place.hash,)).fetchone()
            if row is not None and self._told.add(row[0]):
                data = self._read(place.hash)
                assert data is not None, "it is there"
                yield data

    def _read(self, hash: BlockHash) -> bytes | None:
        row = self._source.execute("SELECT data FROM blocks WHERE hash = ?", (hash,)).fetchone()
        if row is not None and decoded_block(row, hash) is None:
            raise DamagedLog(f"the log is damaged, block {hash.hex()[:12]} does not match its hash: {_REMEDY}")
        return None if row is None else bytes(row[0])
