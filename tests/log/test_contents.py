"""Contents: deltas, keyframes and the cache."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from basefs.errors import UnreadableContent
from basefs.log import codecs
from basefs.log.blocks import GOSSIP_BLOCK_DATA
from basefs.log.cache import CacheLimits, ContentCache
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import HASH_SIZE, EntryHash
from basefs.log.lineage import KEYFRAME_AFTER
from basefs.replica.replica import CACHE_FILE, Applied, Replica
from tests.support.helpers import ROOT_KEY, copy_replica, in_blocks, make_replica, noise, path

F = path("/f")


def write(replica: Replica, content: bytes, names: tuple[bytes, ...] = F) -> Applied:
    """Write a file."""
    return replica.commit(lambda author: author.write(names, content))


def is_keyframe(applied: Applied) -> bool:
    """Whether a write can be read without what was before it."""
    encoded = applied.entries[0].encoded
    assert encoded is not None
    return codecs.is_keyframe(encoded.codec)


def test_an_empty_file_has_no_blocks(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    for content in (b"", b"x", b""):
        applied = write(replica, content)
        assert bool(applied.blocks) == bool(content)
        assert replica.read(F) == content
    replica.close()


def test_a_keyframe_after_32_deltas(tmp_path: Path) -> None:
    assert KEYFRAME_AFTER == 32
    replica = make_replica(tmp_path)
    content = noise(0, 20_000)
    kinds = []
    for number in range(70):
        content = content[:-2] + b"%02d" % number
        kinds.append(is_keyframe(write(replica, content)))
    assert [number for number, keyframe in enumerate(kinds) if keyframe] == [0, 33, 66]
    replica.close()


def test_a_keyframe_once_the_deltas_are_as_large_as_the_content(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    content = noise(0, 20_000)
    write(replica, content)
    kinds = []
    for number in range(8):
        content = content[:12_000] + noise(number + 1, 8_000)
        kinds.append(is_keyframe(write(replica, content)))
    assert kinds == [False, False, False, True, False, False, False, True]
    replica.close()


def test_a_large_file(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    content = noise(0, 1_200_000)
    write(replica, content)
    applied = write(replica, content + b"more")
    encoded = applied.entries[0].encoded
    assert encoded is not None and encoded.codec == codecs.ZSTD.tag
    assert replica.read(F) == content + b"more"
    replica.close()
    again = Replica(tmp_path)
    assert again.read(F) == content + b"more"
    again.close()


def realistic(lines: int) -> list[str]:
    """Lines as in configuration files: sections, comments, values that do not compress."""
    found = []
    for number in range(lines):
        if number % 20 == 0:
            found.append(f"\n[section {number}]\n")
        value = noise(number, 5).hex()
        found.append(
            (f"# {value}\n", f"option_{number} = {value}\n", f"{value}:x:{number}:/home/{value}\n")[number % 3]
        )
    return found


@pytest.mark.parametrize("lines", [30, 300, 900, 4000])
@pytest.mark.parametrize("where", [0.0, 0.5, 0.99])
def test_an_edit_of_one_line_costs_one_event(tmp_path: Path, lines: int, where: float) -> None:
    replica = make_replica(tmp_path)
    text = realistic(lines)
    write(replica, "".join(text).encode())
    position = int(len(text) * where)
    changed = [*text[:position], "option = something else\n", *text[position + 1 :]]
    longer = [*changed[:position], "# a line more\n", *changed[position:]]
    swapped = [*longer[1:], longer[0]]
    for version in (changed, longer, longer[1:], swapped, text):
        (block,) = write(replica, "".join(version).encode()).blocks
        assert len(block.data) <= GOSSIP_BLOCK_DATA
        assert replica.read(F) == "".join(version).encode()
    replica.close()


@pytest.mark.slow
def test_a_cold_read_costs_the_same_after_30_and_after_3000_edits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = make_replica(tmp_path / "log")
    content = noise(0, 6000)
    write(replica, content)
    costs = []
    decoded: list[int] = []
    decode = codecs.decode
    monkeypatch.setattr(codecs, "decode", lambda *arguments: decoded.append(1) or decode(*arguments))
    for number in range(3000):
        content = content[:700] + b"%04d" % number + content[704:]
        write(replica, content)
        if number + 1 in (30, 1000, 2999, 3000):
            cold = copy_replica(replica, tmp_path / f"copy{number}")
            decoded.clear()
            assert cold.read(F) == content
            costs.append(len(decoded))
            cold.close()
    assert costs[0] == 31
    assert max(costs) <= KEYFRAME_AFTER + 1
    replica.close()


def test_equal_contents_are_stored_once(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    write(replica, noise(1, 5000))
    before = replica.totals()["blocks"]
    write(replica, noise(1, 5000), path("/g"))
    assert replica.totals()["blocks"] == before
    assert replica.read(path("/g")) == noise(1, 5000)
    replica.close()


def delete(cache: Path) -> None:
    cache.unlink()


def empty(cache: Path) -> None:
    cache.write_bytes(b"")


def rubbish(cache: Path) -> None:
    cache.write_bytes(b"rubbish " * 1000)


def flip(cache: Path) -> None:
    """Change contents, not the structure around them."""
    cache.write_bytes(cache.read_bytes().replace(b"revision", b"Revision"))


def cut(cache: Path) -> None:
    cache.write_bytes(cache.read_bytes()[:5000])


@pytest.mark.parametrize("damage", [delete, empty, rubbish, flip, cut])
def test_the_cache_may_be_lost_or_damaged_at_any_time(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    replica = make_replica(tmp_path)
    revisions = [noise(0, 8000) + b"revision %d" % number for number in range(12)]
    hashes = [write(replica, content).entries[0].hash for content in revisions]
    replica.close()
    again = Replica(tmp_path)
    assert again.read(F) == revisions[-1]
    again.close()
    assert b"revision" in (tmp_path / CACHE_FILE).read_bytes(), "a content behind many deltas is cached"
    damage(tmp_path / CACHE_FILE)
    again = Replica(tmp_path, [ROOT_KEY])
    assert again.read(F) == revisions[-1]
    again.commit(lambda author: author.write(F, b"and on"))
    assert again.read(F) == b"and on"
    assert len(set(hashes)) == len(revisions)
    again.close()


@pytest.mark.logs("cannot be read")
def test_a_content_that_does_not_decode_is_an_error_of_its_file_only(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    parent = replica.identity
    lying = ROOT_KEY.sign(
        parent, 1, Action.WRITE, b"f", write(replica, b"hello", path("/g")).entries[0].content, Extensions(6)
    )
    assert replica.apply([lying], []).entries == (lying,)
    with pytest.raises(UnreadableContent):
        replica.read(F)
    assert replica.read(path("/g")) == b"hello"
    assert replica.check_view() == []
    write(replica, b"repaired")
    assert replica.read(F) == b"repaired"
    replica.close()


@pytest.mark.logs("cannot be read")
def test_a_lineage_that_no_writer_makes_is_not_looked_up_at_once(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    # 512 KiB that every one of 300 revisions names as its delta: the log has them once.
    named, blocks = in_blocks(noise(1, 512 * 1024), codecs.ZSTD.tag)
    entries: list[Entry] = []
    for number in range(300):
        parent = entries[-1].hash if entries else replica.identity
        entries.append(ROOT_KEY.sign(parent, number, Action.WRITE, b"f", named, Extensions(600_000)))
    assert len(replica.apply(entries, blocks).entries) == 300
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableContent):
            replica.read(F)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()
    replica.close()


def test_the_memory_cache_is_bounded() -> None:
    cache = ContentCache(None, CacheLimits(memory=10_000))
    for number in range(200):
        cache.put(EntryHash(b"%d" % number), bytes(900), on_disk=True)
    assert in_memory(cache, 200) == list(range(200 - 8, 200))
    cache.put(EntryHash(b"too large"), bytes(2501), on_disk=False)
    assert cache.get(EntryHash(b"too large")) is None
    # An empty content takes memory as well.
    for number in range(200):
        cache.put(EntryHash(b"%d" % number), b"", on_disk=True)
    assert in_memory(cache, 200) == list(range(200 - 39, 200))
    cache.close()


def in_memory(cache: ContentCache, count: int) -> list[int]:
    """Those of the first contents, by their numbers, that are kept."""
    return [number for number in range(count) if cache.get(EntryHash(b"%d" % number), only_memory=True) is not None]


def test_contents_that_were_dropped_leave_their_room_to_others() -> None:
    cache = ContentCache(None, CacheLimits(memory=10_000))
    for number in range(8):
        cache.put(EntryHash(b"%d" % number), bytes(900), on_disk=False)
    cache.drop([EntryHash(b"3"), EntryHash(b"unknown"), EntryHash(b"4")])
    assert in_memory(cache, 8) == [0, 1, 2, 5, 6, 7]
    for number in (8, 9):
        cache.put(EntryHash(b"%d" % number), bytes(900), on_disk=False)
    assert in_memory(cache, 10) == [0, 1, 2, 5, 6, 7, 8, 9]
    cache.close()


def kept(path: Path, entry: EntryHash) -> bytes | None:
    """What the file of rows has of an entry."""
    cache = ContentCache(path)
    found = cache.get(entry)
    cache.close()
    return found


def test_a_row_that_an_index_leads_to_by_mistake_is_not_believed(tmp_path: Path) -> None:
    """After a power cut it may be that of another entry: the cache is written without syncing."""
    one, other = (EntryHash(bytes([number]) * HASH_SIZE) for number in (1, 2))
    cache = ContentCache(tmp_path / "cache.db")
    cache.put(one, b"one", on_disk=True)
    cache.put(other, b"other", on_disk=True)
    cache.close()
    assert kept(tmp_path / "cache.db", one) == b"one"
    with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as db:
        db.execute("CREATE TEMP TABLE row AS SELECT hash, data FROM contents WHERE entry = ?", (other,))
        db.execute("UPDATE contents SET (hash, data) = (SELECT hash, data FROM row) WHERE entry = ?", (one,))
    assert kept(tmp_path / "cache.db", one) is None
    assert kept(tmp_path / "cache.db", other) == b"other"
