"""Snapshots: what is committed, as of one moment, without waiting for the writer."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from basefs.errors import ReadOnly, StoreError
from basefs.log.cache import ContentCache
from basefs.log.database import Database
from basefs.log.hashes import BlockHash, EntryHash
from basefs.log.interface import LogState
from basefs.log.snapshots import SnapshotReader
from basefs.replica.replica import LOG_FILE, Replica
from tests.support.helpers import ROOT_KEY, make_replica, noise, path
from tests.support.patience import DEADLINE


class Given(Database):
    """A log file whose readers get a connection that a test has made, once there is one."""

    given: Any = None

    def connect_reader(self) -> Any:
        return self.given or super().connect_reader()


def ask_all(state: LogState, entry: EntryHash, block: BlockHash) -> dict[str, object]:
    """Everything that the sync protocol can ask a log."""
    return {
        "identity": state.identity,
        "root": state.root_hash(),
        "digest": state.digest(),
        "listing": state.listing(()),
        "path hash": state.path_hash(path("/f")),
        "child hashes": state.child_hashes((), [b"f", b"g", b"h"]),
        "walk": list(state.walk(())),
        "entry": state.entry(entry),
        "block": state.block(block),
        "has block": state.has_block(block),
        "missing": state.missing_blocks(4),
    }


def test_peers_are_answered_while_a_transaction_is_under_way_and_told_nothing_of_it(tmp_path: Path) -> None:
    replica = make_replica(tmp_path, (ROOT_KEY,))
    written = replica.commit(lambda author: author.write(path("/f"), noise(0, 3000)))
    entry, block = written.entries[0].hash, written.blocks[0].hash
    before = ask_all(replica, entry, block)
    assert before["entry"] == written.entries[0].encode()
    assert before["block"] == written.blocks[0].data and before["has block"]
    answers: list[dict[str, object]] = []

    def make(author):  # type: ignore[no-untyped-def]
        draft = author.write(path("/g"), noise(1, 3000))
        yield draft
        # All of the draft is in the database now, and may still be taken back.
        assert replica.survey(path("/g")).entries
        thread = threading.Thread(target=lambda: answers.append(ask_all(replica, entry, block)), daemon=True)
        thread.start()
        thread.join(DEADLINE)
        assert not thread.is_alive(), "who answers a peer waits for who writes"
        assert replica.entry(draft.entries[0].hash) is None
        assert replica.block(draft.blocks[0].hash) is None
        assert replica.listing(path("/g")) is None

    replica.commit(make)
    assert answers == [before]
    assert replica.listing(path("/g")) is not None
    assert replica.root_hash() != before["root"]
    replica.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda replica: replica.listing(()),
        lambda replica: replica.path_hash(path("/f")),
        lambda replica: replica.child_hashes((), [b"f", b"g"]),
    ],
)
def test_what_belongs_together_is_told_as_of_one_moment(
    tmp_path: Path, ask: Callable[[Replica | SnapshotReader], object]
) -> None:
    """Though another thread commits after each of the statements that it takes."""
    replica = make_replica(tmp_path, (ROOT_KEY,))
    replica.commit(lambda author: author.write(path("/f"), b"text"))
    before = ask(replica)
    commits = 0

    def change(statement: str) -> None:
        nonlocal commits
        if statement.startswith("SELECT") and commits < 3:
            commits += 1
            content = noise(commits, 3000)
            replica.commit(lambda author: [author.write(path("/f"), content), author.write(path("/g"), content)])

    class Changing:
        """The connection, and somebody who writes as soon as it was asked something."""

        in_transaction = property(lambda self: connection.in_transaction)

        def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
            cursor = connection.execute(statement, *arguments)
            rows = cursor.fetchall()
            change(statement)
            return Rows(rows)  # type: ignore[return-value]

    class Rows(list[tuple[object, ...]]):
        def fetchall(self) -> list[tuple[object, ...]]:
            return self

        def fetchone(self) -> tuple[object, ...] | None:
            return self[0] if self else None

    with closing(Given(tmp_path / LOG_FILE)) as database:
        connection = database.connect_reader()
        database.given = Changing()
        reader = SnapshotReader(database, ContentCache(None))
        assert ask(reader) == before
        assert commits
        connection.close()
    replica.close()


@pytest.mark.logs("is damaged")
def test_what_is_damaged_is_told_to_nobody_and_reported(tmp_path: Path) -> None:
    replica = make_replica(tmp_path, (ROOT_KEY,))
    written = replica.commit(lambda author: author.write(path("/f"), noise(0, 3000)))
    replica.close()
    entry, block = written.entries[0].hash, written.blocks[0].hash
    with contextlib.closing(sqlite3.connect(tmp_path / LOG_FILE)) as database, database:
        for table, hash in (("entries", entry), ("blocks", block)):
            database.execute(f"DROP TRIGGER {table}_no_update")
            database.execute(f"UPDATE {table} SET data = zeroblob(length(data)) WHERE hash = ?", (hash,))
    replica = Replica(tmp_path, (ROOT_KEY,))
    assert replica.entry(entry) is None
    assert replica.block(block) is None
    listing = replica.listing(path("/f"))
    assert listing is not None
    assert listing.entries == ()
    assert replica.damaged == 2
    replica.close()


def test_an_error_of_the_database_is_one_of_ours_and_the_next_question_is_answered(tmp_path: Path) -> None:
    replica = make_replica(tmp_path, (ROOT_KEY,))
    database = Given(tmp_path / LOG_FILE)
    connection = database.given = database.connect_reader()
    reader = SnapshotReader(database, ContentCache(None))
    connection.set_progress_handler(lambda: 1, 1)
    for ask in (lambda: reader.path_hash(path("/f")), lambda: reader.listing(())):
        with pytest.raises(StoreError):
            ask()
    connection.set_progress_handler(None, 0)
    assert reader.listing(()) == replica.listing(())
    reader.close()
    replica.close()
    with pytest.raises(StoreError):
        replica.listing(())


@pytest.mark.logs("is damaged")
def test_a_schema_that_is_damaged_while_the_log_is_open_is_an_error_of_ours_and_leaks_nothing(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    replica.close()
    replica = Replica(tmp_path, [ROOT_KEY])
    file = tmp_path / LOG_FILE
    raw = file.read_bytes()
    with file.open("r+b") as opened:
        opened.seek(raw.index(b"CREATE TABLE entries") + 3)
        opened.write(b"\xff")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with pytest.raises(StoreError):
            replica.listing(())
    # SQLite itself keeps one until its file has no locks.
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
    with pytest.raises(ReadOnly):
        replica.commit(lambda author: author.make_directory(path("/d")))
    with contextlib.suppress(StoreError):
        replica.close()
