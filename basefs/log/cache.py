"""The cache of materialised contents: in memory, in a file of rows, and large ones in files of their own.

Invariants

1. Nothing is lost with the cache: it may be deleted, damaged or full at any time, and it is believed only with its
   hashes.  It is written without syncing.
2. A large content is in a file named by its write entry only if all of it is there: it is written under no name first.
3. A reader keeps its content open, so a dropped content stays readable until then.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from basefs.errors import NoSpace, StoreError
from basefs.log.content import LARGE_CONTENT, Content, FileContent, digest_of
from basefs.log.database import as_store_error
from basefs.log.hashes import HASH_SIZE, EntryHash, new_digest, sha224
from basefs.log.remembered import Remembered

log = logging.getLogger(__name__)

#: Bytes that a content in memory takes beside its own.
_OVERHEAD = 256
#: Contents of which it is known that they cannot be decoded, about 400 bytes each.
_REMEMBERED_UNREADABLE = 4096


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Bytes that a cache may take.

    Attributes:
        memory: of small contents in memory.
        rows: of the file of small contents.
        files: of the files of large contents; the one that was used last is kept whatever its size.
        homeless: of a large content that finds no room on disk and is kept in memory for its reader.
    """

    memory: int = 32 * 1024 * 1024
    rows: int = 256 * 1024 * 1024
    files: int = 1024 * 1024 * 1024
    homeless: int = 64 * 1024 * 1024


_LIMITS = CacheLimits()


class ContentCache:
    """Materialised contents by the hash of their write entry, least recently used out first.  Thread-safe."""

    def __init__(self, path: Path | None, limits: CacheLimits = _LIMITS) -> None:
        """Open the cache: rows in the file `path`, large contents in the directory of that name plus `.d`.

        A damaged file is replaced.  `None`: keep everything in memory.
        """
        self._limits = limits
        self._lock = threading.Lock()
        self._memory: OrderedDict[EntryHash, bytes] = OrderedDict()
        self._memory_bytes = 0
        #: Why contents cannot be decoded, so that they are not tried again and again.
        self.unreadable: Remembered[EntryHash, str] = Remembered(_REMEMBERED_UNREADABLE)
        self._db: sqlite3.Connection | None = None
        self.directory: Path | None = None
        #: The files that this process has written, or compared with their hash.
        self._verified: set[EntryHash] = set()
        if path is not None:
            self.directory = path.with_name(path.name + ".d")
            # Left by a process that was killed while writing.
            for unfinished in self.directory.glob(".*"):
                unfinished.unlink(missing_ok=True)
            try:
                self._db = _open_or_replace(path)
            except (sqlite3.Error, OSError) as error:
                # A full disk must not prevent reading the log.
                log.info("cannot use %s, keeping small contents in memory only: %s", path, error)

    # -- small contents -----------------------------------------------------------------------------------------------

    def get(self, entry: EntryHash, *, only_memory: bool = False) -> bytes | None:
        """A small content, or `None`.  `only_memory`: without looking at the disk."""
        with self._lock:
            data = self._memory.get(entry)
            if data is not None:
                self._memory.move_to_end(entry)
                return data
            if self._db is None or only_memory:
                return None
            try:
                row = self._db.execute("SELECT hash, data FROM contents WHERE entry = ?", (entry,)).fetchone()
            except sqlite3.Error:
                return None
        return row[1] if row is not None and _digest(entry, row[1]) == row[0] else None

    def put(self, entry: EntryHash, data: bytes, *, on_disk: bool) -> None:
        """Keep a small content; one that is larger than a quarter of the cache is left out."""
        if len(data) > self._limits.memory // 4:
            return
        with self._lock:
            self._drop(entry)
            self._memory[entry] = data
            self._memory_bytes += _OVERHEAD + len(data)
            while self._memory_bytes > self._limits.memory:
                self._drop(next(iter(self._memory)))
            if on_disk and self._db is not None:
                try:
                    self._store(self._db, entry, data)
                except sqlite3.Error:
                    # A full disk must not stop a read.
                    self._db = None

    def drop(self, entries: Iterable[EntryHash]) -> None:
        """Keep the contents of these writes in memory no longer: their files were removed."""
        with self._lock:
            for entry in entries:
                self._drop(entry)

    def _drop(self, entry: EntryHash) -> None:
        data = self._memory.pop(entry, None)
        if data is not None:
            self._memory_bytes -= _OVERHEAD + len(data)

    def _store(self, db: sqlite3.Connection, entry: EntryHash, data: bytes) -> None:
        row = (entry, _digest(entry, data), data)
        db.execute("INSERT OR REPLACE INTO contents (entry, hash, data) VALUES (?, ?, ?)", row)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        (page_size,) = db.execute("PRAGMA page_size").fetchone()
        if pages * page_size > self._limits.rows:
            db.execute("DELETE FROM contents WHERE seq <= (SELECT (min(seq) + max(seq)) / 2 FROM contents)")
            db.execute("VACUUM")

    # -- large contents -----------------------------------------------------------------------------------------------

    def open_file(self, entry: EntryHash) -> FileContent | None:
        """A large content, or `None`.  The first time a file of an earlier process is compared with its hash."""
        path = self._file(entry)
        if path is None:
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        size = os.fstat(descriptor).st_size - HASH_SIZE
        content = FileContent(descriptor, size)
        if entry not in self._verified:
            try:
                whole = size >= 0 and digest_of(content) == os.pread(descriptor, HASH_SIZE, size)
            except (StoreError, OSError):
                whole = False
            if not whole:
                content.close()
                path.unlink(missing_ok=True)
                return None
            self._verified.add(entry)
        try:
            # Eviction uses this time: access times are often off.
            os.utime(descriptor)
        except OSError as error:
            log.debug("cannot touch %s: %s", path, error)
        return content

    def _file(self, entry: EntryHash) -> Path | None:
        return None if self.directory is None else self.directory / entry.hex()

    def write_file(
        self, entry: EntryHash, pieces: Iterable[bytes], size: int, *, digest: bytes | None = None
    ) -> FileContent:
        """Keep a large content, of which the digest may be known, under its entry and return it, open.

        On a full disk it is kept in memory for the caller, if it is not too large for that.  Raises `NoSpace`,
        `StoreError`, and what `pieces` raises.
        """
        descriptor, named = self._new_file(size)
        try:
            running = new_digest()
            for piece in pieces:
                if digest is None:
                    running.update(piece)
                _write_all(descriptor, piece)
            if named is not None:
                _write_all(descriptor, digest or running.digest())
        except BaseException as error:
            os.close(descriptor)
            if named is not None:
                named.unlink(missing_ok=True)
            raise disk_error(error) if isinstance(error, OSError) else error from None
        path = self._file(entry)
        if named is not None and path is not None:
            named.rename(path)
            with self._lock:
                self._verified.add(entry)
                self._make_room(path)
        return FileContent(descriptor, size)

    def _new_file(self, size: int) -> tuple[int, Path | None]:
        """A new file for a content: its descriptor, and its name on disk."""
        if self.directory is not None:
            try:
                self.directory.mkdir(mode=0o700, exist_ok=True)
                disk = os.statvfs(self.directory)
                # An entry can claim any size, and a full disk stops the log too.
                if size < disk.f_bavail * disk.f_frsize // 2:
                    descriptor, name = tempfile.mkstemp(dir=self.directory, prefix=".")
                    return descriptor, Path(name)
            except OSError as error:
                log.debug("no file for a content in %s: %s", self.directory, error)
        if size > self._limits.homeless:
            raise NoSpace(f"the disk has no room to unpack a file of {size} bytes: free some space")
        return os.memfd_create("basefs-content", os.MFD_CLOEXEC), None

    def _make_room(self, newest: Path) -> None:
        """Drop the files that were not used for longest."""
        files = []
        for path in newest.parent.iterdir():
            try:
                facts = path.stat()
            except OSError:
                continue
            if path != newest and not path.name.startswith("."):
                files.append((facts.st_mtime, facts.st_size, path))
        room = self._limits.files - newest.stat().st_size
        for _, size, path in sorted(files, reverse=True):
            room -= size
            if room < 0:
                path.unlink(missing_ok=True)

    # -- both ---------------------------------------------------------------------------------------------------------

    def keep(self, entry: EntryHash, content: Content) -> None:
        """Keep a content that was just written, since it is likely to be read next."""
        if content.size <= LARGE_CONTENT:
            self.put(entry, content.whole(), on_disk=False)
            return
        try:
            digest = content.key if isinstance(content, FileContent) else None
            self.write_file(entry, content.pieces(), content.size, digest=digest).close()
        except StoreError as error:
            log.info("cannot unpack a file of %d bytes in advance: %s", content.size, error)

    def close(self) -> None:
        """Release the files."""
        with self._lock:
            if self._db is not None:
                self._db.close()


def _open_or_replace(path: Path) -> sqlite3.Connection:
    """Open the file of rows; a damaged one is replaced.  Raises `sqlite3.Error`, `OSError`."""
    try:
        return _open_rows(path)
    except sqlite3.DatabaseError as error:
        if isinstance(as_store_error(path, error), NoSpace):
            raise
    path.unlink(missing_ok=True)
    return _open_rows(path)


def _digest(entry: EntryHash, data: bytes) -> bytes:
    """The digest that validates a row: a power cut may leave an index that leads to the row of another entry."""
    return sha224(entry + data)


def _open_rows(path: Path) -> sqlite3.Connection:
    """Open the file of rows, which is its owner's alone.  Raises `sqlite3.Error`, OSError."""
    # SQLite gives its side files the same mode.
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        db.execute(
            "CREATE TABLE IF NOT EXISTS contents (seq INTEGER PRIMARY KEY, entry BLOB UNIQUE, hash BLOB, data BLOB)"
        )
    except sqlite3.Error:
        db.close()
        raise
    return db


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def disk_error(error: OSError) -> StoreError:
    """The error for a failed write beside the log."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace("the disk that holds the filesystem's files is full: free some space")
    return StoreError(f"cannot write beside the log: {error.strerror}")
