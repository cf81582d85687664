"""A copy of a log that is only added to is what the log is."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from basefs.replica.replica import LOG_FILE
from tests.simulation.disk import DiskCopy, copy_disk

EVERYTHING = "SELECT * FROM things ORDER BY number, thing"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database that is written back when a test says so."""
    (tmp_path / "here").mkdir()
    with closing(sqlite3.connect(tmp_path / "here" / LOG_FILE, isolation_level=None)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA wal_autocheckpoint = 0")
        # Less than a transaction has, so that some of it is written before the end.
        made.execute("PRAGMA cache_size = 4")
        made.execute("CREATE TABLE things (number INTEGER, thing BLOB)")
        yield made


@pytest.mark.parametrize("seed", range(2))
def test_a_copy_has_each_transaction_and_nothing_else(log: sqlite3.Connection, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    copy = DiskCopy(tmp_path / "copy")
    for number in range(60):
        log.execute("BEGIN")
        for _ in range(rng.randrange(5)):
            log.execute("INSERT INTO things VALUES (?, ?)", (number, rng.randbytes(rng.choice((10, 5000, 20_000)))))
        log.execute("UPDATE things SET thing = NULL WHERE number = ?", (rng.randrange(60),))
        log.execute(rng.choice(("COMMIT", "COMMIT", "ROLLBACK")))
        if rng.random() < 0.1:
            log.execute("PRAGMA wal_checkpoint")
        if rng.random() < 0.5:
            copy.update(tmp_path / "here")
            # What is opened writes to its log.
            copy_disk(tmp_path / "copy", tmp_path / "opened")
            with closing(sqlite3.connect(tmp_path / "opened" / LOG_FILE)) as opened:
                assert opened.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                assert opened.execute(EVERYTHING).fetchall() == log.execute(EVERYTHING).fetchall()


def test_a_part_of_a_transaction_that_a_cut_has_left_is_not_copied(log: sqlite3.Connection, tmp_path: Path) -> None:
    for thing in (b"kept", b"lost"):
        log.execute("INSERT INTO things VALUES (1, ?)", (thing,))
    here, copy = tmp_path / "cut", DiskCopy(tmp_path / "copy")
    copy_disk(tmp_path / "here", here)
    wal = here / f"{LOG_FILE}-wal"
    os.truncate(wal, wal.stat().st_size - 1000)
    with closing(sqlite3.connect(here / LOG_FILE, isolation_level=None)) as again:
        for thing in (b"new", b"newer"):
            copy.update(here)
            again.execute("INSERT INTO things VALUES (1, ?)", (thing,))
        copy.update(here)
        with closing(sqlite3.connect(tmp_path / "copy" / LOG_FILE)) as opened:
            assert opened.execute("SELECT thing FROM things").fetchall() == [(b"kept",), (b"new",), (b"newer",)]
