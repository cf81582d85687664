"""What a node has on its disk: copies, and what a power cut leaves of it."""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from basefs.replica.replica import LOG_FILE
from tests.simulation.mount import Mount

_WAL, _INDEX = f"{LOG_FILE}-wal", f"{LOG_FILE}-shm"
#: The log, which SQLite keeps as it must be.
_LOG = (LOG_FILE, _WAL)
#: The worktree, and what is beside it.
_BESIDE = ("tree", "incoming")
#: Bytes before the frames of a write-ahead log, and of each frame (sqlite.org/walformat.html, 1 and 2.1).
_WAL_HEADER, _FRAME = 32, 24 + 4096
#: Where its index has the number of valid frames, and of those that were copied to the database.
_VALID, _COPIED = 16, 96


def copy_disk(source: Path, target: Path) -> None:
    """Copy the log of a node."""
    target.mkdir()
    for name in _LOG:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


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
    # The rename has changed one of the two times of the directory, as if somebody had set the other one.
    made = target / "tree" / "made~"
    made.mkdir()
    made.rmdir()


def empty_files(mount: Mount, rng: random.Random) -> None:
    """Take the bytes of some files that were closed since the disk was synced, as a power cut does."""
    for path in mount.closed:
        place = Path(mount.place(path))
        if rng.random() < 0.3 and place.is_file() and not place.is_symlink():
            os.truncate(place, 0)
    mount.closed.clear()


class Synced(NamedTuple):
    """How much of a log is certain to be on the disk.

    Attributes:
        header: of the write-ahead log; a new one begins when all of the old one is in the database, and synced.
        size: of that log.
    """

    header: bytes = b""
    size: int = 0

    @classmethod
    def now(cls, directory: Path) -> Synced:
        """All of a log, which was synced."""
        return cls(_header(directory), _frames(directory, _VALID))

    @classmethod
    def copy(cls, directory: Path) -> Synced:
        """All of a log that nobody has opened yet."""
        wal = directory / _WAL
        return cls(_header(directory), wal.stat().st_size if wal.exists() else 0)

    def later(self, directory: Path) -> Synced:
        """What is certain by now: SQLite syncs what it is about to copy to the database."""
        header = _header(directory)
        return Synced(header, max(self.size if header == self.header else 0, _frames(directory, _COPIED)))


def _header(directory: Path) -> bytes:
    try:
        with (directory / _WAL).open("rb") as file:
            return file.read(_WAL_HEADER)
    except FileNotFoundError:
        return b""


def _frames(directory: Path, where: int) -> int:
    """How many bytes of a write-ahead log its index counts."""
    try:
        with (directory / _INDEX).open("rb") as file:
            file.seek(where)
            return _WAL_HEADER + _FRAME * int.from_bytes(file.read(4), sys.byteorder)
    except FileNotFoundError:
        return 0


def cut_log(source: Path, target: Path, synced: Synced, rng: random.Random) -> None:
    """What is left of a log after the power was cut: what was synced, and of the rest whatever chance leaves."""
    copy_disk(source, target)
    if (target / _WAL).exists():
        # SQLite forgets a transaction that is not whole.
        end = max(_frames(source, _VALID), synced.size)
        kept = rng.choice((synced.size, end, rng.randint(synced.size, end)))
        os.truncate(target / _WAL, min(kept, (target / _WAL).stat().st_size))
