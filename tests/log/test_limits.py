"""Limits on contents: what a holder of a key can make others store, unpack and wait for, is in proportion to what it
sends (docs/formats.md, section 6).
"""

from __future__ import annotations

import bz2
import logging
import struct
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import zstandard

from basefs.errors import UnreadableContent
from basefs.log import codecs
from basefs.log.blocks import Block, split
from basefs.log.chains import ChainState
from basefs.log.check import check
from basefs.log.content import LARGE_CONTENT, as_content
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash
from basefs.log.lineage import MOST_DELTAS
from basefs.log.reserve import DiskLimits
from basefs.replica.replica import LOG_FILE, Applied, Replica
from tests.support.cost import calls
from tests.support.helpers import ALICE, ROOT_KEY, Clock, copy_replica, make_replica, noise, path
from tests.support.patience import DEADLINE

F = path("/web/f")
MIB = 1024 * 1024


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """Alice holds a key for /web, and another file is there."""
    made = make_replica(tmp_path / "log")
    made.commit(lambda author: author.make_directory(path("/web")))
    made.commit(lambda author: author.key_holder.grant(path("/web"), b"alice", ALICE.public).draft)
    made.commit(lambda author: author.write(path("/web/other"), b"as before"))
    yield made
    assert made.read(path("/web/other")) == b"as before"
    assert made.check_view() == []
    made.close()


def web(replica: Replica) -> EntryHash:
    """The entry that made /web."""
    origin = replica.attributes(path("/web")).origin
    assert origin is not None
    return origin


def save(replica: Replica, chain: bytes, size: int, *, parent: EntryHash | None = None) -> tuple[Entry, list[Block]]:
    """A write by Alice that states this size of what a chain holds."""
    blocks = split(chain)
    return ALICE.sign(parent or web(replica), size, Action.WRITE, b"f", blocks[0].hash, Extensions(size)), blocks


def stored(replica: Replica) -> int:
    """Blocks in the log."""
    return replica.totals()["blocks"]


def send(replica: Replica, blocks: Sequence[Block], at_once: int) -> list[Applied]:
    """Bring blocks, so many at a time, for as long as the log asks for more."""
    return [replica.apply([], blocks[start : start + at_once]) for start in range(0, len(blocks), at_once)]


def frame_of_zeros(size: int) -> bytes:
    """The shortest chain that unpacks to so many zeros."""
    packer = zstandard.ZstdCompressor(level=19).compressobj(size=size)
    return b"".join(
        [bytes((codecs.FRAME.tag,)), *(packer.compress(bytes(MIB)) for _ in range(size // MIB)), packer.flush()]
    )


# -- the length of a chain --------------------------------------------------------------------------------------------


@pytest.mark.logs("cannot be read")
@pytest.mark.parametrize("at_once", [1, 8, 1000])
@pytest.mark.parametrize("together", [False, True], ids=["behind the entry", "with the entry"])
def test_blocks_beyond_the_stated_size_are_refused_as_they_arrive(
    tmp_path: Path, replica: Replica, at_once: int, together: bool
) -> None:
    size = 100_000
    entry, blocks = save(replica, b"\0" + noise(1, 4 * MIB), size)
    before = stored(replica)
    first = replica.apply([entry], blocks if together else [])
    assert first.entries == (entry,) and not first.rejected
    for applied in send(replica, blocks, at_once):
        assert not applied.rejected, "an honest peer may have another entry that allows them"
    kept = stored(replica) - before
    assert kept == 4 and sum(len(block.data) for block in blocks[: kept - 1]) < codecs.chain_limit(size)
    assert not replica.missing_blocks(16) and not replica.apply([], blocks[kept : kept + 1]).missing_blocks
    assert not replica.incomplete() and check(replica.directory / LOG_FILE) == []
    with pytest.raises(UnreadableContent, match="more than 101414 bytes"):
        replica.read(F)
    other = copy_replica(replica, tmp_path / "again")
    assert not other.missing_blocks(16) and not other.incomplete(), "also after a restart"
    other.apply([], blocks[kept:])
    assert stored(other) == stored(replica)
    other.close()


@pytest.mark.logs("cannot be read")
def test_the_end_of_a_chain_does_not_depend_on_which_of_its_entries_comes_first(
    tmp_path: Path, replica: Replica
) -> None:
    content = noise(1, 300_000)
    short, blocks = save(replica, b"\0" + content, 10)
    long = ALICE.sign(web(replica), 7, Action.WRITE, b"g", blocks[0].hash, Extensions(len(content)))
    others = [copy_replica(replica, tmp_path / str(number)) for number in range(3)]
    for other, order in zip(others, ([short, long], [long, short], [short, long]), strict=True):
        for entry in order:
            other.apply([entry], blocks if other is others[2] else [])
            send(other, blocks, 2)
        assert other.read(path("/web/g")) == content
        with pytest.raises(UnreadableContent):
            other.read(F)
        assert not other.incomplete() and other.check_view() == []
    assert len({other.root_hash() for other in others}) == 1
    for other in others:
        other.close()


@pytest.mark.logs("cannot be read")
def test_own_content_that_is_the_rest_of_a_chain_that_is_too_long(replica: Replica) -> None:
    content = noise(1, 300_000)
    entry, blocks = save(replica, b"\0" + content, 10)
    replica.apply([entry], [])
    send(replica, blocks, 2)
    for _ in range(2):
        with pytest.raises(UnreadableContent):
            replica.read(F)
        replica.commit(lambda author: author.write(path("/web/own"), content))
    assert replica.read(path("/web/own")) == content
    assert not replica.incomplete()


@pytest.mark.logs("cannot be read")
@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_chain_of_a_size_and_one_byte_more(replica: Replica, more: int) -> None:
    """What is behind the limit is not needed in order to find out."""
    size = 5000
    data = b"\0" + noise(1, codecs.chain_limit(size) - 1)
    blocks = [Block(BlockHash(ZERO_HASH), b"x")] if more else []
    for start in reversed(range(0, len(data), 1000)):
        blocks.append(Block(blocks[-1].hash if blocks else BlockHash(ZERO_HASH), data[start : start + 1000]))
    blocks.reverse()
    entry = ALICE.sign(web(replica), 1, Action.WRITE, b"f", blocks[0].hash, Extensions(size))
    replica.apply([entry], [])
    send(replica, blocks[:-1], 1)
    assert bool(replica.incomplete()) == (not more)
    send(replica, blocks[-1:], 1)
    assert not replica.incomplete() and stored(replica) == len(blocks) - more + 1
    with pytest.raises(UnreadableContent, match="more than 6043 bytes" if more else "that its entry states"):
        replica.read(F)


@pytest.mark.logs("cannot be read")
def test_a_large_content_with_something_behind_it_cannot_be_read_either(tmp_path: Path, replica: Replica) -> None:
    """A node that has all of the chain has what decodes, and so has one that has as much as the size allows."""
    size = LARGE_CONTENT + 1
    chain = bytes((codecs.FRAME.tag,)) + codecs.FRAME.encode(noise(1, size), b"")
    entry, blocks = save(replica, chain + bytes(400_000), size)
    other = copy_replica(replica, tmp_path / "other")
    all_of_it = ALICE.sign(web(replica), 2, Action.WRITE, b"g", blocks[0].hash, Extensions(size + 400_000))
    other.apply([all_of_it, entry], blocks)
    replica.apply([entry], blocks)
    assert stored(replica) < stored(other)
    for node in (replica, other):
        assert not node.incomplete()
        with pytest.raises(UnreadableContent, match="blocks have more than"):
            node.read(F)
    other.close()


@pytest.mark.logs("cannot be read")
def test_of_more_than_a_node_can_hold_one_block_is_taken(replica: Replica) -> None:
    """It says whether the content builds on another one, which decides what the file shows."""
    entry, blocks = save(replica, b"\0" + noise(1, 100_000), 2**40)
    before = stored(replica)
    replica.apply([entry], [])
    send(replica, blocks, 1)
    assert stored(replica) == before + 1 and not replica.missing_blocks(16)
    with pytest.raises(UnreadableContent, match="more than a node can hold"):
        replica.read(F)


def chain_of_small(count: int) -> list[Block]:
    """A chain of so many blocks of one byte."""
    blocks = [Block(BlockHash(ZERO_HASH), b"\0")]
    while len(blocks) < count:
        blocks.append(Block(blocks[-1].hash, b"\0"))
    return blocks[::-1]


@pytest.mark.parametrize("whole", [False, True])
def test_many_entries_that_name_blocks_of_one_chain_cost_the_same_each(replica: Replica, whole: bool) -> None:
    """Each one another block, from the first one on, so that the rest of the chain is behind each."""
    blocks = chain_of_small(8000)
    size = 2 * len(blocks)
    there = ALICE.sign(web(replica), 0, Action.WRITE, b"f", blocks[0].hash, Extensions(size))
    replica.apply([there], blocks if whole else blocks[:-1])
    costs = []
    for part in (blocks[:200], blocks[200:400], blocks[4000:4200]):
        entries = [ALICE.sign(web(replica), 1, Action.WRITE, b"g", block.hash, Extensions(size)) for block in part]
        costs.append(calls(partial(replica.apply, entries, [])) / len(part))
    assert len(replica.incomplete()) == (0 if whole else 601)
    # Each step of a walk is two calls, and a walk along the whole chain 8000 steps.
    assert max(costs) < 1000


# -- what a chain unpacks to ------------------------------------------------------------------------------------------


@pytest.mark.logs("cannot be read")
@pytest.mark.parametrize("size", [2 * MIB, LARGE_CONTENT, 64 * MIB], ids=lambda size: f"{size // MIB} MiB")
def test_a_keyframe_that_unpacks_to_too_much_is_not_unpacked(replica: Replica, size: int) -> None:
    entry, blocks = save(replica, frame_of_zeros(size), size)
    assert replica.apply([entry], blocks).entries == (entry,)
    with pytest.raises(UnreadableContent, match="more than 1000 for each"):
        replica.read(F)
    assert not list(replica.directory.glob("cache.db.d/*")), "nothing was written for it"
    replica.commit(lambda author: author.write(F, b"written again"))
    assert replica.read(F) == b"written again"


@pytest.mark.parametrize("size", [MIB, LARGE_CONTENT, LARGE_CONTENT + 1, 40 * MIB, 40 * MIB + 12_345])
def test_what_this_node_writes_is_within_the_ratio(tmp_path: Path, replica: Replica, size: int) -> None:
    """Zeros, which compress best, as a keyframe and as a delta behind something else."""
    with (tmp_path / "zeros").open("wb+") as file:
        file.truncate(size)
        replica.commit(lambda author: author.write(F, noise(1, 2 * MIB)))
        replica.commit(lambda author: author.write(F, as_content(file)))
        replica.commit(lambda author: author.write(path("/web/zeros"), as_content(file)))
    other = copy_replica(replica, tmp_path / "other")
    for name in (F, path("/web/zeros")):
        content = other.open(name)
        assert content.size == size and not any(any(piece) for piece in content.pieces())
        content.close()
    assert replica.totals()["bytes"] < 4 * MIB
    other.close()


@pytest.mark.logs("cannot be read")
def test_a_delta_that_unpacks_to_too_much_is_not_unpacked(replica: Replica) -> None:
    first, first_blocks = save(replica, b"\0" + noise(1, 5000), 5000)
    size = 32 * MIB
    delta = bytes((codecs.ZSTD.tag,)) + codecs.ZSTD.encode(bytes(size), noise(1, 5000))
    second, blocks = save(replica, delta, size, parent=first.hash)
    replica.apply([first, second], [*first_blocks, *blocks])
    with pytest.raises(UnreadableContent, match="more than 1000 for each"):
        replica.read(F)


# -- deltas -----------------------------------------------------------------------------------------------------------


def deltas(replica: Replica, count: int) -> list[Entry]:
    """A file of zeros behind so many deltas that change nothing, each of which takes milliseconds."""
    size = 256 * 1024
    entry, blocks = save(replica, bytes((codecs.ZLIB.tag,)) + codecs.ZLIB.encode(bytes(size), b""), size)
    control, difference, extra = map(bz2.compress, (struct.pack("<qqq", size, 0, 0), bytes(size), b""))
    header = struct.pack("<8sQQQ", b"BSDIFF40", len(control), len(difference), size)
    delta = split(bytes((codecs.BSDIFF.tag,)) + header + control + difference + extra)
    entries = [entry]
    for number in range(count):
        parent = entries[-1].hash
        entries.append(ALICE.sign(parent, number, Action.WRITE, b"f", delta[0].hash, Extensions(size)))
    assert len(replica.apply(entries, [*blocks, *delta]).entries) == count + 1
    return entries


def test_so_many_deltas_are_decoded(replica: Replica) -> None:
    deltas(replica, MOST_DELTAS)
    assert replica.read(F) == bytes(256 * 1024)


@pytest.mark.logs("cannot be read")
@pytest.mark.parametrize("warm", [False, True])
def test_one_more_is_not_whatever_the_cache_holds(
    monkeypatch: pytest.MonkeyPatch, replica: Replica, warm: bool
) -> None:
    entries = deltas(replica, MOST_DELTAS + 1)
    if warm:
        assert replica.content_at(entries[-2].hash) == bytes(256 * 1024)
    decoded: list[int] = []
    decode = codecs.decode
    monkeypatch.setattr(codecs, "decode", lambda *arguments: decoded.append(1) or decode(*arguments))
    for _ in range(2):
        with pytest.raises(UnreadableContent, match=f"more than {MOST_DELTAS} deltas"):
            replica.read(F)
    assert not decoded
    replica.commit(lambda author: author.write(F, b"written again"))
    assert replica.read(F) == b"written again"


# -- who waits --------------------------------------------------------------------------------------------------------


def test_nobody_waits_for_a_content_that_is_decoded(monkeypatch: pytest.MonkeyPatch, replica: Replica) -> None:
    deltas(replica, 20)
    is_decoding, go_on = threading.Event(), threading.Event()
    decode = codecs.decode

    def slow(*arguments: bytes) -> bytes:
        is_decoding.set()
        assert go_on.wait(DEADLINE)
        return decode(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(codecs, "decode", slow)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(replica.read(F)))
    reader.start()
    assert is_decoding.wait(DEADLINE)
    # A reader, the writer and a peer go on, or this waits for ever.
    assert replica.read(path("/web/other")) == b"as before"
    replica.commit(lambda author: author.write(path("/mine"), b"meanwhile"))
    entry = ALICE.sign(web(replica), 99, Action.MKDIR, b"theirs")
    assert replica.apply([entry], []).entries == (entry,)
    assert not found
    go_on.set()
    reader.join(DEADLINE)
    assert found == [bytes(256 * 1024)]


def test_writing_over_what_is_hard_to_decode_decodes_nothing_under_the_lock(
    monkeypatch: pytest.MonkeyPatch, replica: Replica
) -> None:
    """A small file whose delta builds on large contents: comparing it with what is written unpacks them."""
    entries = deltas(replica, 20)
    small = b"small"
    delta = split(bytes((codecs.BSDIFF.tag,)) + codecs.BSDIFF.encode(small, bytes(256 * 1024)))
    entry = ALICE.sign(entries[-1].hash, 1, Action.WRITE, b"f", delta[0].hash, Extensions(len(small)))
    replica.apply([entry], delta)
    held: list[bool] = []
    decode = codecs.decode

    def seen(*arguments: bytes) -> bytes:
        thread = threading.Thread(target=lambda: held.append(replica.wait() < DEADLINE))
        thread.start()
        thread.join(5)
        assert not thread.is_alive(), "decoded under the lock"
        return decode(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(codecs, "decode", seen)
    replica.commit(lambda author: author.write(F, b"SMALL"))
    assert held and replica.read(F) == b"SMALL"


# -- one file only ----------------------------------------------------------------------------------------------------


def test_an_unreadable_content_is_logged_once(replica: Replica, caplog: pytest.LogCaptureFixture) -> None:
    entry, blocks = save(replica, b"\x01rubbish", 5)
    replica.apply([entry], blocks)
    for _ in range(3):
        with pytest.raises(UnreadableContent):
            replica.read(F)
        with pytest.raises(UnreadableContent):
            replica.open_write(entry.hash)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "'f'" in line and entry.hash.hex()[:12] in line and "basefs log" in line


# -- room on this node ------------------------------------------------------------------------------------------------


def limited(replica: Replica, directory: Path, limits: DiskLimits) -> Replica:
    """A node with a copy of the log, and with limits."""
    copy_replica(replica, directory).close()
    return Replica(directory, clock=Clock(), limits=limits)


@pytest.mark.parametrize("together", [False, True], ids=["behind the entry", "with the entry"])
def test_at_the_limit_contents_wait_and_entries_go_on(tmp_path: Path, replica: Replica, together: bool) -> None:
    other = limited(replica, tmp_path / "other", DiskLimits(max_log_bytes=1))
    content = noise(1, 300_000)
    entry, blocks = save(replica, b"\0" + content, len(content))
    for node in (replica, other):
        applied = node.apply([entry], blocks if together else [])
        assert applied.entries == (entry,) and not applied.rejected
        assert bool(applied.missing_blocks) == (node is replica and not together)
    send(replica, blocks, 3)
    before = stored(other)
    send(other, blocks, 3)
    assert stored(other) == before and other.limit_reached() == "max_log_bytes" and not replica.limit_reached()
    assert not other.missing_blocks(16) and other.incomplete()[0][2].state is ChainState.NO_ROOM
    assert other.digest().same_entries(replica.digest()), "so that nobody compares because of it"
    assert (other.digest().waiting, replica.digest().waiting) == (1, 0), "and all know of it"
    listing = other.listing(path("/web/f"))
    assert listing is not None and listing.entries == (entry.hash,) and not listing.stalled + listing.receiving
    assert b"f" not in other.names_in(path("/web"))
    assert not other.stall(-1000) and check(other.directory / LOG_FILE) == []
    other.close()
    # The owner has raised it.
    again = Replica(other.directory, clock=Clock(), limits=DiskLimits(max_log_bytes=10**9))
    assert again.stall(1000) == 1 and again.missing_blocks(16) == (blocks[0].hash,)
    send(again, blocks, 3)
    assert again.read(F) == content and not again.incomplete()
    assert again.digest() == replica.digest() and again.check_view() == []
    again.close()


def test_contents_wait_in_the_middle_and_go_on(
    tmp_path: Path, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the room of a disk comes and goes, beside a chain that has stalled before."""
    free = [10 * MIB]
    monkeypatch.setattr("basefs.log.reserve.free_bytes", lambda directory: free[0])
    other = limited(replica, tmp_path / "other", DiskLimits(min_free=5 * MIB))
    content = noise(1, 300_000)
    entry, blocks = save(replica, b"\0" + content, len(content))
    stalling = ALICE.sign(web(replica), 1, Action.WRITE, b"s", split(b"\0stalls")[0].hash, Extensions(6))
    for node in (replica, other):
        node.apply([entry, stalling], [])
    send(other, blocks[:4], 1)
    assert other.stall(-1000) == 2
    free[0] = 5 * MIB - 1
    other.apply([], blocks[4:5])
    assert other.limit_reached() == "min_free" and {state.state for _, _, state in other.incomplete()} == {
        ChainState.NO_ROOM
    }
    second = ALICE.sign(web(replica), 2, Action.WRITE, b"second", blocks[0].hash, Extensions(len(content)))
    for node in (replica, other):
        node.apply([second], [])
    send(replica, blocks, 3)
    replica.apply([], split(b"\0stalls"))
    assert other.root_hash() == replica.root_hash()
    free[0] = 5 * MIB + 1
    assert not other.stall(1000), "a little more is not enough"
    free[0] = 7 * MIB
    assert other.stall(1000) == 2 and set(other.missing_blocks(16)) == {blocks[4].hash, split(b"\0stalls")[0].hash}
    assert other.root_hash() != replica.root_hash()
    send(other, blocks[4:], 2)
    other.apply([], split(b"\0stalls"))
    assert [other.read(path(f"/web/{name}")) for name in ("f", "second", "s")] == [content, content, b"stalls"]
    assert other.root_hash() == replica.root_hash() and other.check_view() == []
    other.close()


def test_a_limit_shows_before_anything_arrives(tmp_path: Path, replica: Replica) -> None:
    other = limited(replica, tmp_path / "other", DiskLimits(max_log_bytes=1))
    assert other.limit_reached() == "max_log_bytes" and other.digest() == replica.digest()
    other.close()


def test_the_ends_of_a_limit_are_said_once(
    tmp_path: Path, replica: Replica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "basefs.log.store")
    free = [0]
    monkeypatch.setattr("basefs.log.reserve.free_bytes", lambda directory: free[0])
    other = limited(replica, tmp_path / "other", DiskLimits(min_free=5 * MIB))
    entry, blocks = save(replica, b"\0" + noise(1, 1000), 1000)
    for _ in range(3):
        other.apply([entry], blocks)
        other.stall(1000)
    free[0] = 7 * MIB
    for _ in range(3):
        other.stall(1000)
    other.close()
    assert [record.getMessage() for record in caplog.records] == [
        "no room for contents: min_free is reached, those of other nodes wait",
        "room for contents again: 1 that have waited are fetched",
    ]


def test_own_content_is_not_limited(tmp_path: Path, replica: Replica) -> None:
    other = limited(replica, tmp_path / "other", DiskLimits(max_log_bytes=1))
    other.close()
    other = Replica(other.directory, [ROOT_KEY], clock=Clock(), limits=DiskLimits(max_log_bytes=1))
    content = noise(1, 300_000)
    entry, _ = save(replica, b"\0" + content, len(content))
    other.apply([entry], [])
    assert other.limit_reached()
    other.commit(lambda author: author.write(path("/web/own"), content))
    assert other.read(path("/web/own")) == content and other.check_view() == []
    other.close()


def test_many_entries_of_one_withheld_chain_cost_the_same_each(tmp_path: Path, replica: Replica) -> None:
    other = limited(replica, tmp_path / "other", DiskLimits(max_log_bytes=1))
    blocks = split(b"\0" + noise(1, 1000))
    made = (ALICE.sign(web(replica), n, Action.WRITE, b"%d" % n, blocks[0].hash, Extensions(1000)) for n in range(1000))
    entries = list(made)
    costs = [calls(partial(other.apply, part, [])) for part in (entries[:500], entries[500:])]
    assert costs[1] <= 1.2 * costs[0]
    assert len(other.incomplete()) == 1000
    other.close()
