"""The journal: what was closed on this node and is not published yet, so that it survives the death of the daemon.

A file of records that is only appended to, and begun again when nothing is pending.  Layout:

    8 B   generation, big endian: a random number of 32 bits
    then records:
    4 B   length of the payload, big endian; 0 ends the journal
    4 B   CRC-32 of the payload, with the generation as its start value
    n B   payload, msgpack

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
from typing import Any

import msgpack

from basefs.durable import sync_directory
from basefs.fs.staging.spool import as_store_error

Record = tuple[Any, ...]

_HEADER = struct.Struct(">Q")
_RECORD = struct.Struct(">II")
#: Bytes allocated at a time, and how many of them only small records may use.
_STEP_BYTES = 1024 * 1024
_RESERVE_BYTES = 256 * 1024
_SMALL_BYTES = 4 * 1024
#: Size at which what is superseded is left out, bytes, and by how much it must have grown since the last time.
COMPACT_BYTES = 8 * 1024 * 1024


class Journal:
    """Records in a file."""

    def __init__(self, path: Path) -> None:
        """Open or make it.  Raises `StoreError`."""
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._allocated = os.fstat(self._descriptor).st_size
            start = os.pread(self._descriptor, _HEADER.size, 0)
        except OSError as error:
            raise as_store_error(error, path) from None
        self._generation = _HEADER.unpack(start)[0] if len(start) == _HEADER.size else 0
        self._end = _HEADER.size
        self._compacted = 0
        # A killed process may have written something last.
        self._unsynced = True
        self._syncing = threading.Lock()
        #: Whether it, or another file that took its place, may have got its name since the last sync.
        self._named = True

    def load(self) -> list[Record]:
        """The records, oldest first; the next one is appended behind them.

        Whoever finds some calls `reset` before that, as there may be others behind one that is not whole.  Raises
        `StoreError`.
        """
        data = os.pread(self._descriptor, self._allocated, 0)
        records = []
        offset = _HEADER.size
        while offset + _RECORD.size <= len(data):
            length, checksum = _RECORD.unpack_from(data, offset)
            payload = data[offset + _RECORD.size : offset + _RECORD.size + length]
            if not length or len(payload) < length or zlib.crc32(payload, self._generation) != checksum:
                break
            records.append(msgpack.unpackb(payload, use_list=False))
            offset += _RECORD.size + length
        self._end = offset
        if not records and self._allocated > _HEADER.size:
            # Behind a first record that is not whole there may be others, which one of its size would bring back.
            self._restart()
        return records

    def append(self, record: Record) -> None:
        """Add a record.  Raises `NoSpace`, `StoreError`; the journal is then as before."""
        payload = msgpack.packb(record)
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
        self._unsynced = True

    def _allocate(self, needed: int, *, may_fail: bool) -> None:
        wanted = -(-(needed + _RESERVE_BYTES) // _STEP_BYTES) * _STEP_BYTES
        try:
            os.posix_fallocate(self._descriptor, self._allocated, wanted - self._allocated)
            self._allocated = wanted
        except OSError:
            if not may_fail:
                raise

    @property
    def wants_compaction(self) -> bool:
        """Whether most of it may be superseded."""
        return self._end > COMPACT_BYTES + 2 * self._compacted

    def reset(self, records: Iterable[Record] = ()) -> None:
        """Begin again, with these records.  Raises `StoreError`; what was there then stays."""
        kept = list(records)
        if not kept:
            if self._end > _HEADER.size:
                self._restart()
            return
        path = self._path.with_suffix(".new")
        path.unlink(missing_ok=True)
        fresh = Journal(path)
        try:
            fresh._generation = _new_generation()
            os.pwrite(fresh._descriptor, _HEADER.pack(fresh._generation), 0)
            for record in kept:
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
            self._named = True
            self._descriptor, self._allocated = fresh._descriptor, fresh._allocated
        self._generation, self._end = fresh._generation, fresh._end
        self._compacted = self._end
        self._unsynced = True

    def _restart(self) -> None:
        """Make every record void by a new generation, and give back what a burst has allocated."""
        generation = _new_generation()
        try:
            os.pwrite(self._descriptor, _HEADER.pack(generation), 0)
            if self._allocated > _STEP_BYTES:
                os.ftruncate(self._descriptor, _STEP_BYTES)
                self._allocated = _STEP_BYTES
        except OSError as error:
            raise as_store_error(error, self._path) from None
        self._generation = generation
        self._end = _HEADER.size
        self._compacted = 0
        self._unsynced = True

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

    def close(self) -> None:
        """Release the file."""
        os.close(self._descriptor)


def _new_generation() -> int:
    """Another one than that of any record in the file: the next number may have been that of a header that was lost."""
    return secrets.randbits(32)
