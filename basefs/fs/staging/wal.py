"""A write-ahead log: a file of records that is only appended to, until another one takes its place.  Layout:

    8 B   generation, big endian: a random number of 32 bits
    then records:
    4 B   length of the payload, big endian; 0 ends the journal
    4 B   CRC-32 of the payload, with the generation as its start value
    n B   payload

A record is in the page cache when `append` returns: it survives `kill -9`, and `sync` makes it survive a power cut.
What follows the first record that is not whole was never confirmed to anybody.  The file is allocated ahead, so that
small records (a name that is gone) can be written when the disk is full.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path

from basefs.durable import sync_directory
from basefs.fs.staging.spool import as_store_error

_HEADER = struct.Struct(">Q")
_RECORD = struct.Struct(">II")
#: Bytes allocated at a time, and how many of them only small records may use.
_STEP_BYTES = 1024 * 1024
_RESERVE_BYTES = 256 * 1024
_SMALL_BYTES = 4 * 1024


class WriteAheadLog:
    """Records in a file.

    Attributes:
        count: how many there are.
        is_fresh: whether the file was made now.
    """

    def __init__(self, path: Path) -> None:
        """Open or make it.  Raises `StoreError`."""
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._allocated = os.fstat(self._descriptor).st_size
            self.is_fresh = not self._allocated
            if self.is_fresh:
                # Not that of a file before it, of which a disk may bring back what it held.
                os.pwrite(self._descriptor, _HEADER.pack(secrets.randbits(32)), 0)
            start = os.pread(self._descriptor, _HEADER.size, 0)
        except OSError as error:
            raise as_store_error(error, path) from None
        self._generation = _HEADER.unpack(start)[0] if len(start) == _HEADER.size else 0
        self._end = _HEADER.size
        self.count = 0
        #: The generation that survives a power cut for sure.
        self._durable_generation: int | None = None
        # A killed process may have written something last.
        self._unsynced = True
        self._syncing = threading.Lock()
        #: Whether it, or another file that took its place, may have got its name since the last sync.
        self._named = True

    @property
    def generation(self) -> int:
        """A number that tells it from what it was before it was begun."""
        return self._generation

    @property
    def is_only(self) -> bool:
        """Whether no power cut brings back what was there before it was begun."""
        return self._durable_generation == self._generation

    @property
    def size(self) -> int:
        """Bytes."""
        return self._end

    def load(self) -> list[bytes]:
        """The records, oldest first.  What follows them stays in the file, so `reset` comes before `append`."""
        data = os.pread(self._descriptor, self._allocated, 0)
        records = []
        offset = _HEADER.size
        while offset + _RECORD.size <= len(data):
            length, checksum = _RECORD.unpack_from(data, offset)
            payload = data[offset + _RECORD.size : offset + _RECORD.size + length]
            if not length or len(payload) < length or zlib.crc32(payload, self._generation) != checksum:
                break
            records.append(payload)
            offset += _RECORD.size + length
        self._end = offset
        self.count = len(records)
        return records

    def append(self, payload: bytes) -> None:
        """Add a record.  Raises `NoSpace`, `StoreError`; the log is then as before."""
        needed = self._end + _RECORD.size + len(payload) + _RECORD.size
        small = len(payload) <= _SMALL_BYTES
        try:
            if needed + _RESERVE_BYTES > self._allocated:
                self._allocate(needed, may_fail=small)
            raw = _RECORD.pack(len(payload), zlib.crc32(payload, self._generation)) + payload
            # What an earlier generation left behind it ends the journal as well as the zero of a new file.
            if os.pwrite(self._descriptor, raw, self._end) < len(raw):
                raise OSError(28, os.strerror(28))
        except OSError as error:
            raise as_store_error(error, "what is not published yet") from None
        self._end += len(raw)
        self.count += 1
        self._unsynced = True

    def _allocate(self, needed: int, *, may_fail: bool) -> None:
        wanted = -(-(needed + _RESERVE_BYTES) // _STEP_BYTES) * _STEP_BYTES
        try:
            os.posix_fallocate(self._descriptor, self._allocated, wanted - self._allocated)
            self._allocated = wanted
        except OSError:
            if not may_fail:
                raise

    def reset(self, records: Iterable[bytes] = ()) -> None:
        """Begin again in another file, with these records.  Raises `StoreError`; what was there then stays."""
        path = self._path.with_suffix(".new")
        path.unlink(missing_ok=True)
        fresh = WriteAheadLog(path)
        try:
            for record in records:
                fresh.append(record)
            fresh.sync()
            path.replace(self._path)
        except BaseException as error:
            fresh.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise as_store_error(error, self._path) if isinstance(error, OSError) else error from None
        with self._syncing:
            self.close()
            self._named = self._unsynced = True
            self._descriptor, self._allocated = fresh._descriptor, fresh._allocated
        self._generation, self._end, self.count = fresh._generation, fresh._end, fresh.count

    @property
    def is_durable(self) -> bool:
        """Whether `sync` has nothing to do, or another thread does it."""
        return not self._unsynced

    def sync(self) -> None:
        """Make every record survive a power cut.  Raises `StoreError`."""
        # Whoever finds another one syncing waits for it: what that took up may hold this caller's records.
        with self._syncing:
            if not self._unsynced:
                return
            self._unsynced = False
            generation = self._generation
            named, self._named = self._named, False
            try:
                os.fdatasync(self._descriptor)
                if named:
                    # Otherwise the name may lead to nothing, or to the file before it, which lacks what came since.
                    sync_directory(self._path.parent)
            except OSError as error:
                self._unsynced = True
                self._named |= named
                raise as_store_error(error, self._path) from None
            self._durable_generation = generation

    def close(self) -> None:
        """Release the file."""
        os.close(self._descriptor)
