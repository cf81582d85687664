"""Export: from a log to an archive, in the order of arrival, so that each entry comes after all that it needs.

It reads one state of the log, however much is written meanwhile, and verifies the hash of whatever it writes.  The
gossip keys stay here: archives are sent to others than members.

The archive of a path holds what somebody who has nothing else needs to verify it and to see the same tree there.  By
path, since an entry's parent is on its own path or the one above (docs/formats.md, section 3):
- all entries at the path and below it;
- the entries of each directory above it, but not of what else these hold: their mkdir entries, which the path hangs on,
  and their grants and revokes, which say whose signatures count;
- the same for the paths that links in it name: there is what they show.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from basefs.errors import DamagedLog, InvalidEntry, NotFound, StoreError
from basefs.log.archive.records import ArchiveWriter, Header
from basefs.log.blocks import BlockRole, places
from basefs.log.entries import Action, Entry, needs_of
from basefs.log.hashes import BlockHash
from basefs.log.missing import decoded_block
from basefs.log.placement import ROOT_PATH_ID
from basefs.log.store import checksum_of
from basefs.path import display

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
        chosen = _select_paths(source, path) if path else None
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


def _entries(source: sqlite3.Connection, chosen: _Numbers | None) -> Iterator[Entry]:
    for path, hash, data, checksum in source.execute("SELECT path, hash, data, checksum FROM entries ORDER BY seq"):
        if chosen is not None and path not in chosen:
            continue
        try:
            entry = Entry.decode(data)
        except InvalidEntry:
            entry = None
        if entry is None or entry.hash != hash or checksum != checksum_of(data):
            raise DamagedLog(f"the log is damaged, entry {hash.hex()[:12]} does not match its hash: {_REMEDY}")
        if entry.action is not Action.GOSSIP_KEY:
            yield entry


class _Blocks:
    """The blocks of contents, each one once."""

    def __init__(self, source: sqlite3.Connection) -> None:
        self._source = source
        (most,) = source.execute("SELECT max(seq) FROM blocks").fetchone()
        self._told = _Numbers(most or 0)
        self._walked: set[tuple[BlockHash, BlockRole]] = set()

    def of(self, write: Entry) -> Iterator[bytes]:
        """The blocks that a write needs, as far as they are here and were not told before; lists before what they
        name.
        """
        encoded = write.encoded
        if encoded is None:
            return
        for place in places(encoded.place, self._read, self._walked):
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


class _Numbers:
    """A set of row numbers from 0 to `most`, one bit for each: 16 MB for the rows of a log of 4 TB."""

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


def _select_paths(source: sqlite3.Connection, top: Sequence[bytes]) -> _Numbers:
    """The ids of the paths whose entries belong to the archive of a path.  Raises `NotFound` where nothing ever was."""
    (most,) = source.execute("SELECT max(id) FROM paths").fetchone()
    chosen = _Numbers(most)
    path_id = _find(source, top)
    todo = [path_id, *_below(source, path_id)]
    while todo:
        path_id = todo.pop()
        if chosen.add(path_id):
            if path_id != ROOT_PATH_ID:
                todo += source.execute("SELECT parent FROM paths WHERE id = ?", (path_id,)).fetchone()
            todo += _named(source, path_id)
    return chosen


def _find(source: sqlite3.Connection, path: Sequence[bytes]) -> int:
    path_id = ROOT_PATH_ID
    for name in path:
        row = source.execute("SELECT id FROM paths WHERE parent = ? AND name = ?", (path_id, name)).fetchone()
        if row is None:
            raise NotFound(f"the log has nothing at {display(path)}")
        path_id = row[0]
    return path_id


def _below(source: sqlite3.Connection, path: int) -> Iterator[int]:
    query = (
        "WITH RECURSIVE below (id) AS (SELECT id FROM paths WHERE parent = ? "
        "UNION ALL SELECT p.id FROM below b JOIN paths p ON p.parent = b.id) SELECT id FROM below"
    )
    return (id for (id,) in source.execute(query, (path,)))


def _named(source: sqlite3.Connection, path: int) -> list[int]:
    """The paths of the entries that the links of a path name."""
    # Without decoding the others, of which there are many more.
    query = f"SELECT data FROM entries WHERE path = ? AND substr(data, 38, 1) = x'{Action.LINK:02x}'"
    hashes = [needs_of(data)[1] for (data,) in source.execute(query, (path,))]
    rows = (source.execute("SELECT path FROM entries WHERE hash = ?", (hash,)).fetchone() for hash in hashes)
    return [row[0] for row in rows if row is not None]
