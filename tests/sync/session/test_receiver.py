"""What arrives, and what is asked for next."""

from __future__ import annotations

import contextlib
import random

import pytest

from basefs.errors import RemoteProtocolError
from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE, sha224
from basefs.replica.replica import Replica
from basefs.sync.session.receiver import OrphanBuffer, Receiver
from basefs.sync.session.result import SessionCounters
from basefs.sync.wire.limits import MAX_HASHES, Limits
from basefs.sync.wire.messages import BlockReq, EntryReq
from tests.support.memory import MemoryLog
from tests.sync.helpers import ROOT, Writer, blocks_of, unsigned


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
        orphans.hold(entry, data)
        orphans.hold(entry, data)
    assert orphans.parents() == [entries[1].hash]
    assert orphans.hold_block(writer.blocks[1]), "it belongs to an orphan, although there is no room for it"
    assert not orphans.hold_block(writer.blocks[0])
    assert orphans.release(entries[1].hash) == [(writer.entries[2], [])]
    assert orphans.release(entries[2].hash) == [(writer.entries[3], [])]
    assert orphans.release(entries[3].hash) == []
    assert not orphans and orphans._room == 2 * size


def test_blocks_wait_with_their_orphan():
    writer = Writer()
    writer.write((b"d", b"f"), b"0123456789", block_size=4)
    log, counters, intake = setup()
    intake.put_entries([writer.entries[0], writer.entries[2]])
    run(log, intake)
    intake.put_blocks(writer.blocks, streaming=False)
    assert counters.rejected == 0
    intake.put_entries([writer.entries[1]])
    run(log, intake)
    assert log.root_hash() == writer.log().root_hash()
    assert intake.answered(None) == []


def test_blocks_wait_with_their_orphan_whose_parent_came_with_it():
    writer = Writer()
    writer.write((b"d", b"f"), b"content")
    log, counters, intake = setup()
    root, mkdir, write = writer.entries
    intake.put_entries([root, write, mkdir])
    intake.put_blocks(writer.blocks, streaming=False)
    run(log, intake)
    assert counters.rejected == 0
    assert log.root_hash() == writer.log().root_hash()


def test_a_block_of_an_orphan_may_be_that_of_another_entry_too():
    writer = Writer()
    writer.write((b"d", b"f"), b"0123456789", block_size=4)
    writer.write((b"g",), b"0123456789", block_size=4)
    log, counters, intake = setup()
    intake.put_entries([writer.entries[0], writer.entries[2], writer.entries[3]])
    run(log, intake)
    intake.put_blocks(writer.blocks[:2], streaming=False)
    intake.put_blocks(writer.blocks[2:3], streaming=False)
    assert log.missing_blocks(9) == ()
    intake.put_entries([writer.entries[1]])
    run(log, intake)
    assert log.root_hash() == writer.log().root_hash()
    assert counters.rejected == 0


def test_the_rest_of_a_content_is_asked_for_when_the_answer_has_ended():
    writer = Writer()
    writer.write((b"f",), b"0123456789", block_size=2)
    log, _, intake = setup()
    intake.put_entries(writer.entries)
    run(log, intake)
    intake.put_blocks(writer.blocks[:2], streaming=False)
    assert intake.answered(None) == [BlockReq(sha224(writer.blocks[2]))]
    assert intake.answered(None) == []
    intake.put_blocks(writer.blocks[2:4], streaming=True)
    assert intake.answered(None) == [], "the peer has sent all that it has"
    assert intake.missing_blocks() == [BlockReq(sha224(writer.blocks[4]))]
    assert intake.missing_blocks() == [], "a block is asked for once"


def test_nothing_is_asked_for_that_came_inline():
    writer = Writer()
    writer.write((b"f",), b"0123456789", block_size=2)
    log, _, intake = setup()
    intake.put_entries(writer.entries)
    run(log, intake)
    intake.put_blocks(writer.blocks, streaming=False)
    assert intake.answered(None) == []


def test_blocks_to_ask_for_are_bounded():
    writer = Writer()
    for number in range(10):
        writer.write((b"f%d" % number,), b"%d" % number)
    log, _, intake = setup(asked=4, missing_blocks=3)
    intake.put_entries(writer.entries)
    run(log, intake)
    assert len(intake.missing_blocks()) == 3
    assert len(intake.answered(None)) == 1


def test_refused_entries_at_the_limit_and_above():
    log, counters, intake = setup(rejected=3)
    intake.put_entries([b"rubbish"] * 3)
    run(log, intake)
    assert counters.rejected == 3
    intake.put_entries([b"rubbish"])
    with pytest.raises(RemoteProtocolError, match="4 entries or blocks were refused"):
        run(log, intake)


def test_a_made_up_orphan_does_not_hide_what_is_refused(tmp_path):
    blocks = blocks_of(bytes(127), 1)
    orphan = unsigned(b"p" * HASH_SIZE, Action.WRITE, b"f", sha224(blocks[0]), 127)
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
    bad = bytes(HASH_SIZE)
    known = unsigned(ROOT.hash, Action.WRITE, b"known", sha224(bad), 1)
    orphan = unsigned(b"p" * HASH_SIZE, Action.WRITE, b"f", sha224(bad), 1)
    intake.put_entries([known.encode(), orphan.encode()])
    run(log, intake)
    intake.put_blocks([bad])
    assert counters.rejected == 1


def test_refused_blocks_count_too():
    _, _, intake = setup(rejected=1)
    intake.put_blocks([bytes(40)], streaming=True)
    with pytest.raises(RemoteProtocolError):
        intake.put_blocks([bytes(40)], streaming=True)
