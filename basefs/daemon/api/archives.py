"""Export of a filesystem into an archive, and import of one, whether its daemon runs or not."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from basefs.daemon.api.client import FilesystemClient
from basefs.daemon.api.creation import new_directory
from basefs.daemon.api.messages import AddToLog, GetSummary, Publish
from basefs.daemon.config import Home
from basefs.daemon.keyfiles import default_keys
from basefs.daemon.lock import exclusive, is_held
from basefs.errors import ArchiveError, NotRunning, WrongFilesystem
from basefs.log.archive.incoming import ALONE, SHARED, Add, Batching, import_all, salvage
from basefs.log.archive.outgoing import export, size_of
from basefs.log.archive.records import ArchiveReader
from basefs.log.check import open_log
from basefs.log.database import as_store_error, require_format
from basefs.path import parse
from basefs.replica.replica import LOG_FILE, Replica

#: Called with the bytes that were written or read so far.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Exported:
    """What an archive holds: entries, blocks and bytes; `unpublished`: saved names that could not be published."""

    entries: int
    blocks: int
    bytes: int
    unpublished: int


@dataclass(frozen=True, slots=True)
class Imported:
    """A filesystem after an import: identity in hex, entries, how many are new, what was wrong with the archive."""

    identity: str
    entries: int
    new: int
    problems: list[str]


class Export:
    """One state of a log, ready to be written into an archive."""

    def __init__(self, source: sqlite3.Connection, path: str, unpublished: int) -> None:
        self._source = source
        self._path = parse(path)
        self._unpublished = unpublished
        #: Bytes that the archive will have, about; `None` if unknown.
        self.size = None if self._path else size_of(source)

    def write(self, stream: BinaryIO, progress: Progress) -> Exported:
        """Write the archive.  Raises `NotFound`, `DamagedLog`, `StoreError`, OSError."""
        written = export(self._source, self._path, stream, progress)
        return Exported(written.entries, written.blocks, written.size, self._unpublished)


@contextlib.contextmanager
def open_export(home: Home, name: str, path: str) -> Iterator[Export]:
    """What is at and below a path, once what was just saved there has reached the log.  Raises `StoreError`."""
    try:
        unpublished = FilesystemClient(home, name).ask_daemon(Publish())
    except NotRunning:
        unpublished = 0
    with contextlib.closing(_open(home.existing(name) / LOG_FILE)) as source:
        yield Export(source, path, unpublished)


def _open(path: Path) -> sqlite3.Connection:
    source = open_log(path)
    try:
        require_format(path, source.execute("PRAGMA user_version").fetchone()[0])
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        source.close()
        raise as_store_error(path, error) from None
    return source


def import_archive(
    home: Home, name: str, stream: BinaryIO, identity: bytes | None, progress: Progress, *, salvages: bool
) -> Imported:
    """Make a filesystem from an archive, or add what one that is here lacks, also while it runs.

    `identity`: what the archive must hold.  `salvages`: take what is whole of a damaged archive.  Raises
    `ArchiveError`, `WrongFilesystem`, OSError.
    """
    reader = ArchiveReader(stream)
    found = reader.header.identity
    if identity not in (None, found):
        raise WrongFilesystem(f"the archive holds the filesystem {found.hex()}, not the one of --id")
    directory = home.directory(name)
    home.subdirectory("fs")
    exists = (directory / LOG_FILE).exists()
    problems: list[str] = []
    with _existing(home, name, reader) if exists else _fresh(directory, reader) as log:
        if salvages:
            problems = salvage(reader, log.add, log.batching, progress)
        else:
            import_all(reader, log.add, log.batching, progress)
    summary = FilesystemClient(home, name).ask(GetSummary())
    return Imported(summary.identity, summary.entries, summary.entries - log.entries, problems)


@dataclass(frozen=True, slots=True)
class _Log:
    """Where an archive goes: how much at once, how, and the entries that were there before."""

    batching: Batching
    add: Add
    entries: int


@contextlib.contextmanager
def _fresh(directory: Path, reader: ArchiveReader) -> Iterator[_Log]:
    with (
        new_directory(directory) as fresh,
        contextlib.closing(Replica.create(fresh, reader.header.identity)) as replica,
    ):
        yield _Log(ALONE, partial(replica.add, everything=True), 0)
        if not replica.totals()["entries"]:
            raise ArchiveError("the first entries of the filesystem are damaged: nothing was imported")


@contextlib.contextmanager
def _existing(home: Home, name: str, reader: ArchiveReader) -> Iterator[_Log]:
    client = FilesystemClient(home, name)
    summary = client.ask(GetSummary())
    if summary.identity != reader.header.identity.hex():
        raise WrongFilesystem(
            f"{name} is the filesystem {summary.identity}, the archive holds {reader.header.identity.hex()}: "
            "import it under another name"
        )
    directory = home.existing(name)
    if is_held(directory):
        yield _Log(SHARED, lambda entries, blocks: client.ask_daemon(AddToLog(entries, blocks)), summary.entries)
        return
    with exclusive(directory, name), contextlib.closing(Replica(directory, default_keys(home))) as replica:
        yield _Log(ALONE, partial(replica.add, everything=True), summary.entries)
