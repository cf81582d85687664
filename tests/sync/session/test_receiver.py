"""What arrives, and what is asked for next."""

from __future__ import annotations

import contextlib
import random

import pytest

from basefs.errors import RemoteProtocolError
from basefs.log.blocks import MAX_LISTED, SYNC_BLOCK_DATA, Encoded
from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE, sha224
from basefs.replica.replica import Replica
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.receiver import OrphanBuffer, Receiver
from basefs.sync.session.result import SessionCounters
from basefs.sync.wire.limits import MAX_HASHES, Limits
from basefs.sync.wire.messages import BlockReq, EntryReq
from tests.support.memory import MemoryLog
from tests.sync.helpers import ROOT, Writer, random_bytes, unsigned


class Counting(MemoryLog):
    """Remembers how much it was given at once."""

    largest = 0

    def add(self, entries, blocks, *, peer=""):
        self.largest = max(self.largest, len(entries))
        return super().add(entries, blocks, peer=peer)


def setup(**limits):
    log = Counting(ROOT.hash)
    counters = SessionCounters()
    return log, counters, Receiver(log, counters, Limits(**limits))


def run(log, intake):
    while intake.pending or intake.gathered:
        intake.seal()
        intake.added(log.add(*intake.offer()))


def test_a_long_line_is_given_to_the_log_in_slices():
    writer = Writer()
    for number in range(100):
        writer.write((b"f%d" % number,))
    log, counters, intake = setup(batch=32)
    intake.put_entries(writer.entries)
    run(log, intake)
    assert log.largest == 32
    assert counters.accepted == counters.entries_received == len(log) == 101


def test_entries_in_any_order_find_their_parents():
    writer = Writer()
    for number in range(200):
        writer.write((b"f",), b"%d" % number)
    shuffled = writer.entries[:]
    random.Random(1).shuffle(shuffled)
    log, counters, intake = setup()
    for start in range(0, len(shuffled), 10):
        intake.put_entries(shuffled[start : start + 10])
        run(log, intake)
    assert len(log) == 201
    assert counters.rejected == 0
    assert intake.wanted_parents() == []


def test_missing_parents_are_asked_for_once_a_round():
    writer = Writer()
    for number in range(3):
        writer.write((b"f",), b"%d" % number)
    log, _, intake = setup()
    intake.put_entries([writer.entries[0], writer.entries[3], writer.entries[2]])
    run(log, intake)
    parent = Entry.decode(writer.entries[1]).hash
    assert intake.wanted_parents() == [EntryReq((parent,))]
    assert intake.wanted_parents() == []
    intake.put_entries([writer.entries[1]])
    run(log, intake)
    assert len(log) == 4
    intake.new_round()
    assert intake.wanted_parents() == []


def test_many_missing_parents_take_several_requests():
    writer = Writer()
    for number in range(MAX_HASHES + 1):
        writer.write((b"d%d" % number, b"f"))
    log, _, intake = setup()
    intake.put_entries([writer.entries[0], *writer.entries[2::2]])
    run(log, intake)
    assert [len(request.hashes) for request in intake.wanted_parents()] == [MAX_HASHES, 1]


def test_orphans_are_bounded():
    writer = Writer()
    for number in range(5):
        writer.write((b"f",), b"%d" % number)
    entries = [Entry.decode(data) for data in writer.entries]
    size = len(writer.entries[2])
    orphans = OrphanBuffer(2 * size)
    for entry, data in list(zip(entries, writer.entries, strict=True))[2:]:
        orphans.hold(entry, entry.parent, data)
        orphans.hold(entry, entry.parent, data)
    assert orphans.parents() == [entries[1].hash]
    assert orphans.hold_block(writer.blocks[1]), "it belongs to an orphan, although there is no room for it"
    assert not orphans.hold_block(writer.blocks[0])
    assert orphans.release(entries[1].hash) == [(writer.entries[2], [])]
    assert orphans.release(entries[2].hash) == [(writer.entries[3], [])]
    assert orphans.release(entries[3].hash) == []
    assert not orphans
    for entry, data in list(zip(entries, writer.entries, strict=True))[3:]:
        orphans.hold(entry, entry.parent, data)
    assert all(orphans.release(entry.hash) for entry in entries[2:4]), "there is room for two again"


def test_blocks_wait_with_their_orphan():
    writer = Writer()
    writer.write((b"d", b"f"), random_bytes(1200))
    log, counters, intake = setup()
    intake.put_entries([writer.entries[0], writer.entries[2]])
    run(log, intake)
    intake.put_blocks(writer.blocks)
    assert counters.rejected == 0
    intake.put_entries([writer.entries[1]])
    run(log, intake)
    assert log.root_hash() == writer.log().root_hash()
    assert intake.answered(None) == []


def test_a_list_that_an_orphan_names_over_and_over_is_taken_once():
    part = random_bytes(SYNC_BLOCK_DATA)
    inner = sha224(part) * MAX_LISTED
    top = sha224(inner) * 400
    length = 400 * MAX_LISTED * SYNC_BLOCK_DATA
    mkdir = unsigned(ROOT.hash, Action.MKDIR, b"d")
    write = unsigned(mkdir.hash, Action.WRITE, b"f", Encoded(sha224(top), 0, length).encode(), length)
    orphans = OrphanBuffer(1 << 20)
    orphans.hold(write, write.parent, write.encode())
    assert all(map(orphans.hold_block, (top, inner, part)))
    assert orphans.release(mkdir.hash) == [(write.encode(), [top, inner, part])]


def test_blocks_wait_with_their_orphan_whose_parent_came_with_it():
    writer = Writer()
    writer.write((b"d", b"f"), b"content")
    log, counters, intake = setup()
    root, mkdir, write = writer.entries
    intake.put_entries([root, write, mkdir])
    intake.put_blocks(writer.blocks)
    run(log, intake)
    assert counters.rejected == 0
    assert log.root_hash() == writer.log().root_hash()


def test_a_block_of_an_orphan_may_be_that_of_another_entry_too():
    writer = Writer()
    writer.write((b"d", b"f"), random_bytes(1200))
    writer.write((b"g",), random_bytes(1200))
    log, counters, intake = setup()
    intake.put_entries([writer.entries[0], writer.entries[2], writer.entries[3]])
    run(log, intake)
    intake.put_blocks(writer.blocks[:2])
    intake.put_blocks(writer.blocks[2:3])
    assert len(log.missing_blocks(9)) == 1
    intake.put_blocks(writer.blocks[3:4])
    assert log.missing_blocks(9) == []
    intake.put_entries([writer.entries[1]])
    run(log, intake)
    assert log.root_hash() == writer.log().root_hash()
    assert counters.rejected == 0


def hashes_of(blocks):
    return tuple(map(sha224, blocks))


def test_the_rest_of_a_content_is_asked_for_when_the_answer_has_ended():
    writer = Writer()
    writer.write((b"f",), random_bytes(2000))
    log, _, intake = setup()
    intake.put_entries(writer.entries)
    run(log, intake)
    intake.put_blocks(writer.blocks[:2])
    (request,) = intake.answered(None)
    assert request == BlockReq(hashes_of(writer.blocks[2:]))
    assert intake.answered(None) == [], "a block is asked for once"
    intake.put_blocks(writer.blocks[3:4], request=request)
    assert intake.answered(request) == [], "the peer has sent all that it has"


def test_what_the_peer_did_not_have_is_asked_for_again_when_it_has_brought_something_else():
    writer = Writer()
    contents = [writer.write((b"f%d" % number,), random_bytes(2000, number)) for number in range(2)]
    log, _, intake = setup()
    log.add(writer.entries, writer.blocks[:1])
    (first,) = intake.ask_blocks()
    assert len(contents) == 2 and first.hashes == (sha224(writer.blocks[5]), *hashes_of(writer.blocks[1:5]))
    intake.put_blocks(writer.blocks[5:6], request=first)
    (second,) = intake.answered(first)
    assert second.hashes == hashes_of(writer.blocks[6:])
    intake.put_blocks(writer.blocks[6:7], request=second)
    (third,) = intake.answered(second)
    assert third.hashes == hashes_of(writer.blocks[1:5])
    assert intake.answered(third) == [], "it has nothing of it"


def test_what_came_by_another_way_meanwhile_is_not_asked_for():
    writer = Writer()
    writer.write((b"f",), random_bytes(2000))
    log, _, intake = setup()
    log.add(writer.entries, writer.blocks[:1])
    (request,) = intake.ask_blocks()
    log.add((), writer.blocks[1:3])
    assert intake.still_missing(request) == BlockReq(hashes_of(writer.blocks[3:]))
    log.add((), writer.blocks[3:])
    assert intake.still_missing(request) is None


def test_nothing_is_asked_for_that_came_inline():
    writer = Writer()
    writer.write((b"f",), random_bytes(2000))
    log, _, intake = setup()
    intake.put_entries(writer.entries)
    run(log, intake)
    intake.put_blocks(writer.blocks)
    assert intake.answered(None) == []


def made_up(log, count):
    """Contents of so many blocks that nobody has, in lists; returns the hashes."""
    hashes = [sha224(b"%d" % number) for number in range(count)]
    for start in range(0, count, MAX_LISTED):
        part = hashes[start : start + MAX_LISTED]
        manifest, length = b"".join(part), len(part) * SYNC_BLOCK_DATA
        named = Encoded(sha224(manifest), 0, length).encode()
        entry = unsigned(ROOT.hash, Action.WRITE, b"made up %d" % start, named, length)
        assert not log.add([ROOT.encode(), entry.encode()], [manifest]).rejected
    assert len(log.missing_blocks(2 * count)) == count
    return hashes


def answer(log, intake, requests, blocks=()):
    """Answer requests with those of the blocks that they are for, and what follows; returns what was asked for."""
    there = dict(zip(hashes_of(blocks), blocks, strict=True))
    asked = []
    todo = list(requests)
    while todo:
        request = todo.pop(0)
        asked += request.hashes
        if found := [there[hash] for hash in request.hashes if hash in there]:
            intake.put_blocks(found, request=request)
        todo += intake.answered(request)
    return asked


def test_blocks_that_nobody_has_do_not_keep_later_ones_from_being_asked_for():
    """More of them than a session asks for: the next one goes on behind them, and then from the beginning."""
    log, requests, limits = MemoryLog(ROOT.hash), RequestTable(), Limits(asked=100)
    hashes = made_up(log, 250)
    asked = []
    for _ in range(4):
        intake = Receiver(log, SessionCounters(), limits, requests)
        asked.append(answer(log, intake, intake.ask_blocks()))
        intake.close()
    assert asked == [hashes[:100], hashes[100:200], hashes[200:] + hashes[:50], hashes[50:150]]


class Old(MemoryLog):
    """Numbers what is missing like a log that has lacked many blocks before."""

    def missing_blocks(self, limit, behind=0):
        return [(10**6 + number, hash) for number, hash in super().missing_blocks(limit, max(behind - 10**6, 0))]


@pytest.mark.parametrize("kind", [MemoryLog, Old])
def test_many_sessions_share_what_is_missing(kind):
    log, requests = kind(ROOT.hash), RequestTable()
    hashes = made_up(log, 1000)
    asked = []
    for _ in range(10):
        for request in Receiver(log, SessionCounters(), Limits(), requests).ask_blocks():
            asked += request.hashes
    assert asked == hashes[:640]


def test_many_blocks_that_a_peer_did_not_have_are_not_asked_for_again_at_each_that_it_has():
    log = MemoryLog(ROOT.hash)
    hashes = made_up(log, 10_000)
    writer = Writer()
    writer.write((b"f",), random_bytes(320 * SYNC_BLOCK_DATA))
    log.add(writer.entries, writer.blocks[:1])
    intake = Receiver(log, SessionCounters(), Limits())
    asked = answer(log, intake, intake.ask_blocks(), writer.blocks)
    assert log.digest().missing == 9
    assert set(hashes) < set(asked) and len(asked) < 2 * len(hashes)


def test_blocks_to_ask_for_are_bounded():
    writer = Writer()
    for number in range(10):
        writer.write((b"f%d" % number,), b"%d" % number)
    log, _, intake = setup(asked=4)
    intake.put_entries(writer.entries)
    run(log, intake)
    assert [len(request.hashes) for request in intake.ask_blocks()] == [4]
    assert intake.answered(None) == []


def test_refused_entries_at_the_limit_and_above():
    log, counters, intake = setup(rejected=3)
    intake.put_entries([b"rubbish"] * 3)
    run(log, intake)
    assert counters.rejected == 3
    intake.put_entries([b"rubbish"])
    with pytest.raises(RemoteProtocolError, match="4 entries or blocks were refused"):
        run(log, intake)


def test_a_made_up_orphan_does_not_hide_what_is_refused(tmp_path):
    blocks = [b"%d" % number for number in range(127)]
    named = Encoded(sha224(blocks[0]), 0, len(blocks[0])).encode()
    orphan = unsigned(b"p" * HASH_SIZE, Action.WRITE, b"f", named, 127)
    counters = SessionCounters()
    # Which keeps the blocks of orphans, unlike a log in memory.
    with contextlib.closing(Replica.create(tmp_path, ROOT.hash)) as replica:
        intake = Receiver(replica, counters, Limits(batch=128))
        intake.put_entries([orphan.encode(), *(b"rubbish%d" % number for number in range(127))])
        intake.put_blocks(blocks)
        run(replica, intake)
    assert counters.rejected == 127


def test_bad_blocks_of_a_made_up_orphan_are_refused_all_the_same():
    log, counters, intake = setup()
    log.add([ROOT.encode()], [])
    bad = bytes(40_000)
    named = Encoded(sha224(bad), 0, 40_000).encode()
    known = unsigned(ROOT.hash, Action.WRITE, b"known", named, 40_000)
    orphan = unsigned(b"p" * HASH_SIZE, Action.WRITE, b"f", named, 40_000)
    intake.put_entries([known.encode(), orphan.encode()])
    run(log, intake)
    intake.put_blocks([bad])
    assert counters.rejected == 1


def test_refused_blocks_count_too():
    _, _, intake = setup(rejected=1)
    intake.put_blocks([bytes(40)])
    with pytest.raises(RemoteProtocolError):
        intake.put_blocks([bytes(40)])
