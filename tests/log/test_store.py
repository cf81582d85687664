"""The store: append-only, durable, and honest about damage (docs/formats.md, section 8)."""

from __future__ import annotations

import logging
import pathlib
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import BaseFSError, DamagedLog, NoSpace, ReadOnly, StoreError
from basefs.log.entries import CHILD_ACTIONS, KEY_ACTIONS, Action, Entry
from basefs.log.hashes import addend, sum_hash
from basefs.log.schema import FORMAT
from basefs.log.store import Store
from basefs.path import Path
from basefs.replica.replica import LOG_FILE, Replica
from tests.support.examples import part
from tests.support.helpers import ROOT_KEY, Clock, Node, copy_replica, make_replica, noise, path, tree_of
from tests.support.names import make_link
from tests.support.project import ROOT
from tests.view.histories import Step, World, steps

# -- the file ---------------------------------------------------------------------------------------------------------


def some_files(replica: Replica) -> None:
    """A directory and some files, one of them of several blocks and several writes."""
    replica.commit(lambda author: author.make_directory(path("/d")))
    replica.commit(lambda author: author.write(path("/d/one"), b"one"))
    replica.commit(lambda author: author.write(path("/d/large"), noise(1, 2000)))
    replica.commit(lambda author: author.write(path("/d/large"), noise(1, 2000) + b"more"))
    replica.commit(lambda author: make_link(author, path("/link"), path("/d/one")))


def test_only_the_owner_may_read_the_log(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path)
    some_files(replica)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob(f"{LOG_FILE}*")}
    assert modes == dict.fromkeys((LOG_FILE, f"{LOG_FILE}-wal", f"{LOG_FILE}-shm"), 0o600)
    replica.close()


@pytest.mark.parametrize("table", ["entries", "blocks"])
@pytest.mark.parametrize("statement", ["DELETE FROM {}", "UPDATE {} SET data = x'00'", "UPDATE {} SET seq = seq + 100"])
def test_the_log_only_grows(tmp_path: pathlib.Path, table: str, statement: str) -> None:
    replica = make_replica(tmp_path)
    some_files(replica)
    replica.close()
    with closing(sqlite3.connect(tmp_path / LOG_FILE)) as db:
        before = db.execute(f"SELECT * FROM {table}").fetchall()
        assert before
        with pytest.raises(sqlite3.IntegrityError, match="only grows"):
            db.execute(statement.format(table))
        assert db.execute(f"SELECT * FROM {table}").fetchall() == before


@pytest.mark.parametrize(("version", "remedy"), [(FORMAT - 1, "basefs get"), (FORMAT + 1, "upgrade")])
def test_another_format(tmp_path: pathlib.Path, version: int, remedy: str) -> None:
    make_replica(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / LOG_FILE)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreError, match=f"format {version}, this version reads {FORMAT}.*{remedy}"):
        Replica(tmp_path)


def test_no_log_and_a_log_too_many(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StoreError, match="no log"):
        Replica(tmp_path)
    make_replica(tmp_path).close()
    with pytest.raises(StoreError, match="exists"):
        Replica.create(tmp_path, None)


def test_a_file_that_is_no_log(tmp_path: pathlib.Path) -> None:
    (tmp_path / LOG_FILE).write_bytes(b"rubbish " * 1000)
    with pytest.raises(StoreError):
        Replica(tmp_path)


@pytest.mark.parametrize(
    "damage",
    ["PRAGMA user_version = 99", "DROP TABLE granted", "ALTER TABLE waiting RENAME COLUMN state TO other"],
)
def test_a_log_that_cannot_be_opened_leaves_no_file_open(tmp_path: pathlib.Path, damage: str) -> None:
    make_replica(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / LOG_FILE)) as db:
        db.execute(damage)
    # What was raised keeps everything on its way from the collector of garbage.
    with pytest.raises(StoreError) as raised:
        Replica(tmp_path)
    assert not open_files(tmp_path), raised


@pytest.mark.logs("does not match its hash")
def test_a_view_that_cannot_be_opened_leaves_no_file_open(tmp_path: pathlib.Path) -> None:
    make_replica(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / LOG_FILE)) as db:
        db.executescript("DROP TRIGGER entries_no_update; UPDATE entries SET data = x'00' WHERE seq = 1;")
    with pytest.raises(DamagedLog) as raised:
        Replica(tmp_path)
    assert not open_files(tmp_path), raised


def open_files(directory: pathlib.Path) -> list[str]:
    """The files in a directory that this process has open."""
    return [file.path for file in psutil.Process().open_files() if directory in pathlib.Path(file.path).parents]


def test_history_stays(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path)
    some_files(replica)
    before = replica.totals()
    replica.commit(lambda author: author.remove(path("/d/large"), directory=False))
    after = replica.totals()
    assert (after["entries"], after["blocks"]) == (before["entries"] + 1, before["blocks"])
    replica.close()


# -- the Merkle tree --------------------------------------------------------------------------------------------------


def test_the_paths_that_have_grants_cost_the_same_in_any_log(tmp_path: pathlib.Path) -> None:
    """Each status asks for them, and so does a daemon at its start, several times."""
    replica = make_replica(tmp_path, (ROOT_KEY,))
    steps = []
    for first in (0, 10):
        for number in range(first, 20 * first + 10):
            replica.commit(lambda author, number=number: author.write(path(f"/file{number}"), b"content"))  # type: ignore[misc]
        counted: list[None] = []
        with closing(Store(tmp_path / LOG_FILE)) as store:
            store.database.main.set_progress_handler(lambda counted=counted: counted.append(None), 1)  # type: ignore[misc]
            store.key_paths()
            store.database.main.set_progress_handler(None, 0)
        steps.append(len(counted))
    assert steps[0] == steps[1] > 0
    replica.close()


class Expected:
    """The Merkle tree computed from what is in the table `entries`, and nothing else."""

    def __init__(self, replica: Replica) -> None:
        with closing(sqlite3.connect(replica.directory / LOG_FILE)) as db:
            self.entries = [Entry.decode(data) for (data,) in db.execute("SELECT data FROM entries ORDER BY seq")]
        self.names: dict[bytes, Path] = {}
        known: dict[bytes, Entry] = {}
        for entry in self.entries:
            parent = known.get(entry.parent)
            if parent is None:
                self.names[entry.hash] = ()
            elif parent.action is Action.MKDIR and entry.action in CHILD_ACTIONS:
                self.names[entry.hash] = (*self.names[parent.hash], entry.name)
            else:
                assert entry.action in KEY_ACTIONS or entry.action.is_annotation or entry.name == parent.name
                self.names[entry.hash] = self.names[parent.hash]
            known[entry.hash] = entry

    def hashes(self) -> dict[Path, bytes]:
        """The hash of every path."""
        found: dict[Path, int] = {}
        for entry in self.entries:
            names = self.names[entry.hash]
            for depth in range(len(names) + 1):
                found[names[:depth]] = found.get(names[:depth], 0) + addend(entry.hash)
        return {names: sum_hash(total % 2**2048) for names, total in found.items()}


@part(3)
# What a former root key wrote may be withheld, which this model does not know.
@given(steps(recoveries=False), st.integers(0, 2**32 - 1))
def test_every_hash_equals_one_from_scratch(history: list[Step], seed: int) -> None:
    chance = random.Random(seed)

    def verify(node: Node) -> None:
        """Compare."""
        if not node.entries:
            return
        hashes = Expected(node.replica).hashes()
        assert node.replica.root_hash() == hashes[()]
        assert {names: node.replica.path_hash(names) for names in hashes} == hashes

    with World.temporary() as world:
        for step in history:
            world.play(step)
        observer = world.node("observer")
        blocks = {hash: block for hash, block in world.blocks().items() if chance.random() < 0.8}
        world.deliver(observer, world.entries(), blocks, seed, verify)
        world.deliver(observer, world.entries(), world.blocks(), seed, verify)
        assert observer.replica.missing_blocks(1) == []


# -- durability -------------------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from tests.support.helpers import ROOT_KEY
from basefs.replica.replica import Replica
replica = Replica(Path(sys.argv[1]), [ROOT_KEY])
for number in range(100_000):
    replica.commit(lambda author: author.write((b"%d" % number,), b"%d" % number * 200))
    print(number, flush=True)
"""


@pytest.mark.parametrize("moment", [1, 37, 300])
def test_what_a_killed_process_reported_is_there(tmp_path: pathlib.Path, moment: int) -> None:
    make_replica(tmp_path).close()
    child = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout is not None
    with child, child.stdout as reports:
        reported = [int(reports.readline()) for _ in range(moment)]
        # It is in the middle of something now: it goes on writing until the signal comes.
        child.send_signal(signal.SIGKILL)
        reported.extend(int(line) for line in reports if line.endswith("\n"))
    assert reported == list(range(len(reported)))
    assert len(reported) >= moment
    replica = Replica(tmp_path, [ROOT_KEY])
    for number in reported:
        assert replica.read((b"%d" % number,)) == b"%d" % number * 200
    assert replica.check_view() == []
    replica.commit(lambda author: author.write(path("/after"), b"after"))
    replica.close()


def test_sync_covers_what_was_committed(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path)
    replica.sync_to_disk()
    assert replica.is_durable
    some_files(replica)
    assert not replica.is_durable
    replica.sync_to_disk()
    assert replica.is_durable
    replica.close()


def test_sync_covers_what_was_committed_by_a_process_that_was_killed(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path)
    some_files(replica)
    shutil.copytree(replica.directory, tmp_path / "killed")
    replica.close()
    again = Replica(tmp_path / "killed", [])
    assert not again.is_durable
    again.sync_to_disk()
    assert again.is_durable
    again.close()


# -- damage -----------------------------------------------------------------------------------------------------------


def damage(directory: pathlib.Path, table: str, seq: int, change: Callable[[bytes], bytes]) -> None:
    """Change one row behind the triggers' back, as a bad disk does."""
    with closing(sqlite3.connect(directory / LOG_FILE)) as db:
        db.execute(f"DROP TRIGGER {table}_no_update")
        (data,) = db.execute(f"SELECT data FROM {table} WHERE seq = ?", (seq,)).fetchone()
        db.execute(f"UPDATE {table} SET data = ? WHERE seq = ?", (change(data), seq))
        db.commit()


def flip(data: bytes) -> bytes:
    return data[:-70] + bytes((data[-70] ^ 1,)) + data[-69:] if len(data) > 100 else data[:-1] + bytes((data[-1] ^ 1,))


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def rows(directory: pathlib.Path, table: str) -> int:
    """Number of rows."""
    with closing(sqlite3.connect(directory / LOG_FILE)) as db:
        (count,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)


def look_everywhere(replica: Replica) -> dict[Path, bytes | None]:
    """Each live path with its content, `None` where it cannot be read."""
    found: dict[Path, bytes | None] = {}
    for names, kind in replica.live_paths():
        try:
            found[names] = replica.read(names) if kind.value == "file" else b""
        except DamagedLog:
            found[names] = None
    return found


@pytest.fixture
def healthy(tmp_path: pathlib.Path) -> pathlib.Path:
    """A log, closed."""
    replica = make_replica(tmp_path / "healthy")
    some_files(replica)
    replica.close()
    return tmp_path / "healthy"


@pytest.mark.parametrize("change", [flip, cut])
@pytest.mark.parametrize("table", ["entries", "blocks"])
def test_a_damaged_row_is_found_and_all_else_is_readable(
    healthy: pathlib.Path, table: str, change: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    whole = look_everywhere(Replica(healthy))
    # The first row is the root entry, without which there is nothing.
    for seq in range(2 if table == "entries" else 1, rows(healthy, table) + 1):
        caplog.clear()
        directory = healthy.with_name(f"damaged{seq}")
        shutil.copytree(healthy, directory)
        (directory / "cache.db").unlink()
        damage(directory, table, seq, change)
        replica = Replica(directory, [ROOT_KEY])
        found = look_everywhere(replica)
        assert replica.damaged == 1
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert "damaged" in caplog.text
        # A row in the middle hides what stands on it.  What is still there is right, or says that it cannot be read.
        for names, content in found.items():
            assert content is None or content == whole[names] or whole[names] == content + b"more"
        assert path("/d/one") in found or table == "entries"
        with pytest.raises(ReadOnly):
            replica.commit(lambda author: author.write(path("/new"), b"new"))
        assert not replica.attributes(()).writable
        assert replica.check_view() == []
        replica.close()


@pytest.mark.logs("is damaged")
def test_a_damaged_root_entry(healthy: pathlib.Path) -> None:
    damage(healthy, "entries", 1, flip)
    with pytest.raises(DamagedLog):
        Replica(healthy)


@pytest.mark.logs("is damaged")
def test_a_damaged_row_is_not_given_to_others(healthy: pathlib.Path) -> None:
    with closing(sqlite3.connect(healthy / LOG_FILE)) as db:
        hashes = [hash for (hash,) in db.execute("SELECT hash FROM entries ORDER BY seq")]
        blocks = [hash for (hash,) in db.execute("SELECT hash FROM blocks ORDER BY seq")]
    damage(healthy, "entries", len(hashes), flip)
    damage(healthy, "blocks", len(blocks), flip)
    replica = Replica(healthy)
    assert replica.entry(hashes[-1]) is None
    assert replica.entry(hashes[0]) is not None
    assert replica.block(blocks[-1]) is None
    assert replica.block(blocks[0]) is not None
    assert hashes[-1] not in {Entry.decode(raw).hash for raw in replica.walk(())}
    assert replica.damaged == 2
    replica.close()


@pytest.mark.logs("is damaged")
def test_what_comes_behind_a_damaged_row_is_not_taken_and_not_held_against_the_peer(healthy: pathlib.Path) -> None:
    replica = Replica(healthy)
    made = replica.attributes(path("/d")).entry
    replica.close()
    with closing(sqlite3.connect(healthy / LOG_FILE)) as db:
        (seq,) = db.execute("SELECT seq FROM entries WHERE hash = ?", (made,)).fetchone()
    damage(healthy, "entries", seq, flip)
    replica = Replica(healthy)
    applied = replica.apply([ROOT_KEY.sign(made, 1, Action.WRITE, b"f")], [])
    assert (applied.entries, applied.rejected) == ((), ())
    assert replica.damaged == 1
    with pytest.raises(ReadOnly):
        replica.commit(lambda author: author.write(path("/f"), b""))
    replica.close()


@pytest.mark.logs("is damaged")
def test_a_damaged_signature_is_found(healthy: pathlib.Path) -> None:
    # The hash of an entry does not cover its signature, so only the row's checksum can tell.
    with closing(sqlite3.connect(healthy / LOG_FILE)) as db:
        seq, raw = db.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    damage(healthy, "entries", seq, lambda data: data[:-1] + bytes((data[-1] ^ 1,)))
    replica = Replica(healthy)
    assert replica.entry(raw) is None
    assert replica.damaged == 1
    replica.close()


# -- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def limit_of_file_size(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def fill(replica: Replica) -> None:
    """Write until that fails."""
    for number in range(1000):
        replica.commit(lambda author, n=number: author.write(path("/big"), noise(n, 100_000)))  # type: ignore[misc]


def check_unchanged(replica: Replica, directory: pathlib.Path, failed: Callable[[], None]) -> None:
    """After a failure the log and the view are what they were."""
    before: dict[str, object] = {}

    def note(applied: object) -> None:
        before.update(tree=tree_of(replica), root=replica.root_hash(), entries=replica.totals()["entries"])

    replica.subscribe(note)
    failed()
    assert before, "something fitted"
    assert tree_of(replica) == before["tree"]
    assert replica.root_hash() == before["root"]
    assert replica.totals()["entries"] == before["entries"]
    assert replica.check_view() == []
    copy = copy_replica(replica, directory)
    assert tree_of(copy) == before["tree"]
    copy.close()


def test_a_file_that_cannot_grow(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path / "full")

    def write() -> None:
        with limit_of_file_size(1_000_000), pytest.raises(StoreError):
            fill(replica)

    check_unchanged(replica, tmp_path / "copy", write)
    replica.commit(lambda author: author.write(path("/after"), b"after"))
    assert replica.read(path("/after")) == b"after"
    replica.close()


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.fuse
def test_a_full_disk(small_disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    replica = make_replica(small_disk / "log")

    def write() -> None:
        with pytest.raises(NoSpace, match="full"):
            fill(replica)

    try:
        check_unchanged(replica, tmp_path / "copy", write)
    finally:
        replica.close()


def test_a_failing_batch_from_a_peer_leaves_nothing(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path / "full")
    before = tree_of(replica)
    parent = replica.identity
    made = [ROOT_KEY.sign(parent, number, Action.MKDIR, b"%d" % number) for number in range(2000)]
    with limit_of_file_size(200_000), pytest.raises(BaseFSError):
        replica.apply(made, [])
    assert tree_of(replica) == before
    assert replica.root_hash() == copy_replica(replica, tmp_path / "copy").root_hash()
    assert len(replica.apply(made, []).entries) == len(made)
    assert len(replica.names_in(())) == len(made)
    replica.close()


def test_a_failing_transaction_forgets_what_it_noted(tmp_path: pathlib.Path) -> None:
    make_replica(tmp_path).close()
    store = Store(tmp_path / LOG_FILE)
    before = store.paths.root_hash()
    placed = store.place(ROOT_KEY.sign(store.database.meta("identity") or b"", 1, Action.MKDIR, b"d"))
    assert placed is not None
    with pytest.raises(RuntimeError), store.transaction():
        store.insert(placed, now=Clock()())
        raise RuntimeError
    with store.transaction():
        pass
    assert store.paths.root_hash() == before
    assert store.entry_count() == 2
    store.close()
