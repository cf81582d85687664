"""Contents of any size: prepared and read in pieces, without the replica's lock, and never a byte wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from basefs import path as paths
from basefs.errors import NoSpace, NotEmpty, StoreError, UnreadableContent
from basefs.log import codecs
from basefs.log.blocks import MAX_CONTENT_BYTES, SYNC_BLOCK_DATA, Block
from basefs.log.cache import CacheLimits, ContentCache
from basefs.log.check import check
from basefs.log.content import LARGE_CONTENT, PIECE, BytesContent, Content, FileContent
from basefs.log.contents import Contents
from basefs.log.encoder import Encoder
from basefs.log.entries import Action
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash, sha224
from basefs.log.missing import BlockStore
from basefs.log.store import Store
from basefs.replica.replica import CACHE_FILE, LOG_FILE, Applied, Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from tests.support.helpers import (
    ALICE,
    ROOT_KEY,
    content_of,
    copy_replica,
    fetch,
    genesis,
    in_blocks,
    make_replica,
    noise,
    path,
)
from tests.support.names import rename
from tests.support.patience import DEADLINE
from tests.support.project import ROOT

F = path("/f")
LARGE = LARGE_CONTENT + 12_345


def write(replica: Replica, content: bytes | Content, names: paths.Path = F) -> Applied:
    """Write a file."""
    return replica.commit(lambda author: author.write(names, content))


def file_of(directory: Path, data: bytes) -> BinaryIO:
    """A file with this content."""
    target = directory / "source"
    target.write_bytes(data)
    return target.open("rb+")


def unpacked(replica: Replica) -> list[Path]:
    """The files that the cache holds."""
    return sorted(replica.directory.glob(f"{CACHE_FILE}.d/*"))


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    made = make_replica(tmp_path / "log")
    yield made
    assert made.check_view() == []
    made.close()


@pytest.mark.parametrize("pattern", [b"", b"the same line again\n"], ids=["noise", "text"])
@pytest.mark.parametrize("size", [0, 1, LARGE_CONTENT, LARGE_CONTENT + 1, LARGE])
def test_a_file_is_read_as_it_was_written(tmp_path: Path, replica: Replica, size: int, pattern: bytes) -> None:
    data = (pattern * (size // 20 + 1) if pattern else noise(size, size))[:size]
    with file_of(tmp_path, data) as file:
        write(replica, content_of(file))
    assert replica.attributes(F).size == size
    assert replica.read(F) == data
    content = replica.open(F)
    assert content.read(size // 2, 7) == data[size // 2 :][:7]
    assert content.read(size, 7) == b""
    content.close()
    other = copy_replica(replica, tmp_path / "other")
    assert other.read(F) == data, "from the log alone"
    other.close()


@pytest.mark.slow
def test_every_size_of_change_of_a_large_file(replica: Replica) -> None:
    data = noise(0, LARGE)
    sizes = []
    for changed in (data, data + b"more", data[:100] + data[200:], noise(1, LARGE), data[: LARGE // 2], b"small", data):
        before = replica.totals()["bytes"]
        write(replica, changed)
        assert replica.read(F) == changed
        shutil.rmtree(replica.directory / f"{CACHE_FILE}.d", ignore_errors=True)
        assert replica.read(F) == changed
        replica.sync_to_disk()
        sizes.append(replica.totals()["bytes"] - before)
    replica.check_view()


def test_a_large_file_that_stays_the_same_costs_nothing(tmp_path: Path, replica: Replica) -> None:
    data = noise(0, LARGE)
    write(replica, data)
    before = replica.totals()
    with file_of(tmp_path, data) as file:
        assert write(replica, content_of(file)).entries == ()
    after = replica.totals()
    assert (after["entries"], after["blocks"]) == (before["entries"], before["blocks"])


def test_equal_large_contents_are_stored_once(replica: Replica) -> None:
    write(replica, noise(0, LARGE))
    blocks = replica.totals()["blocks"]
    write(replica, noise(0, LARGE), path("/g"))
    assert replica.totals()["blocks"] == blocks


def test_a_content_that_no_cache_holds_is_made_anew(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    first = write(replica, noise(0, LARGE)).entries[0]
    write(replica, noise(1, LARGE))
    replica.commit(lambda author: author.reverter.path(F, first.hash))
    replica.close()
    for leftover in replica.directory.glob(f"{CACHE_FILE}*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    again = Replica(replica.directory, [ROOT_KEY])
    calls: list[int] = []

    def change(author: Author) -> Draft:
        calls.append(1)
        assert len(calls) < 10, "it goes round in circles"
        return author.write(F, noise(0, LARGE)[:-1] + b"x")

    applied = again.commit(change)
    assert applied.entries[0].action is Action.WRITE
    assert again.read(F) == noise(0, LARGE)[:-1] + b"x"
    again.close()


def test_the_view_that_moves_on_all_the_time_does_not_stop_a_write(tmp_path: Path) -> None:
    keys = (ROOT_KEY, ALICE)
    born = genesis(keys)
    replica = make_replica(tmp_path / "here", keys, born=born)
    tip = write(replica, noise(0, 50_000)).entries[0]
    calls = 0

    def change(author: Author) -> Draft:
        nonlocal tip, calls
        calls += 1
        assert calls < 20, "it goes round in circles"
        # Another node's write arrives while the content is encoded, each time.
        other = ALICE.sign(tip.hash, calls, Action.WRITE, b"f")
        threading.Thread(target=replica.apply, args=([other], [])).start()
        tip = other
        return author.write(F, noise(1, 200_000))

    prepare = Encoder.prepare

    def patient(encoder: Encoder, content: Content, base: EntryHash | None) -> None:
        while threading.active_count() > threads:
            time.sleep(0.001)
        prepare(encoder, content, base)

    threads = threading.active_count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encoder, "prepare", patient)
        applied = replica.commit(change)
    while threading.active_count() > threads:
        time.sleep(0.001)
    assert calls == 4, "encoded against two writes that were there, and then as a keyframe"
    assert replica.check_view() == []
    written = next(entry for entry in applied.entries if entry.action is Action.WRITE)
    assert replica.content_at(written.hash) == noise(1, 200_000)
    replica.close()


def test_a_series_of_drafts_with_contents_that_must_be_prepared(replica: Replica) -> None:
    """Whether or not they are told beforehand, all of it is there in one go, and nothing twice."""
    write(replica, noise(9, 60_000), path("/old"))
    data = {path(f"/d/{number}"): noise(number, size) for number, size in enumerate((10, 50_000, LARGE))}
    data[path("/old")] = noise(9, 60_000) + b"more"
    heard: list[Applied] = []
    replica.subscribe(heard.append)

    def series(author: Author) -> Iterator[Draft]:
        nonlocal attempts
        attempts += 1
        yield author.make_directory(path("/d"))
        for names, content in data.items():
            yield author.write(names, content)
        yield rename(author, path("/d/1"), path("/d/moved"))
        yield author.remove(path("/d"), directory=True) if fails else Draft()

    tips = {path("/old"): replica.attributes(path("/old")).entry}
    known = [(BytesContent(content), tips.get(names)) for names, content in data.items()]
    for fails, contents in ((True, ()), (True, known), (False, known)):
        attempts = 0
        before = replica.totals()["entries"]
        if fails:
            with pytest.raises(NotEmpty):
                replica.commit(series, contents=contents)
            assert replica.totals()["entries"] == before
            assert list(replica.names_in(())) == [b"old"]
            assert replica.check_view() == []
        else:
            applied = replica.commit(series, contents=contents)
            assert replica.totals()["entries"] == before + len(applied.entries)
            assert heard == [applied]
        if contents:
            assert attempts == 1, "nothing had to be done twice"
    data[path("/d/moved")] = data.pop(path("/d/1"))
    for names, content in data.items():
        assert replica.read(names) == content


def test_what_is_read_stays_what_was_opened(replica: Replica) -> None:
    write(replica, noise(0, LARGE))
    early, late = replica.open(F), replica.open(F)
    assert early.read(0, 10) == noise(0, LARGE)[:10]
    write(replica, noise(1, LARGE))
    replica.commit(lambda author: author.remove(F, directory=False))
    shutil.rmtree(replica.directory / f"{CACHE_FILE}.d")
    assert early.whole() == noise(0, LARGE)
    assert late.whole() == noise(0, LARGE)
    early.close()
    late.close()


def test_many_readers_unpack_a_file_once(tmp_path: Path, replica: Replica) -> None:
    data = noise(0, LARGE)
    entry = write(replica, data).entries[0].hash
    unpacking: list[EntryHash] = []

    class Counting(ContentCache):
        def write_file(self, entry: EntryHash, *arguments: Any, **options: Any) -> FileContent:
            unpacking.append(entry)
            return super().write_file(entry, *arguments, **options)

    with closing(Store(replica.directory / LOG_FILE)) as store:
        contents = Contents(store, Counting(tmp_path / CACHE_FILE), threading.RLock())
        found: list[bool] = []

        def read() -> None:
            with closing(contents.open(entry)) as content:
                found.append(content.whole() == data)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        contents.close()
    assert found == [True] * 8
    assert unpacking == [entry]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone", "a directory"])
def test_a_damaged_file_of_the_cache_is_unpacked_again(tmp_path: Path, damage: str) -> None:
    replica = make_replica(tmp_path)
    data = noise(0, LARGE)
    write(replica, data)
    replica.close()
    (file,) = unpacked(replica)
    raw = bytearray(file.read_bytes())
    raw[PIECE + 5] ^= 1
    file.unlink()
    if damage == "flip":
        file.write_bytes(raw)
    elif damage in ("cut", "empty"):
        file.write_bytes(raw[: 1000 if damage == "cut" else 0])
    elif damage == "a directory":
        shutil.rmtree(file.parent)
        file.parent.write_bytes(b"")
    again = Replica(replica.directory)
    assert again.read(F) == data
    again.close()


def test_the_cache_keeps_to_its_size(tmp_path: Path) -> None:
    def name(number: int) -> EntryHash:
        return EntryHash(sha224(b"%d" % number))

    cache = ContentCache(tmp_path / CACHE_FILE, CacheLimits(files=2 * LARGE + 1000))
    for number in range(4):
        cache.write_file(name(number), [noise(number, LARGE)], LARGE).close()
        # The clock of the disk may stand still for the whole test.
        os.utime(tmp_path / f"{CACHE_FILE}.d" / name(number).hex(), (number, number))
        if number:
            # The first one is the one that is used.
            with closing(cast(FileContent, cache.open_file(name(0)))) as content:
                assert content.whole() == noise(0, LARGE)
    assert {file.name for file in (tmp_path / f"{CACHE_FILE}.d").iterdir()} == {name(0).hex(), name(3).hex()}
    assert cache.open_file(name(1)) is None
    cache.close()


def test_what_a_killed_process_was_unpacking_is_removed(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    write(replica, noise(0, LARGE))
    replica.close()
    unfinished = replica.directory / f"{CACHE_FILE}.d" / ".unfinished"
    unfinished.write_bytes(b"half")
    again = Replica(tmp_path)
    assert not unfinished.exists()
    assert again.read(F) == noise(0, LARGE)
    again.close()


def test_a_file_that_changes_while_it_is_written(tmp_path: Path, replica: Replica) -> None:
    write(replica, b"before")
    before = replica.totals()["entries"]
    with file_of(tmp_path, noise(0, LARGE)) as file:
        content = content_of(file)
        file.seek(PIECE)
        file.write(b"changed")
        file.flush()
        with pytest.raises(StoreError, match="changed while"):
            write(replica, content)
        file.truncate(PIECE)
        with pytest.raises(StoreError, match="was truncated"):
            write(replica, content)
    assert replica.read(F) == b"before"
    assert replica.totals()["entries"] == before


def test_a_large_content_that_is_arriving_from_somebody_else(tmp_path: Path) -> None:
    born = genesis((ROOT_KEY, ALICE))
    here = make_replica(tmp_path / "here", born=born)
    there = make_replica(tmp_path / "there", (ALICE,), born=born)
    data = noise(0, LARGE)
    theirs = write(there, data, path("/theirs"))
    here.apply(theirs.entries, [])
    heard: list[Applied] = []
    here.subscribe(heard.append)
    for _ in range(2):
        raw = [there.block(hash) for _, hash in here.missing_blocks(40)]
        assert None not in raw
        here.add([], [block for block in raw if block is not None])
    assert len(here.missing_blocks(1000)) > 40
    heard.clear()
    write(here, data, path("/ours"))
    assert here.read(path("/ours")) == here.read(path("/theirs")) == data
    assert [hash for applied in heard for hash in applied.completed] == [theirs.entries[0].hash]
    assert here.missing_blocks(1) == []
    assert here.check_view() == []
    here.close()
    there.close()


def test_a_process_that_is_killed_while_it_stores_a_content_leaves_a_whole_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, replica: Replica
) -> None:
    """Between two portions of its parts, before its manifest, and before its entry."""
    store_aside = BlockStore.store_aside
    left: list[Replica] = []

    def store(blocks: BlockStore, portion: Sequence[Block]) -> bool:
        is_stored = store_aside(blocks, portion)
        left.append(copy_replica(replica, tmp_path / str(len(left)), [ROOT_KEY]))
        return is_stored

    monkeypatch.setattr(BlockStore, "store_aside", store)
    write(replica, noise(0, LARGE))
    monkeypatch.undo()
    stored = [each.totals()["blocks"] for each in left]
    assert stored == sorted(set(stored)) and stored[-1] == replica.totals()["blocks"]
    for again in left:
        assert check(again.directory / LOG_FILE) == [] and not again.incomplete() and not again.names_in(())
        write(again, noise(0, LARGE))
        assert again.read(F) == noise(0, LARGE) and again.totals()["blocks"] == stored[-1]
        again.close()


@pytest.mark.parametrize("forwards", [False, True])
def test_a_process_that_is_killed_while_a_content_comes_lacks_what_has_not_come(
    tmp_path: Path, replica: Replica, forwards: bool
) -> None:
    data = noise(0, 10 * SYNC_BLOCK_DATA)
    named, (manifest, *parts) = in_blocks(data)
    entry = ROOT_KEY.sign(replica.identity, 1, Action.WRITE, b"f", named, Extensions(len(data)))
    replica.apply([entry], [])
    left = [manifest, *(parts if forwards else reversed(parts))]
    while left:
        again = copy_replica(replica, tmp_path / str(len(left)))
        assert check(again.directory / LOG_FILE) == []
        wanted = [hash for _, hash in again.missing_blocks(99)]
        assert set(wanted) == {block.hash for block in (left if left[0] is not manifest else left[:1])}
        assert fetch(again, {block.hash: block for block in left}) == len(left)
        assert again.read(F) == data and check(again.directory / LOG_FILE) == []
        again.close()
        replica.apply([], [left.pop(0)])
    assert replica.read(F) == data


def test_a_rename_over_a_file_takes_a_large_content_along(replica: Replica) -> None:
    data = noise(0, LARGE)
    write(replica, noise(1, 100))
    write(replica, data, path("/new"))
    replica.commit(lambda author: rename(author, path("/new"), F))
    assert replica.read(F) == data
    assert list(replica.names_in(())) == [b"f"]


def test_a_write_of_a_large_content_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, replica: Replica) -> None:
    write(replica, b"before")

    def full(*_: object, **__: object) -> BinaryIO:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("basefs.log.encoder.tempfile.TemporaryFile", full)
    with pytest.raises(NoSpace):
        write(replica, noise(0, LARGE))
    assert replica.read(F) == b"before"


def test_a_disk_without_room_to_unpack(tmp_path: Path, replica: Replica) -> None:
    data = noise(0, LARGE)
    write(replica, data)
    other = copy_replica(replica, tmp_path / "other")
    # No directory can be made there.
    (tmp_path / "other" / f"{CACHE_FILE}.d").write_bytes(b"")
    assert other.read(F) == data, "in memory, since it is not too large for that"
    other.close()
    narrow = ContentCache(tmp_path / "other" / CACHE_FILE, CacheLimits(homeless=LARGE - 1))
    with pytest.raises(NoSpace):
        narrow.write_file(EntryHash(bytes(28)), [data], LARGE)
    narrow.close()


@pytest.mark.logs("cannot be read")
def test_an_entry_that_lies_about_a_large_content(replica: Replica) -> None:
    made = write(replica, noise(0, LARGE), path("/g"))
    first = made.entries[0].content
    for number, size in enumerate((LARGE - 1, LARGE + 1, MAX_CONTENT_BYTES, LARGE_CONTENT)):
        lying = ROOT_KEY.sign(replica.identity, 1, Action.WRITE, b"%d" % number, first, Extensions(size))
        assert replica.apply([lying], []).entries == (lying,)
        with pytest.raises((UnreadableContent, NoSpace)):
            replica.read((b"%d" % number,))
    assert replica.read(path("/g")) == noise(0, LARGE)


def test_a_large_content_is_announced_and_not_held(replica: Replica) -> None:
    applied = write(replica, noise(0, LARGE))
    assert (applied.large, applied.blocks) == (True, ())
    applied = write(replica, noise(0, 2000), path("/g"))
    assert (applied.large, len(applied.blocks)) == (False, 1 + 4)


@pytest.mark.parametrize("codec", [codec for codec in codecs.CODECS.values() if codec.keyframe], ids=lambda c: c.name)
def test_keyframes_decode_in_pieces_as_in_one(codec: codecs.Codec) -> None:  # type: ignore[name-defined]
    data = noise(0, 3000) * 1000
    encoded = codec.encode(data, b"")
    for step in (1000, 100_000, len(encoded)):
        pieces = (encoded[start : start + step] for start in range(0, len(encoded), step))
        assert b"".join(codecs.decode_pieces(codec.tag, pieces, len(data))) == data
    assert codecs.decode(codec.tag, encoded, b"", len(data)) == data


MEMORY = """
import os, resource, sys
from pathlib import Path
from basefs.replica.replica import Replica
from tests.support.helpers import ROOT_KEY, content_of, path
replica = Replica(Path(sys.argv[1]), [ROOT_KEY])
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024
before = peak()
with open(sys.argv[2], "rb") as file:
    content = content_of(file)
    replica.commit(lambda author: author.write(path("/f"), content))
read = replica.open(path("/f"))
assert sum(len(piece) for piece in read.pieces()) == content.size
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_does_not_follow_the_size_of_a_file(tmp_path: Path) -> None:
    make_replica(tmp_path / "log").close()
    source = tmp_path / "source"
    with source.open("wb") as file:
        for number in range(60):
            file.write(noise(number, PIECE))
    child = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path / "log", source],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    assert int(child.stdout) < 30, "MiB, of a file of 60"
