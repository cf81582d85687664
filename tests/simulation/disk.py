"""What a node has on its disk: copies, and what a power cut leaves of it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from basefs.fs.staging.workingset import DIRECTORY

from basefs.daemon.gossipkeys import KEY_FILE
from basefs.replica.replica import LOG_FILE

_WAL = f"{LOG_FILE}-wal"
#: The log, which SQLite keeps as it must be.
_LOG = (LOG_FILE, _WAL)
_PAGE = 4096
#: Bytes before the frames of a write-ahead log, and before the page of each frame (sqlite.org/walformat.html).
_WAL_HEADER, _FRAME_HEADER = 32, 24


def copy_disk(source: Path, target: Path) -> None:
    """Copy the log and the staging area of a node, where there may be older ones."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name in _LOG:
        if (source / name).exists():
            _copy(source / name, target / name)
    _copy_beside(source, target)


def copy_key(source: Path, target: Path) -> None:
    """Copy the gossip key, which is on disk as soon as a node has it."""
    if (source / KEY_FILE).exists():
        shutil.copy(source / KEY_FILE, target / KEY_FILE)


def _copy_beside(source: Path, target: Path) -> None:
    """Copy what is beside the log."""
    copy_key(source, target)
    if (source / DIRECTORY).exists():
        shutil.copytree(source / DIRECTORY, target / DIRECTORY, copy_function=_copy)


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file without the bytes that were only allocated: a journal has a megabyte of them."""
    with open(source, "rb", buffering=0) as old, open(target, "wb", buffering=0) as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        for start, end in _extents(old.fileno(), size):
            new.seek(start)
            new.write(os.pread(old.fileno(), end - start, start))


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has been written to: from and to which byte."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:
            # There is nothing more.
            return
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end


class DiskCopy:
    """A copy of a disk that is brought up to date again and again: the log is only added to."""

    def __init__(self, directory: Path) -> None:
        """`directory`: where the copy is."""
        self._directory = directory
        self._source = directory
        #: How the write-ahead log begins, and how much of it was copied.
        self._beginning = b""
        self._size = 0

    def update(self, source: Path) -> None:
        """Have what a disk has."""
        wal, copy = source / _WAL, self._directory / _WAL
        beginning = _beginning_of(wal)
        if source != self._source or beginning != self._beginning or not beginning:
            copy_disk(source, self._directory)
            self._source, self._beginning, self._size = source, beginning, len(beginning)
            if beginning:
                os.truncate(copy, len(beginning))
        else:
            # What was written back to the database itself since then is in the other file until that begins anew.
            shutil.rmtree(self._directory / DIRECTORY, ignore_errors=True)
            _copy_beside(source, self._directory)
        if beginning:
            self._add(wal, copy)

    def _add(self, wal: Path, copy: Path) -> None:
        """Add the transactions that are not in the copy."""
        with wal.open("rb", buffering=0) as old, copy.open("ab", buffering=0) as new:
            end = _end_of_commits(old.fileno(), self._beginning, self._size)
            new.write(os.pread(old.fileno(), end - self._size, self._size))
        self._size = end


def _beginning_of(wal: Path) -> bytes:
    """The header of a write-ahead log, empty where there is none."""
    try:
        with wal.open("rb", buffering=0) as file:
            return file.read(_WAL_HEADER)
    except FileNotFoundError:
        return b""


def _end_of_commits(descriptor: int, beginning: bytes, start: int) -> int:
    """Where the last transaction of a write-ahead log ends that begins at `start` or later, `start` without one."""
    salts, end, at, size = beginning[16:24], start, start, os.fstat(descriptor).st_size
    # A power cut may have left a part of a frame.
    while (after := at + _FRAME_HEADER + _PAGE) <= size:
        header = os.pread(descriptor, _FRAME_HEADER, at)
        if header[8:16] != salts:
            # It is left from before the log began anew.
            break
        at = after
        if header[4:8] != bytes(4):
            end = at
    return end


def cut_disk(synced: Path, now: Path, target: Path, rng: random.Random) -> None:
    """What a disk has after the power was cut: what was synced, and of the rest whatever chance leaves."""
    target.mkdir()
    (target / DIRECTORY).mkdir()
    manner = rng.choice((0.0, 0.5, 1.0))
    _cut_log(synced, now, target, rng, manner)
    names = {path.name for disk in (synced, now) for path in (disk / DIRECTORY).iterdir()}
    for name in sorted(names):
        old, new = (_bytes(disk / DIRECTORY / name) for disk in (synced, now))
        left = _left(old, new, rng, manner)
        if left is not None:
            (target / DIRECTORY / name).write_bytes(left)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _cut_log(synced: Path, now: Path, target: Path, rng: random.Random, manner: float) -> None:
    old, new = ([_bytes(disk / name) for name in _LOG] for disk in (synced, now))
    keeps = rng.random() < manner
    kept = new if keeps else old
    if old[0] == new[0] and (new[1] or b"").startswith(old[1] or b"") and rng.random() < 0.5:
        # Some of the transactions: SQLite forgets one that is not whole.
        kept = [new[0], (new[1] or b"")[: rng.randint(len(old[1] or b""), len(new[1] or b""))]]
    for name, data in zip(_LOG, kept, strict=True):
        if data is not None:
            (target / name).write_bytes(data)


def _left(old: bytes | None, new: bytes | None, rng: random.Random, manner: float) -> bytes | None:
    """What is left of a file of the staging area."""
    if old == new:
        return old
    keeps, torn = rng.random() < manner, rng.random() < 0.3
    if old is None or new is None or not torn:
        # A file that was made or removed since may be there or not.
        kept = new if keeps else old
        if kept is new and old is None and new is not None and torn:
            return _torn(b"", new, rng)
        return kept
    return _torn(old, new, rng) if _same_file(old, new) else (new if keeps else old)


def _same_file(old: bytes, new: bytes) -> bool:
    return old[:8] == new[:8]


def _torn(old: bytes, new: bytes, rng: random.Random) -> bytes:
    """Some pages of a file, and its size, are as they were before."""
    before = old.ljust(len(new), b"\0")
    pages = range(0, len(new), _PAGE)
    return b"".join((new if rng.random() < 0.5 else before)[at : at + _PAGE] for at in pages)
