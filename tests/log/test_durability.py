"""Durability: what has returned is there after kill -9, a power cut, or a full disk (docs/log.md).

A power cut is played by keeping, at each fsync of the write-ahead log, a copy of what is on disk then: the copy is all
that is left of everything later.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from basefs.errors import NoSpace
from basefs.log.check import check
from basefs.log.content import LARGE_CONTENT
from basefs.log.placement import Placed
from basefs.replica.replica import LOG_FILE, Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.tree import Tree
from tests.support.helpers import ROOT_KEY, content_of, make_replica, noise, path, tree_of


class Disk:
    """What a power cut would leave of a log, in `left`."""

    def __init__(self, directory: Path, left: Path, patch: pytest.MonkeyPatch) -> None:
        self.left = left
        self.syncs = 0
        self._directory = directory
        self._fsync = os.fsync
        patch.setattr(os, "fsync", self._on_fsync)

    def _on_fsync(self, descriptor: int) -> None:
        synced = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self._fsync(descriptor)
        if synced == self._directory / f"{LOG_FILE}-wal":
            self.syncs += 1
            shutil.rmtree(self.left, ignore_errors=True)
            self.left.mkdir()
            for name in (LOG_FILE, f"{LOG_FILE}-wal"):
                shutil.copy(self._directory / name, self.left / name)

    def after_power_cut(self) -> Replica:
        """The log that is left."""
        return Replica(self.left, [ROOT_KEY])


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path / "log", tmp_path / "left", monkeypatch)


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    made = make_replica(tmp_path / "log")
    yield made
    made.close()


def test_what_was_synced_survives_a_power_cut(replica: Replica, disk: Disk) -> None:
    for number in range(20):
        replica.commit(lambda author, n=number: author.write(path(f"/{n}"), noise(n, 5000)))  # type: ignore[misc]
        replica.sync_to_disk()
        shown = tree_of(replica)
        left = disk.after_power_cut()
        assert tree_of(left) == shown
        assert left.root_hash() == replica.root_hash()
        left.close()
    assert disk.syncs == 20


def test_a_large_content_that_was_synced_survives_a_power_cut(replica: Replica, disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(noise(0, 3 * LARGE_CONTENT))
    with (tmp_path / "source").open("rb") as file:
        content = content_of(file)
    replica.commit(lambda author: author.write(path("/large"), content))
    replica.sync_to_disk()
    left = disk.after_power_cut()
    assert left.read(path("/large")) == noise(0, 3 * LARGE_CONTENT)
    left.close()
    assert check(disk.left / LOG_FILE) == []


def test_nothing_is_synced_twice(replica: Replica, disk: Disk) -> None:
    replica.commit(lambda author: author.write(path("/f"), b"x"))
    replica.sync_to_disk()
    replica.sync_to_disk()
    assert disk.syncs == 1


def test_what_others_sent_is_synced_too(replica: Replica, disk: Disk, tmp_path: Path) -> None:
    other = make_replica(tmp_path / "other")
    theirs = other.commit(lambda author: author.write(path("/f"), b"theirs"))
    replica.apply(theirs.entries, theirs.blocks)
    replica.sync_to_disk()
    left = disk.after_power_cut()
    assert left.read(path("/f")) == b"theirs"
    left.close()
    other.close()


def test_an_entry_is_in_the_log_before_it_is_in_the_view(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    update = Tree.update
    seen: list[bool] = []

    def look(self: Tree, accepted: Sequence[Placed], completed: Sequence[Placed]) -> None:
        with closing(sqlite3.connect(replica.directory / LOG_FILE)) as db:
            query = "SELECT count(*) FROM entries WHERE hash = ?"
            seen.extend(db.execute(query, (placed.entry.hash,)).fetchone() == (1,) for placed in accepted)
        update(self, accepted, completed)

    monkeypatch.setattr(Tree, "update", look)
    replica.commit(lambda author: author.make_directory(path("/d"), mode=0o700))
    replica.commit(lambda author: author.write(path("/d/f"), noise(1, 100_000)))
    assert seen == [True] * 3


def test_nobody_hears_of_a_series_before_it_is_in_the_log(replica: Replica) -> None:
    heard: list[int] = []

    def look(applied: object) -> None:
        with closing(sqlite3.connect(replica.directory / LOG_FILE)) as db:
            heard.append(db.execute("SELECT count(*) FROM entries").fetchone()[0])

    def series(author: Author) -> Iterator[Draft]:
        yield author.make_directory(path("/d"))
        yield author.write(path("/d/f"), b"x")

    replica.subscribe(look)
    replica.commit(series)
    assert heard == [4]


# -- a full disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def large(author: Author) -> Draft:
    """A file that does not fit."""
    return author.write(path("/large"), noise(1, 20 * 1024 * 1024))


def fits(author: Author) -> Draft:
    """A file that fits."""
    return author.write(path("/large"), noise(2, LARGE_CONTENT + 1))


def series_with_large(author: Author) -> Iterator[Draft]:
    """Files of which the last does not fit."""
    yield author.make_directory(path("/new"))
    yield author.write(path("/new/f"), b"x")
    yield large(author)


@pytest.mark.fuse
@pytest.mark.parametrize("make", [large, series_with_large])
def test_a_large_file_on_a_full_disk(full_disk: Path, make: Callable[[Author], Draft]) -> None:
    replica = make_replica(full_disk / "log")
    replica.commit(lambda author: author.write(path("/f"), b"before"))
    before, totals = tree_of(replica), replica.totals()
    for _ in range(3):
        with pytest.raises(NoSpace, match="free some space"):
            replica.commit(make)
    after = replica.totals()
    assert tree_of(replica) == before
    assert (after["entries"], after["blocks"]) == (totals["entries"], totals["blocks"]), "no room is taken in vain"
    assert replica.check_view() == []
    replica.commit(fits)
    assert replica.read(path("/large")) == noise(2, LARGE_CONTENT + 1)
    replica.close()
    assert check(full_disk / "log" / LOG_FILE) == []
