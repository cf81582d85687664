"""What a node has on its disk: copies, and what a power cut leaves of it."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from basefs.daemon.gossipkeys import KEY_FILE
from basefs.replica.replica import LOG_FILE
from tests.simulation.mount import Mount

_WAL = f"{LOG_FILE}-wal"
#: The log, which SQLite keeps as it must be.
_LOG = (LOG_FILE, _WAL)
#: The worktree, and what is beside it.
_BESIDE = ("tree", "incoming", "hidden")
_PAGE = 4096
#: Bytes before the frames of a write-ahead log, and before the page of each frame (sqlite.org/walformat.html).
_WAL_HEADER, _FRAME_HEADER = 32, 24


def copy_disk(source: Path, target: Path) -> None:
    """Copy the log of a node, where there may be an older one."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name in _LOG:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    copy_key(source, target)


def back_up(source: Path, target: Path) -> None:
    """Copy everything that a node has."""
    copy_disk(source, target)
    for name in _BESIDE:
        if (source / name).exists():
            shutil.copytree(source / name, target / name, symlinks=True)


def move_tree(source: Path, target: Path) -> None:
    """Move the worktree to where the log was copied; its files stay the same ones."""
    for name in _BESIDE:
        if (source / name).exists():
            (source / name).rename(target / name)


def empty_files(mount: Mount, rng: random.Random) -> None:
    """Take the bytes of some files that were closed since the disk was synced, as a power cut does."""
    for path in mount.closed:
        place = Path(mount.place(path))
        if rng.random() < 0.3 and place.is_file() and not place.is_symlink():
            os.truncate(place, 0)
    mount.closed.clear()


def copy_key(source: Path, target: Path) -> None:
    """Copy the gossip key, which is on disk as soon as a node has it."""
    if (source / KEY_FILE).exists():
        shutil.copy(source / KEY_FILE, target / KEY_FILE)


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
            copy_key(source, self._directory)
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


def cut_log(synced: Path, now: Path, target: Path, rng: random.Random) -> None:
    """What is left of a log after the power was cut: what was synced, and of the rest whatever chance leaves."""
    target.mkdir()
    old, new = ([_bytes(disk / name) for name in _LOG] for disk in (synced, now))
    kept = rng.choice((old, new))
    if old[0] == new[0] and (new[1] or b"").startswith(old[1] or b"") and rng.random() < 0.5:
        # Some of the transactions: SQLite forgets one that is not whole.
        kept = [new[0], (new[1] or b"")[: rng.randint(len(old[1] or b""), len(new[1] or b""))]]
    for name, data in zip(_LOG, kept, strict=True):
        if data is not None:
            (target / name).write_bytes(data)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
