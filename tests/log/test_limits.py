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

from basefs.errors import NoSpace, UnreadableContent
from basefs.log import codecs
from basefs.log.blocks import GOSSIP_BLOCK_DATA, MAX_GOSSIP_BLOCKS, MAX_LISTED, SYNC_BLOCK_DATA, Block, Encoded
from basefs.log.check import check
from basefs.log.content import LARGE_CONTENT
from basefs.log.entries import MAX_ANNOTATION, Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import HASH_SIZE, ZERO_HASH, EntryHash
from basefs.log.lineage import MOST_DELTAS
from basefs.log.missing import ContentProgress
from basefs.log.reserve import DiskLimits
from basefs.log.room import Room
from basefs.path import MAX_DEPTH, MAX_NAME
from basefs.replica.replica import LOG_FILE, Applied, Replica
from tests.support.cost import calls
from tests.support.helpers import ALICE, ROOT_KEY, Clock, content_of, copy_replica, in_blocks, make_replica, noise, path
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


def save(
    replica: Replica, encoded: bytes, size: int, tag: int = 0, *, parent: EntryHash | None = None
) -> tuple[Entry, list[Block]]:
    """A write by Alice that states this size of what is encoded so."""
    named, blocks = in_blocks(encoded, tag)
    return ALICE.sign(parent or web(replica), size, Action.WRITE, b"f", named, Extensions(size)), blocks


def stored(replica: Replica) -> int:
    """Blocks in the log."""
    return replica.totals()["blocks"]


def send(replica: Replica, blocks: Sequence[Block], at_once: int) -> list[Applied]:
    """Bring blocks, so many at a time, for as long as the log asks for more."""
    return [replica.apply([], blocks[start : start + at_once]) for start in range(0, len(blocks), at_once)]


def frame_of_zeros(size: int) -> bytes:
    """The shortest frame that unpacks to so many zeros."""
    packer = zstandard.ZstdCompressor(level=19).compressobj(size=size)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(size // MIB)), packer.flush()])


# -- the blocks of a content ------------------------------------------------------------------------------------------

#: Lengths of encoded contents: one block, small parts, and lists of one level.
LENGTHS = [300, 3000, 20_000, 100_000]


def lists(replica: Replica, lists: list[list[Block]], length: int, name: bytes = b"f") -> tuple[Entry, list[Block]]:
    """A write whose manifest names these blocks, and the manifest."""
    manifest = [Block(b"".join(block.hash for block in named)) for named in lists]
    named = Encoded(manifest[-1].hash, 0, length).encode()
    return ALICE.sign(web(replica), 1, Action.WRITE, name, named, Extensions(length)), manifest


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("more", [-1, 1])
def test_a_content_that_is_not_as_long_as_its_entry_says_is_not_taken(
    tmp_path: Path, replica: Replica, length: int, more: int
) -> None:
    """The last part is longer or shorter, so that it does not fit: the file is not there, and nobody is to blame."""
    named, blocks = in_blocks(noise(1, length))
    wrong = Encoded(blocks[0].hash, 0, length + more).encode()
    lying = ALICE.sign(web(replica), 1, Action.WRITE, b"f", wrong, Extensions(length + more))
    right = ALICE.sign(web(replica), 1, Action.WRITE, b"g", named, Extensions(length))
    orders: list[Sequence[Entry | Block]] = [
        [lying, right, *blocks],
        [lying, *blocks, right, *blocks],
        [right, *blocks, lying],
        [*blocks, lying, right, *blocks],
        [lying, right, *reversed(blocks), *blocks],
    ]
    others = [copy_replica(replica, tmp_path / str(number)) for number in range(len(orders))]
    for other, order in zip(others, orders, strict=True):
        for thing in order:
            entries, pieces = ([thing], []) if isinstance(thing, Entry) else ([], [thing])
            assert not other.apply(entries, pieces).rejected
        assert other.read(path("/web/g")) == noise(1, length)
        assert b"f" not in other.names_in(path("/web"))
        assert not other.missing_blocks(16) and other.digest().missing == 0
        assert [found.progress for _, _, found in other.incomplete()] == [ContentProgress.SPOILED]
        assert other.check_view() == [] and check(other.directory / LOG_FILE) == []
        again = copy_replica(other, other.directory.with_name(f"{other.directory.name} again"))
        assert not again.missing_blocks(16), "also after a restart"
        assert [found.progress for _, _, found in again.incomplete()] == [ContentProgress.SPOILED]
        again.close()
    assert len({other.root_hash() for other in others}) == 1
    for other in others:
        other.close()


@pytest.mark.parametrize("at_once", [1, 8, 1000])
@pytest.mark.parametrize("together", [False, True], ids=["behind the entry", "with the entry"])
def test_blocks_beyond_the_stated_length_are_refused_as_they_arrive(
    replica: Replica, at_once: int, together: bool
) -> None:
    """Small parts that are as large as the largest, in a list of as many as the entry allows."""
    parts = [Block(noise(number, SYNC_BLOCK_DATA)) for number in range(MAX_GOSSIP_BLOCKS)]
    entry, manifest = lists(replica, [parts], MAX_GOSSIP_BLOCKS * GOSSIP_BLOCK_DATA)
    before = stored(replica)
    replica.apply([entry], [*manifest, *parts] if together else manifest)
    for applied in send(replica, [*manifest, *parts], at_once):
        assert not applied.rejected, "an honest peer may have another entry that allows them"
    assert stored(replica) <= before + 2 and not replica.missing_blocks(16)
    assert [found.progress for _, _, found in replica.incomplete()] == [ContentProgress.SPOILED]


@pytest.mark.parametrize("size", [MAX_LISTED * HASH_SIZE - HASH_SIZE, 100, 27])
def test_a_list_of_another_size_ends_it(replica: Replica, size: int) -> None:
    rubbish = Block(noise(1, size))
    length = MAX_LISTED * SYNC_BLOCK_DATA
    named = Encoded(rubbish.hash, 0, length).encode()
    entry = ALICE.sign(web(replica), 1, Action.WRITE, b"f", named, Extensions(length))
    replica.apply([entry], [])
    assert [hash for _, hash in replica.missing_blocks(16)] == [rubbish.hash]
    replica.apply([], [rubbish])
    assert not replica.missing_blocks(16) and replica.digest().missing == 0


def test_what_somebody_makes_of_the_blocks_of_others_does_not_spoil_their_contents(
    tmp_path: Path, replica: Replica
) -> None:
    """A part of a file that another entry names as a list, and its list as a part and as a list of lists."""
    content = noise(1, 3 * SYNC_BLOCK_DATA)
    _, blocks = in_blocks(content)
    victim, _ = save(replica, content, len(content))
    lengths = {b"a": (blocks[1], MAX_LISTED * SYNC_BLOCK_DATA), b"b": (blocks[0], len(blocks[0].data))}
    lengths[b"c"] = blocks[0], 3 * MAX_LISTED * SYNC_BLOCK_DATA
    lengths[b"d"] = blocks[0], len(content) - 1
    others = [
        ALICE.sign(web(replica), 1, Action.WRITE, name, Encoded(block.hash, 0, length).encode(), Extensions(length))
        for name, (block, length) in lengths.items()
    ]
    for number, entries in enumerate(([victim, *others], [*others, victim])):
        node = copy_replica(replica, tmp_path / str(number))
        for entry in entries:
            node.apply([entry], [])
        for block in (*blocks, *reversed(blocks)):
            node.apply([], [block])
        assert node.read(F) == content and node.read(path("/web/b")) == blocks[0].data
        assert {entry.name for _, entry, _ in node.incomplete()} == {b"a", b"c", b"d"}
        assert node.check_view() == [] and check(node.directory / LOG_FILE) == []
        node.close()


@pytest.mark.parametrize("whole", [False, True])
def test_many_entries_that_name_one_manifest_cost_the_same_each(replica: Replica, whole: bool) -> None:
    """However long the list is, and whatever length they state."""
    parts = [Block(b"%d" % number * 4096) for number in range(10, 99)]
    parts = [Block((block.data * 8)[:SYNC_BLOCK_DATA]) for block in parts]
    length = len(parts) * SYNC_BLOCK_DATA
    entry, manifest = lists(replica, [parts], length)
    replica.apply([entry], [*manifest, *(parts if whole else parts[1:])])
    costs = []
    for lengths in (range(length, length - 200, -1), range(length - 200, length - 400, -1), [length] * 200):
        entries = [
            ALICE.sign(
                web(replica), number, Action.WRITE, b"g", Encoded(manifest[0].hash, 0, each).encode(), Extensions(each)
            )
            for number, each in enumerate(lengths)
        ]
        costs.append(calls(partial(replica.apply, entries, [])) / len(entries))
    assert max(costs) < 1000
    assert len(replica.incomplete()) == (399 if whole else 600)


def over_and_over(replica: Replica, times: int, *, last: Block | None = None) -> tuple[Entry, list[Block]]:
    """A write of many gigabytes that takes three blocks, or four: a list of one list, which names one part; root first.

    `last`: the last part.
    """
    part = Block(noise(1, SYNC_BLOCK_DATA))
    inner = Block(part.hash * MAX_LISTED)
    end = [] if last is None else [Block(part.hash * (MAX_LISTED - 1) + last.hash), last]
    top = Block(inner.hash * (times - len(end[:1])) + b"".join(block.hash for block in end[:1]))
    length = times * MAX_LISTED * SYNC_BLOCK_DATA
    named = Encoded(top.hash, codecs.STORED.tag, length).encode()
    return ALICE.sign(web(replica), 1, Action.WRITE, b"f", named, Extensions(length)), [top, inner, part, *end]


@pytest.mark.parametrize("at_once", [1, 3], ids=["one by one", "with the entry"])
def test_a_list_that_is_named_over_and_over_is_looked_at_once(replica: Replica, at_once: int) -> None:
    entry, blocks = over_and_over(replica, 400)
    if at_once == 1:
        replica.apply([entry], [])
        # The list below is whole when the one comes that names it.
        other, _ = lists(replica, [[blocks[2]] * MAX_LISTED], MAX_LISTED * SYNC_BLOCK_DATA, b"o")
        replica.apply([other], blocks[1:])
        assert replica.read(path("/web/o"))[:SYNC_BLOCK_DATA] == blocks[2].data
        assert calls(partial(replica.apply, [], blocks[:1])) < 20_000
    else:
        assert calls(partial(replica.apply, [entry], blocks)) < 40_000
    assert not replica.incomplete() and replica.digest().missing == 0


def test_entries_that_name_large_contents_cost_the_same_whatever_comes_with_them(replica: Replica) -> None:
    entry, blocks = over_and_over(replica, 400, last=Block(noise(2, SYNC_BLOCK_DATA)))
    replica.apply([entry], blocks[:-1])
    for number in range(10):
        again = ALICE.sign(web(replica), number, Action.WRITE, b"g", entry.content, Extensions(entry.size))
        assert calls(partial(replica.apply, [again], [Block(noise(number, 100))])) < 3000
    assert calls(replica.incomplete) < 20_000
    found = replica.incomplete()
    assert len(found) == 11 and all(content.held == entry.size - SYNC_BLOCK_DATA for _, _, content in found)


def test_a_list_with_the_bytes_of_an_entry_keeps_no_content_away(tmp_path: Path, replica: Replica) -> None:
    """The hash of an entry is that of its bytes, as that of a block is."""
    named, (block,) = in_blocks(noise(1, 300))
    size = len(ALICE.sign(web(replica), 1, Action.WRITE, b"n", named, Extensions(300)).body)
    entry = ALICE.sign(web(replica), 1, Action.WRITE, b"n" * (1 + -size % HASH_SIZE), named, Extensions(300))
    twin = Block(entry.body)
    assert twin.hash == entry.hash and len(twin.data) % HASH_SIZE == 0
    length = len(twin.data) // HASH_SIZE * SYNC_BLOCK_DATA
    other = ALICE.sign(web(replica), 1, Action.WRITE, b"f", Encoded(twin.hash, 0, length).encode(), Extensions(length))
    for number, blocks in enumerate(([block, twin], [twin, block])):
        node = copy_replica(replica, tmp_path / str(number))
        node.apply([entry, other], [])
        for each in blocks:
            node.apply([], [each])
        assert node.read(path(f"/web/{entry.name.decode()}")) == block.data
        assert [found.name for _, found, _ in node.incomplete()] == [b"f"]
        assert node.check_view() == [] and check(node.directory / LOG_FILE) == []
        node.close()


def test_a_spoiled_content_wants_nothing_although_its_block_is_a_list_elsewhere_in_it(replica: Replica) -> None:
    last = Block(b"".join(Block(noise(number, 100)).hash for number in range(3)))
    first = Block(last.hash + Block(noise(9, SYNC_BLOCK_DATA)).hash * (MAX_LISTED - 1))
    top = Block(first.hash + last.hash)
    length = (MAX_LISTED + 3) * SYNC_BLOCK_DATA
    entry = ALICE.sign(web(replica), 1, Action.WRITE, b"f", Encoded(top.hash, 0, length).encode(), Extensions(length))
    replica.apply([entry], [top, first])
    assert last.hash in [hash for _, hash in replica.missing_blocks(16)]
    replica.apply([], [last])
    assert [found.progress for _, _, found in replica.incomplete()] == [ContentProgress.SPOILED]
    other = ALICE.sign(web(replica), 1, Action.WRITE, b"o", in_blocks(b"o")[0], Extensions(1))
    replica.apply([other], [])
    assert [hash for _, hash in replica.missing_blocks(16)] == [Block(b"o").hash]
    assert check(replica.directory / LOG_FILE) == []


# -- what a content unpacks to -----------------------------------------------------------------------------------------


@pytest.mark.logs("cannot be read")
@pytest.mark.parametrize("size", [2 * MIB, LARGE_CONTENT, 64 * MIB], ids=lambda size: f"{size // MIB} MiB")
def test_a_keyframe_that_unpacks_to_too_much_is_not_unpacked(replica: Replica, size: int) -> None:
    entry, blocks = save(replica, frame_of_zeros(size), size, codecs.FRAME.tag)
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
        replica.commit(lambda author: author.write(F, content_of(file)))
        replica.commit(lambda author: author.write(path("/web/zeros"), content_of(file)))
    other = copy_replica(replica, tmp_path / "other")
    for name in (F, path("/web/zeros")):
        content = other.open(name)
        assert content.size == size and not any(any(piece) for piece in content.pieces())
        content.close()
    assert replica.totals()["bytes"] < 4 * MIB
    other.close()


@pytest.mark.logs("cannot be read")
def test_a_delta_that_unpacks_to_too_much_is_not_unpacked(replica: Replica) -> None:
    first, first_blocks = save(replica, noise(1, 5000), 5000)
    size = 32 * MIB
    delta = codecs.ZSTD.encode(bytes(size), noise(1, 5000))
    second, blocks = save(replica, delta, size, codecs.ZSTD.tag, parent=first.hash)
    replica.apply([first, second], [*first_blocks, *blocks])
    with pytest.raises(UnreadableContent, match="more than 1000 for each"):
        replica.read(F)


@pytest.mark.logs("cannot be read")
@pytest.mark.parametrize("tag", [codecs.ZSTD.tag, codecs.BSDIFF.tag])
def test_what_a_delta_cannot_build_on_is_not_unpacked_for_it(replica: Replica, tag: int) -> None:
    """A small file behind one of many gigabytes, which takes three blocks."""
    large, blocks = over_and_over(replica, 400)
    small, delta = save(replica, b"rubbish", 7, tag, parent=large.hash)
    assert replica.apply([large, small], [*blocks, *delta]).entries == (large, small)
    with pytest.raises(UnreadableContent, match="too large"):
        replica.read(F)
    assert not list(replica.directory.glob("cache.db.d/*")), "nothing was written for it"


# -- deltas -----------------------------------------------------------------------------------------------------------


def deltas(replica: Replica, count: int) -> list[Entry]:
    """A file of zeros behind so many deltas that change nothing, each of which takes milliseconds."""
    size = 256 * 1024
    entry, blocks = save(replica, codecs.ZLIB.encode(bytes(size), b""), size, codecs.ZLIB.tag)
    control, difference, extra = map(bz2.compress, (struct.pack("<qqq", size, 0, 0), bytes(size), b""))
    header = struct.pack("<8sQQQ", b"BSDIFF40", len(control), len(difference), size)
    named, delta = in_blocks(header + control + difference + extra, codecs.BSDIFF.tag)
    entries = [entry]
    for number in range(count):
        parent = entries[-1].hash
        entries.append(ALICE.sign(parent, number, Action.WRITE, b"f", named, Extensions(size)))
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

    def slow(*arguments: object) -> bytes:
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
    named, delta = in_blocks(codecs.BSDIFF.encode(small, bytes(256 * 1024)), codecs.BSDIFF.tag)
    entry = ALICE.sign(entries[-1].hash, 1, Action.WRITE, b"f", named, Extensions(len(small)))
    replica.apply([entry], delta)
    held: list[bool] = []
    decode = codecs.decode

    def seen(*arguments: object) -> bytes:
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
    entry, blocks = save(replica, b"rubbish", 5, codecs.ZLIB.tag)
    replica.apply([entry], blocks)
    for _ in range(3):
        with pytest.raises(UnreadableContent):
            replica.read(F)
        with pytest.raises(UnreadableContent):
            replica.open_write(entry.hash)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "'f'" in line and entry.hash.hex()[:12] in line and "basefs log" in line


# -- room on this node ------------------------------------------------------------------------------------------------


def limited(replica: Replica, directory: Path, limits: DiskLimits, free: list[int] | None = None) -> Replica:
    """A node with a copy of the log, and with limits; `free`: the bytes that are free there, if they are not real."""
    copy_replica(replica, directory).close()
    room = None if free is None else Room(directory, lambda _: free[0])
    return Replica(directory, clock=Clock(), limits=limits, room=room)


@pytest.mark.parametrize("together", [False, True], ids=["behind the entry", "with the entry"])
def test_at_the_limit_contents_wait_and_entries_go_on(tmp_path: Path, replica: Replica, together: bool) -> None:
    other = limited(replica, tmp_path / "other", DiskLimits(max_log_bytes=1))
    content = noise(1, 300_000)
    entry, blocks = save(replica, content, len(content))
    for node in (replica, other):
        applied = node.apply([entry], blocks if together else [])
        assert applied.entries == (entry,) and not applied.rejected
        assert applied.lacks_blocks == (node is replica and not together)
    send(replica, blocks, 3)
    before = stored(other)
    send(other, blocks, 3)
    assert stored(other) == before and other.limit_reached() == "max_log_bytes" and not replica.limit_reached()
    assert not other.missing_blocks(16) and other.incomplete()[0][2].progress is ContentProgress.NO_ROOM
    assert other.digest().same_entries(replica.digest()), "so that nobody compares because of it"
    assert (other.digest().waiting, replica.digest().waiting) == (1, 0), "and all know of it"
    listing = other.listing(path("/web/f"))
    assert listing is not None and listing.entries == (entry.hash,)
    assert b"f" not in other.names_in(path("/web"))
    assert not other.look_again(-1000) and check(other.directory / LOG_FILE) == []
    other.close()
    # The owner has raised it.
    again = Replica(other.directory, clock=Clock(), limits=DiskLimits(max_log_bytes=10**9))
    assert again.look_again(-1000) == 1 and [hash for _, hash in again.missing_blocks(16)] == [blocks[0].hash]
    send(again, blocks, 3)
    assert again.read(F) == content and not again.incomplete()
    assert again.digest() == replica.digest() and again.check_view() == []
    again.close()


def test_contents_wait_in_the_middle_and_go_on(tmp_path: Path, replica: Replica) -> None:
    """As the room of a disk comes and goes."""
    free = [10 * MIB]
    other = limited(replica, tmp_path / "other", DiskLimits(min_free=5 * MIB), free)
    content = noise(1, 300_000)
    entry, blocks = save(replica, content, len(content))
    named, (small,) = in_blocks(b"small")
    beside = ALICE.sign(web(replica), 1, Action.WRITE, b"s", named, Extensions(5))
    for node in (replica, other):
        node.apply([entry, beside], [])
    send(other, blocks[:4], 1)
    free[0] = 5 * MIB - 1
    other.apply([], blocks[4:5])
    assert other.limit_reached() == "min_free" and not other.missing_blocks(16)
    assert {found.progress for _, _, found in other.incomplete()} == {ContentProgress.NO_ROOM}
    send(replica, [*blocks, small], 2)
    assert other.root_hash() == replica.root_hash() and other.digest().waiting == 2
    free[0] = 5 * MIB + 1
    assert not other.look_again(1000), "a little more is not enough"
    free[0] = 7 * MIB
    assert other.look_again(1000) == 2
    assert {hash for _, hash in other.missing_blocks(16)} == {small.hash, *(block.hash for block in blocks[4:])}
    send(other, [*blocks[4:], small], 2)
    assert [other.read(path(f"/web/{name}")) for name in ("f", "s")] == [content, b"small"]
    assert other.digest() == replica.digest() and other.check_view() == []
    other.close()


@pytest.mark.logs("disk full")
def test_below_the_reserve_nothing_of_others_is_taken(tmp_path: Path, replica: Replica) -> None:
    """Entries as well: a key holder can sign any number of them."""
    free = [5 * MIB - 1]
    limited(replica, tmp_path / "other", DiskLimits(min_free=5 * MIB), free).close()
    room = Room(tmp_path / "other", lambda _: free[0], min_free=5 * MIB)
    other = Replica(tmp_path / "other", [ROOT_KEY], clock=Clock(), limits=DiskLimits(min_free=5 * MIB), room=room)
    notes = [ALICE.sign(web(replica), number, Action(64), b"", bytes(MAX_ANNOTATION)) for number in range(100)]
    before = stored(other)
    for note in notes:
        with pytest.raises(NoSpace, match="min_free"):
            other.apply([note], [])
    room.ran_out(received=True)
    assert stored(other) == before and room.is_full()
    # What this node writes is not limited, and what it has is no news.
    other.commit(lambda author: author.write(path("/web/own"), b"own"))
    other.apply(notes[:0], [])
    free[0] += MIB // 2
    assert room.is_full(), "a little more is not enough"
    free[0] = 7 * MIB
    assert not room.is_full()
    assert other.apply(notes, []).entries == tuple(notes)
    other.close()


def test_blocks_that_name_each_other_come_from_memory_one_after_the_other(
    tmp_path: Path, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the hash of the next one, as a list would, and all are wanted before there is room."""
    size = [MIB]
    monkeypatch.setattr("basefs.log.reserve._size_of", lambda file: size[0])
    other = limited(replica, tmp_path / "other", DiskLimits(max_log_bytes=MIB))
    blocks = [Block(noise(1, HASH_SIZE))]
    while len(blocks) < 600:
        blocks.append(Block(blocks[-1].hash))
    other.apply([], blocks[:-1])
    other.apply(
        [
            ALICE.sign(web(replica), 1, Action.WRITE, b"%d" % n, in_blocks(block.data)[0], Extensions(HASH_SIZE))
            for n, block in enumerate(blocks)
        ],
        [],
    )
    assert len(other.incomplete()) == len(blocks)
    size[0] = 0
    assert other.look_again(1000) == len(blocks)
    other.apply([], blocks[-1:])
    assert not other.incomplete() and other.read(path("/web/0")) == blocks[0].data
    other.close()


def test_a_limit_shows_before_anything_arrives(tmp_path: Path, replica: Replica) -> None:
    other = limited(replica, tmp_path / "other", DiskLimits(max_log_bytes=1))
    assert other.limit_reached() == "max_log_bytes" and other.digest() == replica.digest()
    other.close()


def test_the_ends_of_a_limit_are_said_once(tmp_path: Path, replica: Replica, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "basefs.log.store")
    free = [7 * MIB]
    other = limited(replica, tmp_path / "other", DiskLimits(min_free=5 * MIB), free)
    entry, blocks = save(replica, noise(1, 1000), 1000)
    other.apply([entry], [])
    free[0] = 0
    for _ in range(3):
        other.apply([], blocks)
        other.look_again(1000)
    free[0] = 7 * MIB
    for _ in range(3):
        other.look_again(1000)
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
    entry, _ = save(replica, content, len(content))
    other.apply([entry], [])
    assert other.limit_reached()
    other.commit(lambda author: author.write(path("/web/own"), content))
    assert other.read(path("/web/own")) == content and other.check_view() == []
    other.close()


def test_many_entries_of_one_content_that_waits_cost_the_same_each(tmp_path: Path, replica: Replica) -> None:
    other = limited(replica, tmp_path / "other", DiskLimits(max_log_bytes=1))
    named, _ = in_blocks(noise(1, 1000))
    entries = [ALICE.sign(web(replica), n, Action.WRITE, b"%d" % n, named, Extensions(1000)) for n in range(1000)]
    costs = [calls(partial(other.apply, part, [])) for part in (entries[:500], entries[500:])]
    assert costs[1] <= 1.2 * costs[0]
    assert len(other.incomplete()) == 1000
    other.close()


def test_the_digest_says_which_contents_are_missing_in_any_order_and_after_a_restart(tmp_path: Path) -> None:
    one, other = make_replica(tmp_path / "one"), make_replica(tmp_path / "other")
    writes, blocks = [], []
    for number in range(4):
        named, more = in_blocks(noise(number, 200))
        writes.append(ROOT_KEY.sign(one.identity, number, Action.WRITE, b"%d" % number, named, Extensions(200)))
        blocks += more
    for write in writes:
        one.apply([write], [])
        other.apply(writes[::-1], [])
    assert one.digest() == other.digest() and one.digest().missing == 4
    seen = {one.digest().lacks}
    # Each has as many as the other one, and not the same.
    one.apply([], blocks[:1])
    other.apply([], blocks[-1:])
    assert one.digest().missing == other.digest().missing == 3
    assert not one.digest().lacks_same(other.digest()) and not one.digest().has_contents_of(other.digest())
    for replica, block in ((one, blocks[-1]), (other, blocks[0])):
        seen.add(replica.digest().lacks)
        replica.apply([], [block])
        again = copy_replica(replica, tmp_path / f"again{len(seen)}")
        assert again.digest() == replica.digest()
        again.close()
    assert one.digest().lacks_same(other.digest())
    seen.add(one.digest().lacks)
    assert len(seen) == 4
    one.apply([], blocks)
    assert one.digest().lacks == ZERO_HASH and one.digest().has_contents_of(other.digest())
    assert not other.digest().has_contents_of(one.digest())
    for replica in (one, other):
        replica.close()


def test_a_path_has_up_to_256_names_on_all_nodes_alike(replica: Replica, tmp_path: Path) -> None:
    """Each entry at the bottom costs a row for each directory above."""
    other = copy_replica(replica, tmp_path / "other")
    chain: list[Entry] = []
    for _ in range(300):
        parent = chain[-1].hash if chain else web(replica)
        chain.append(ALICE.sign(parent, 1, Action.MKDIR, b"d"))
    deepest = chain[MAX_DEPTH - 2]
    beside = ALICE.sign(chain[-1].hash, 1, Action(64), b"d")
    applied = replica.apply([*chain, beside], [])
    assert len(applied.entries) == MAX_DEPTH - 1 and len(applied.rejected) == 1
    for entry in reversed([*chain, beside]):
        other.apply([entry], [])
    assert other.root_hash() == replica.root_hash() and other.totals() == replica.totals()
    # There it goes on as anywhere else.
    named = ALICE.sign(deepest.hash, 1, Action(64), b"d")
    for node in (replica, other):
        assert node.apply([named], []).entries == (named,)
    other.close()


def test_a_path_has_up_to_4096_bytes_on_all_nodes_alike(replica: Replica) -> None:
    name = b"x" * MAX_NAME
    chain: list[Entry] = []
    for _ in range(17):
        chain.append(ALICE.sign(chain[-1].hash if chain else web(replica), 1, Action.MKDIR, name))
    # "/web" has four bytes.
    last = chain[14]
    fits, long = (ALICE.sign(last.hash, 1, Action.WRITE, b"x" * size) for size in (251, 252))
    applied = replica.apply([*chain, fits, long], [])
    assert applied.entries == (*chain[:15], fits)
    assert len(applied.rejected) == 2
