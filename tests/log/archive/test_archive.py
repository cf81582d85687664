"""Export and import of whole logs, in random histories and in size."""

from __future__ import annotations

import contextlib
import io
import pathlib
import random
import sqlite3
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import ArchiveError, DamagedLog, NotFound
from basefs.log.archive.incoming import ALONE, SHARED, Batching, import_all, salvage
from basefs.log.archive.outgoing import export
from basefs.log.archive.records import ArchiveReader, RecordKind
from basefs.log.blocks import SYNC_BLOCK_DATA, Encoded, split
from basefs.log.check import check, open_log
from basefs.log.content import BytesContent
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.replica.replica import LOG_FILE, Replica
from tests.log.archive.made import archive
from tests.support.examples import rarely
from tests.support.helpers import (
    ALICE,
    HEIR,
    ROOT_KEY,
    genesis,
    make_replica,
    noise,
    path,
    recovery_keys,
    recovery_of,
    tree_of,
)
from tests.support.names import make_link
from tests.view.histories import Step, World, steps


def exported(replica: Replica, names: Path = ()) -> bytes:
    stream = io.BytesIO()
    with contextlib.closing(open_log(replica.directory / LOG_FILE)) as source:
        export(source, names, stream)
    return stream.getvalue()


def imported(data: bytes, replica: Replica, batching: Batching = ALONE) -> Replica:
    import_all(ArchiveReader(io.BytesIO(data)), replica.add, batching, lambda size: None)
    return replica


def fresh(data: bytes, directory: pathlib.Path, batching: Batching = ALONE) -> Replica:
    directory.mkdir()
    return imported(data, Replica.create(directory, ArchiveReader(io.BytesIO(data)).header.identity), batching)


def parted(replica: Replica, names: Path = ()) -> tuple[list[Entry], list[Entry]]:
    """The entries at a path and below it that an archive has, and the gossip keys, which it has not."""
    entries = list(map(Entry.decode, replica.walk(names)))
    secrets = [entry for entry in entries if entry.action is Action.GOSSIP_KEY]
    return [entry for entry in entries if entry not in secrets], secrets


@rarely
@given(steps(), st.integers(1, 40), st.integers(0, 3))
def test_export_and_import_give_the_same_log_and_tree(history: list[Step], entries: int, index: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        original = world.nodes[index % len(world.nodes)].replica
        data = exported(original)
        copy = fresh(data, world.directory / "copy", Batching(entries, 500))
        with contextlib.closing(copy):
            kept, secrets = parted(original)
            assert copy.totals()["entries"] == len(kept)
            assert copy.gossip_key() is None, "an archive is for others than members"
            copy.apply(secrets, [])
            assert {hash for _, hash in copy.missing_blocks(1000)} == {
                hash for _, hash in original.missing_blocks(1000)
            }
            if not original.missing_blocks(1):
                assert copy.root_hash() == original.root_hash()
            assert tree_of(copy) == tree_of(original)
            assert exported(copy) == data
            assert check(copy.directory / LOG_FILE) == []


def test_a_content_is_whole_although_others_name_its_blocks(tmp_path: pathlib.Path) -> None:
    """Entries that name parts of it come before the one that the content belongs to, and behind it."""
    original = make_replica(tmp_path / "original", [ROOT_KEY])
    content = noise(1, 8_000_000)
    blocks = split(content)[1]
    top, identity = EntryHash(original.identity), original.identity
    part = SYNC_BLOCK_DATA
    names = [(b"a", 3, part), (b"f", 0, len(content)), (b"c", 5, part)]
    writes = [
        ROOT_KEY.sign(top, 1, Action.WRITE, name, Encoded(blocks[first].hash, 0, length).encode(), Extensions(length))
        for name, first, length in names
    ]
    for write in writes:
        original.apply([write], [])
        for block in blocks:
            original.apply([], [block])
    data = exported(original)
    assert len(data) < 8_100_000, "each block is there once"
    with contextlib.closing(fresh(data, tmp_path / "copy")) as copy, contextlib.closing(original):
        assert copy.identity == identity and copy.root_hash() == original.root_hash() and not copy.incomplete()
        assert copy.read(path("/f")) == content and exported(copy) == data


@rarely
@given(steps(), st.data())
def test_the_export_of_a_path_is_all_of_that_path(history: list[Step], data: st.DataObject) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        original = world.nodes[0].replica
        live = [names for names, _ in original.live_paths()]
        names = data.draw(st.sampled_from(live))
        with contextlib.closing(fresh(exported(original, names), world.directory / "copy")) as copy:
            assert copy.identity == original.identity
            kept, secrets = parted(original, names)
            assert parted(copy, names) == (kept, [])
            copy.apply(secrets, [])
            if not original.missing_blocks(1):
                assert copy.path_hash(names) == original.path_hash(names)
            # What the directories above hold besides may decide whether they are directories at all.
            if original.attributes(names[:1]).kind is copy.attributes(names[:1]).kind:
                shown, wanted = tree_of(copy), tree_of(original)
                assert {at: shown[at].content for at in shown if at[: len(names)] == names} == {
                    at: wanted[at].content for at in wanted if at[: len(names)] == names
                }


@rarely
# What a former root key wrote is withheld until the acks come, and then fetched from peers.
@given(steps(recoveries=False), st.integers(0, 3), st.integers(0, 3))
def test_an_import_adds_what_is_missing(history: list[Step], one: int, other: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        first, second = world.nodes[one].replica, world.nodes[other].replica
        imported(exported(first), second, SHARED)
        imported(exported(second), first, SHARED)
        # What waited in memory for a grant that the other one had.
        imported(exported(first), second, SHARED)
        assert len(parted(first)[0]) == len(parted(second)[0])
        assert tree_of(first) == tree_of(second)
        assert second.check_view() == first.check_view() == []


@pytest.fixture
def replica(tmp_path: pathlib.Path) -> Replica:
    made = make_replica(tmp_path / "original")
    made.commit(lambda author: author.make_directory(path("/d")))
    made.commit(lambda author: author.make_directory(path("/other")))
    made.commit(lambda author: author.write(path("/other/secret"), noise(1, 3000)))
    made.commit(lambda author: author.write(path("/d/f"), noise(2, 3000)))
    made.commit(lambda author: author.write(path("/d/f"), noise(2, 3000) + b"!"))
    made.commit(lambda author: make_link(author, path("/d/link"), path("/other/secret")))
    return made


def test_a_path_has_no_more_than_it_needs(replica: Replica, tmp_path: pathlib.Path) -> None:
    for text, others in (("/d/f", []), ("/d", ["/other", "/other/secret"]), ("/other/secret", [])):
        copy = fresh(exported(replica, path(text)), tmp_path / f"copy{text.replace('/', '-')}")
        found = {names for names, _ in copy.live_paths()}
        wanted = {path(other) for other in others}
        assert found - wanted == {n for n, _ in replica.live_paths() if n[: len(path(text))] == path(text)} | {
            path(text)[:count] for count in range(len(path(text)))
        }
        if text == "/d":
            assert copy.read(path("/d/link")) == noise(1, 3000)
        else:
            assert copy.read(path(text)) == replica.read(path(text))


def test_a_path_that_never_was(replica: Replica) -> None:
    with pytest.raises(NotFound, match="the log has nothing at /nowhere"):
        exported(replica, path("/nowhere"))


def test_equal_blocks_are_there_once(replica: Replica) -> None:
    before = len(exported(replica))
    replica.commit(lambda author: author.write(path("/copy"), noise(1, 3000)))
    assert len(exported(replica)) < before + 500


def test_damage_of_the_log_is_told(replica: Replica) -> None:
    with contextlib.closing(sqlite3.connect(replica.directory / LOG_FILE)) as database, database:
        database.execute("DROP TRIGGER blocks_no_update")
        database.execute("UPDATE blocks SET data = zeroblob(40) WHERE seq = 3")
    with pytest.raises(DamagedLog, match=r"block .* does not match its hash"):
        exported(replica)


def records(data: bytes) -> list[tuple[RecordKind, bytes]]:
    return list(ArchiveReader(io.BytesIO(data)).records())


def test_a_forged_archive_is_refused_whatever_its_checksum(replica: Replica, tmp_path: pathlib.Path) -> None:
    real = exported(replica)
    identity = ArchiveReader(io.BytesIO(real)).header.identity
    last = next(Entry.decode(data) for kind, data in reversed(records(real)) if kind is RecordKind.ENTRY)
    forged = ALICE.sign(last.hash, 5, Action.DELETE, last.name).encode()
    signature = bytearray(ROOT_KEY.sign(last.hash, 5, Action.DELETE, last.name).encode())
    signature[-1] ^= 1
    recovery = Extensions(recovery=recovery_of(genesis(recovery=recovery_keys())[0], 1, HEIR))
    false = HEIR.sign(identity, 5, Action.GRANT, b"root", HEIR.public, recovery).encode()
    for number, bad in enumerate((forged, bytes(signature), b"rubbish" * 30, false)):
        data = archive([*records(real), (RecordKind.ENTRY, bad)], names=(), identity=identity)
        with pytest.raises(ArchiveError, match="damaged or forged"):
            fresh(data, tmp_path / f"copy{number}")


def test_what_is_whole_is_salvaged_from_a_cut_or_damaged_archive(replica: Replica, tmp_path: pathlib.Path) -> None:
    data = exported(replica)
    chance = random.Random(1)
    for number in range(30):
        damaged = bytearray(data[: chance.randrange(1000, len(data))] if number % 2 else data)
        damaged[chance.randrange(600, len(damaged))] ^= 1 << chance.randrange(8)
        directory = tmp_path / f"copy{number}"
        directory.mkdir()
        copy = Replica.create(directory, replica.identity)
        reader = ArchiveReader(io.BytesIO(bytes(damaged)))
        assert salvage(reader, copy.add, SHARED, lambda size: None)
        assert copy.totals()["entries"] >= 2
        assert set(copy.walk(())) <= set(replica.walk(()))
        copy.close()
        assert check(directory / LOG_FILE) == []


def test_memory_does_not_grow_with_the_content(tmp_path: pathlib.Path) -> None:
    original = make_replica(tmp_path / "original", (ROOT_KEY,))
    file = tmp_path / "archive"
    for number in range(3):
        content = BytesContent(noise(number, 8 * 1024 * 1024))
        original.commit(lambda author, c=content, n=number: author.write(path(f"/f{n}"), c))  # type: ignore[misc]
    del content
    (tmp_path / "copy").mkdir()
    copy = Replica.create(tmp_path / "copy", original.identity)
    tracemalloc.start()
    try:
        with contextlib.closing(open_log(original.directory / LOG_FILE)) as source, file.open("wb") as stream:
            export(source, (), stream)
        out = tracemalloc.get_traced_memory()[1]
        with file.open("rb") as stream:
            import_all(ArchiveReader(stream), copy.add, ALONE, lambda size: None)
        both = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.stat().st_size > 24 * 1024 * 1024
    assert out < 2 * 1024 * 1024
    assert both < 20 * 1024 * 1024
    assert copy.root_hash() == original.root_hash()
