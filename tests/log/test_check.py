"""Check and repair: damage of every kind is found, what is whole stays, and a peer brings the rest."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs import path as paths
from basefs.errors import BaseFSError, DamagedLog, StoreError
from basefs.log.check import check
from basefs.log.content import LARGE_CONTENT
from basefs.log.repair import repair
from basefs.log.schema import FORMAT
from basefs.replica.replica import LOG_FILE, Replica
from tests.support.examples import part
from tests.support.helpers import ALICE, BOB, ROOT_KEY, Clock, genesis, make_replica, noise, path, tree_of
from tests.support.names import make_link, make_symlink

TABLES = ("entries", "blocks", "paths", "granted", "links", "meta", "waiting", "missing")
#: Columns without a visible effect: the numbers of rows that keep their order, and the arrival of a write.
HARMLESS = {("entries", "seq"), ("blocks", "seq"), ("missing", "seq"), ("waiting", "since")}


def fill(replica: Replica) -> None:
    """A log with rows in every table."""
    born = genesis((ROOT_KEY, ALICE))
    replica.apply(born, [])
    replica.commit(lambda author: author.make_directory(path("/d"), mode=0o700))
    replica.commit(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    replica.commit(lambda author: author.write(path("/d/large"), noise(1, 2000)))
    replica.commit(lambda author: author.write(path("/d/large"), noise(1, 2000) + b"more"))
    replica.commit(lambda author: author.write(path("/one"), b"one"))
    replica.commit(lambda author: make_link(author, path("/link"), path("/one")))
    replica.commit(lambda author: make_symlink(author, path("/s"), b"one"))
    replica.commit(lambda author: author.remove(path("/s"), directory=False))
    other = make_replica(replica.directory.with_name("other"), (ALICE,), born=born)
    theirs = other.commit(lambda author: author.write(path("/coming"), noise(2, 2000)))
    replica.apply(theirs.entries, theirs.blocks[:2])
    other.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a whole log, closed."""
    directory = tmp_path_factory.mktemp("whole") / "log"
    replica = make_replica(directory)
    fill(replica)
    replica.close()
    assert check(directory / LOG_FILE) == []
    return directory


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A log to be damaged."""
    shutil.copytree(whole, tmp_path / "log")
    return tmp_path / "log" / LOG_FILE


def change(log: Path, *statements: str | tuple[str, tuple[object, ...]]) -> None:
    """Change a log behind its triggers' back."""
    with closing(sqlite3.connect(log, isolation_level=None)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            if isinstance(statement, str):
                db.execute(statement)
            else:
                db.execute(*statement)
        for _, sql in triggers:
            db.execute(sql)


def readable(replica: Replica) -> dict[paths.Path, bytes]:
    """What can be read of each live file; what cannot is left out."""
    found = {}
    for names, kind in replica.live_paths():
        if kind.value == "file":
            try:
                found[names] = replica.read(names)
            except StoreError:
                continue
    return found


def sync(source: Replica, target: Replica) -> None:
    """Bring everything that a peer has."""
    for raw in source.walk(()):
        target.add([raw], [])
    wanted = target.missing_blocks(100)
    while wanted:
        blocks = [block for _, hash in wanted if (block := source.block(hash)) is not None]
        if not blocks:
            break
        target.add([], blocks)
        wanted = target.missing_blocks(100)


def heal(log: Path, whole: Path) -> None:
    """Repair a log, sync it with a whole one, and see that it is whole again and equal."""
    findings, aside = repair(log)
    assert findings and aside is not None and aside.exists()
    left = [finding for finding in check(log) if finding.table != "entries" or "builds on" not in finding.problem]
    assert left == []
    peer = Replica(whole)
    replica = Replica(log.parent, [ROOT_KEY])
    contents = readable(peer)
    for names, content in readable(replica).items():
        assert content == contents[names] or contents[names].startswith(content)
    sync(peer, replica)
    assert replica.check_view() == []
    assert tree_of(replica) == tree_of(peer)
    assert replica.totals()["entries"] == peer.totals()["entries"]
    assert replica.root_hash() == peer.root_hash()
    replica.commit(lambda author: author.write(path("/after"), b"after"))
    replica.close()
    peer.close()
    assert check(log) == []


# -- what is whole ----------------------------------------------------------------------------------------------------


def test_every_table_has_rows(whole: Path) -> None:
    with closing(sqlite3.connect(whole / LOG_FILE)) as db:
        for table in TABLES:
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone()[0], table


def test_a_whole_log_is_left_alone(copy: Path) -> None:
    before = copy.read_bytes()
    assert check(copy) == []
    assert repair(copy) == ([], None)
    assert copy.read_bytes() == before
    assert [file.name for file in copy.parent.glob(".check*")] == []
    assert [file.name for file in copy.parent.glob("*repair*")] == []


def test_a_log_in_use_is_checked_as_it_is(tmp_path: Path) -> None:
    replica = make_replica(tmp_path / "log")
    fill(replica)
    replica.commit(lambda author: author.write(path("/big"), noise(5, LARGE_CONTENT + 1)))
    assert check(tmp_path / "log" / LOG_FILE) == []
    replica.look_again(-1000)
    assert check(tmp_path / "log" / LOG_FILE) == []
    replica.commit(lambda author: author.write(path("/more"), b"more"))
    replica.close()


def test_every_row_is_counted(copy: Path) -> None:
    done: list[int] = []
    check(copy, done.append)
    with closing(sqlite3.connect(copy)) as db:
        rows = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("entries", "blocks")]
    assert sum(done) == sum(rows)


# -- any bit of any row -----------------------------------------------------------------------------------------------


def _flip(value: object, chance: random.Random) -> object:
    if isinstance(value, bytes) and value:
        position = chance.randrange(len(value))
        return value[:position] + bytes((value[position] ^ 1 << chance.randrange(8),)) + value[position + 1 :]
    if isinstance(value, int):
        return value ^ 1 << chance.randrange(6)
    if isinstance(value, float):
        return value + 1
    return b"x" if value in (None, b"") else str(value) + "x"


@part(5)
@given(st.sampled_from(TABLES), st.integers(0, 2**32 - 1))
def test_any_bit_that_flips_is_found(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, table: str, seed: int
) -> None:
    chance = random.Random(seed)
    log = tmp_path_factory.mktemp("flip") / LOG_FILE
    shutil.copy(whole / LOG_FILE, log)
    with closing(sqlite3.connect(log)) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        key = db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
    row = chance.choice(key)
    position = chance.randrange(len(columns))
    column = columns[position]
    where = " AND ".join(f"{name} IS ?" for name in columns)
    try:
        change(log, (f"UPDATE {table} SET {column} = ? WHERE {where}", (_flip(row[position], chance), *row)))
    except sqlite3.IntegrityError:
        return  # it would be another row, which SQLite refuses
    assert check(log) or (table, column) in HARMLESS
    if (table, column) not in HARMLESS:
        try:
            heal(log, whole)
        except DamagedLog:
            assert table == "entries" and row[0] in (1, 2), "only without the root and its grant nothing can be done"


@part(15)
@given(st.sampled_from(TABLES), st.integers(0, 2**32 - 1))
def test_any_row_that_is_gone_is_found(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, table: str, seed: int
) -> None:
    log = tmp_path_factory.mktemp("gone") / LOG_FILE
    shutil.copy(whole / LOG_FILE, log)
    with closing(sqlite3.connect(log)) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        row = random.Random(seed).choice(db.execute(f"SELECT * FROM {table}").fetchall())
    change(log, (f"DELETE FROM {table} WHERE " + " AND ".join(f"{name} IS ?" for name in columns), row))
    assert check(log)
    try:
        heal(log, whole)
    except DamagedLog:
        assert table == "entries" and row[0] in (1, 2)


# -- the file ---------------------------------------------------------------------------------------------------------


def cut(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])


def cut_short(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:1000])


def empty(log: Path) -> None:
    log.write_bytes(b"")


def rubbish(log: Path) -> None:
    log.write_bytes(noise(1, 50_000))


@pytest.mark.parametrize("damage", [cut, cut_short, empty, rubbish])
def test_a_damaged_file_is_told_in_one_line(copy: Path, whole: Path, damage: Callable[[Path], None]) -> None:
    damage(copy)
    findings = check(copy)
    assert findings
    assert all("\n" not in finding.problem for finding in findings)
    try:
        heal(copy, whole)
    except DamagedLog as error:
        assert "basefs get" in str(error)
    try:
        Replica(copy.parent).close()
    except BaseFSError as error:
        assert "\n" not in str(error)


@pytest.mark.slow
def test_any_page_that_is_zeroed(whole: Path, tmp_path: Path) -> None:
    size = (whole / LOG_FILE).stat().st_size
    for number in range(size // 4096):
        directory = tmp_path / str(number)
        directory.mkdir()
        log = directory / LOG_FILE
        raw = bytearray((whole / LOG_FILE).read_bytes())
        raw[number * 4096 : (number + 1) * 4096] = bytes(4096)
        log.write_bytes(raw)
        if not check(log):
            # A page that holds nothing.
            assert tree_of(Replica(directory)) == tree_of(Replica(whole))
            continue
        try:
            heal(log, whole)
        except DamagedLog as error:
            assert "basefs get" in str(error)


@pytest.mark.logs("is damaged")
def test_a_log_with_torn_pages_never_ends_in_a_traceback(whole: Path, tmp_path: Path) -> None:
    """Reading gives what was written, or an error of ours."""
    healthy = Replica(whole)
    contents = readable(healthy)
    healthy.close()
    size = (whole / LOG_FILE).stat().st_size
    for number in range(size // 4096):
        log = tmp_path / str(number) / LOG_FILE
        log.parent.mkdir()
        raw = bytearray((whole / LOG_FILE).read_bytes())
        raw[number * 4096 + 8 : (number + 1) * 4096 - 8] = noise(number, 4080)
        log.write_bytes(raw)
        try:
            replica = Replica(log.parent, [ROOT_KEY])
        except BaseFSError:
            continue
        for use in (
            lambda replica: readable(replica),
            lambda replica: [contents[names].startswith(data) or 1 / 0 for names, data in readable(replica).items()],
            lambda replica: list(replica.walk(())),
            lambda replica: replica.listing(()),
            lambda replica: replica.survey(path("/d/large")),
            lambda replica: replica.missing_blocks(9),
            lambda replica: replica.apply(genesis((ROOT_KEY, ALICE)), []),
            lambda replica: replica.commit(lambda author: author.write(path("/new"), noise(1, 100_000))),
            lambda replica: replica.look_again(-1000),
            lambda replica: replica.sync_to_disk(),
            lambda replica: replica.totals(),
            lambda replica: replica.key_names(),
        ):
            with contextlib.suppress(BaseFSError):
                use(replica)  # type: ignore[no-untyped-call]
        replica.close()


def test_triggers_that_are_gone(copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as db:
        db.execute("DROP TRIGGER entries_no_delete")
    assert [(finding.table, finding.row) for finding in check(copy)] == [("schema", "entries_no_delete")]
    repair(copy)
    assert check(copy) == []


# -- what is lost and what is not -------------------------------------------------------------------------------------


def test_what_builds_on_a_lost_entry_waits_for_it(copy: Path, whole: Path) -> None:
    """Nobody else may have it, so it must not go with what it builds on."""
    with closing(sqlite3.connect(copy)) as db:
        made = next(seq for seq, data in db.execute("SELECT seq, data FROM entries") if data[37:40] == b"\x01\x01d")
    replica = Replica(copy.parent, [ROOT_KEY])
    mine = replica.commit(lambda author: author.write(path("/d/mine"), b"only here")).entries[0]
    replica.close()
    change(copy, f"UPDATE entries SET data = x'00' WHERE seq = {made}")
    findings = check(copy)
    assert {finding.lost for finding in findings if finding.table == "entries"} == {True}
    repair(copy)
    replica = Replica(copy.parent, [ROOT_KEY])
    assert path("/d") not in dict(replica.live_paths())
    assert replica.entry(mine.hash) is None, "it has no place, so nobody is given it"
    assert replica.read(path("/one")) == b"one"
    replica.close()
    replica = Replica(copy.parent, [ROOT_KEY], clock=Clock())
    peer = Replica(whole)
    sync(peer, replica)
    assert replica.read(path("/d/mine")) == b"only here"
    assert replica.check_view() == []
    replica.close()
    peer.close()
    assert check(copy) == []


def test_a_lost_grant_makes_its_entries_wait(copy: Path, whole: Path) -> None:
    replica = Replica(copy.parent, [BOB])
    replica.commit(lambda author: author.write(path("/d/bobs"), b"bob was here"))
    replica.close()
    change(copy, ("DELETE FROM entries WHERE instr(data, ?) AND kind = 2", (BOB.public,)))
    repair(copy)
    replica = Replica(copy.parent)
    assert b"bobs" not in replica.names_in(path("/d"))
    peer = Replica(whole)
    sync(peer, replica)
    assert replica.read(path("/d/bobs")) == b"bob was here"
    replica.close()
    peer.close()
    assert check(copy) == []


def test_when_entries_came_is_kept(copy: Path, whole: Path) -> None:
    def times(log: Path) -> dict[bytes, float]:
        with closing(sqlite3.connect(log)) as db:
            return dict(db.execute("SELECT hash, time FROM arrivals JOIN entries USING (seq)").fetchall())

    before = times(copy)
    change(copy, "UPDATE entries SET data = x'00' WHERE seq = (SELECT max(seq) - 3 FROM entries)")
    repair(copy)
    after = times(copy)
    assert all(before.get(hash, time) == time for hash, time in after.items())
    assert set(after.values()) <= set(before.values())
    assert len(after) >= len(before) - 3
    change(copy, "UPDATE arrivals SET seq = 1000 WHERE seq = (SELECT max(seq) FROM arrivals)")
    assert "arrivals" in {finding.table for finding in check(copy)}


@pytest.fixture
def lost_root(copy: Path) -> Iterator[Path]:
    change(copy, "UPDATE entries SET data = x'00' WHERE seq = 1")
    yield copy


@pytest.mark.logs("is damaged")
def test_a_lost_root_entry_says_what_to_do(lost_root: Path) -> None:
    before = lost_root.read_bytes()
    assert any(finding.table == "entries" and finding.row == "1" for finding in check(lost_root))
    with pytest.raises(DamagedLog, match="basefs get"):
        repair(lost_root)
    assert lost_root.read_bytes() == before
    with pytest.raises(DamagedLog, match="basefs get"):
        Replica(lost_root.parent)


def test_no_log(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no log"):
        check(tmp_path / LOG_FILE)
    with pytest.raises(StoreError, match="no log"):
        repair(tmp_path / LOG_FILE)


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
def test_a_log_of_another_version_is_neither_checked_nor_repaired(tmp_path: Path, version: int) -> None:
    make_replica(tmp_path / "log").close()
    log = tmp_path / "log" / LOG_FILE
    with closing(sqlite3.connect(log)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = log.read_bytes()
    for look in (check, repair):
        with pytest.raises(StoreError, match=f"has log format {version}"):
            look(log)
    assert log.read_bytes() == before
    assert [entry.name for entry in log.parent.iterdir() if "damaged" in entry.name] == []
