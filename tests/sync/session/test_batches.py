"""Entries and blocks in lines."""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

from basefs.log.entries import Action, Entry
from basefs.log.hashes import sha224
from basefs.sync.session.responder import BatchEncoder, ordered, size_of
from basefs.sync.session.result import SessionCounters
from basefs.sync.wire.codec import parse
from basefs.sync.wire.limits import ENTRIES_PER_SLICE, INLINE_BLOCKS, MAX_LINE
from basefs.sync.wire.messages import PAUSE, Blocks, Entries
from tests.support.helpers import ROOT_KEY
from tests.sync.helpers import Writer, random_bytes, unsigned


def pack(log, encoded):
    counters = SessionCounters()
    pieces = [piece for piece in BatchEncoder(log, counters).entries(encoded) if piece != PAUSE]
    lines = b"".join(pieces).splitlines(keepends=True)
    assert all(line.endswith(b"\n") and len(line) <= MAX_LINE for line in lines)
    return [parse(line[:-1]) for line in lines], counters


def test_a_small_content_follows_its_entry():
    writer = Writer()
    entry = writer.write((b"f",), random_bytes(1000))
    messages, counters = pack(writer.log(), [entry.encode()])
    assert messages == [Entries((entry.encode(),)), Blocks(tuple(writer.blocks))]
    assert (counters.entries_sent, counters.blocks_sent) == (1, 3)


def test_a_gossip_key_goes_to_members_of_now_alone():
    """The revoke of the peer may have come with it, and its session ends a moment later."""
    writer = Writer()
    entry = writer.write((b"f",))
    secret = unsigned(entry.hash, Action.GOSSIP_KEY, b"", bytes(32))
    for is_member in (True, False):
        lines = BatchEncoder(writer.log(), SessionCounters(), is_member=partial(bool, is_member)).entries(
            [entry.encode(), secret.encode()]
        )
        wanted = (entry.encode(), secret.encode()) if is_member else (entry.encode(),)
        assert [parse(line[:-1]) for line in lines if line != PAUSE] == [Entries(wanted)]


def test_inline_at_the_limit_and_above():
    for size, inline in ((INLINE_BLOCKS, 3), (INLINE_BLOCKS + 1, 1), (INLINE_BLOCKS // 2, 1)):
        writer = Writer()
        entry = writer.write((b"f",), random_bytes(size))
        _, counters = pack(writer.log(), [entry.encode()])
        assert counters.blocks_sent == inline, size


def test_many_entries_are_cut_in_slices():
    writer = Writer()
    for number in range(100):
        writer.write((b"f%d" % number,))
    messages, counters = pack(writer.log(), writer.entries)
    assert [len(message.encoded) for message in messages] == [ENTRIES_PER_SLICE] * 3 + [101 - 3 * ENTRIES_PER_SLICE]
    assert counters.entries_sent == 101


def test_long_entries_and_blocks_of_every_size_fit_into_lines():
    writer = Writer()
    root = writer.root
    entries = [writer.put(root, Action.SLINK, b"%d" % number, b"x" * 4095).encode() for number in range(40)]
    log = writer.log()
    assert sum(len(message.encoded) for message in pack(log, entries)[0]) == 40
    for size in (1, 2, 483, 5000, 12_000, 20_000, 32_768):
        blocks = [random_bytes(size, number) for number in range(9 if size > 9 else 2000)]
        lines = list(BatchEncoder(log, SessionCounters()).blocks(blocks))
        assert max(map(len, lines)) <= MAX_LINE
        assert [block for line in lines for block in parse(line[:-1]).blocks] == blocks
    assert list(BatchEncoder(log, SessionCounters()).blocks([])) == []


def test_nothing_is_read_before_it_is_taken():
    writer = Writer()
    writer.write((b"f",), random_bytes(10 * 32768))
    log = writer.log()
    read = []
    original = log.block
    log.block = lambda hash: read.append(hash) or original(hash)
    lines = BatchEncoder(log, SessionCounters()).blocks(log.block(sha224(block)) for block in writer.blocks)
    next(lines)
    assert len(read) <= 2


def test_ordered_puts_parents_first_and_leaves_out_the_unknown():
    writer = Writer()
    hashes = [writer.write((b"f",), b"%d" % number).hash for number in range(100)]
    log = writer.log()
    found = [data for data in ordered(log, [*reversed(hashes), sha224(b"unknown")]) if data != PAUSE]
    entries = [Entry.decode(data) for data in found]
    assert [entry.hash for entry in entries] == hashes
    assert all(child.parent == parent.hash for parent, child in pairwise(entries))


def test_ordered_puts_what_links_name_first():
    root = ROOT_KEY.sign(bytes(28), 1, Action.MKDIR, b"/")
    file = ROOT_KEY.sign(root.hash, 1, Action.WRITE, b"z")
    entries = [root, file]
    for number in range(50):
        entries.append(ROOT_KEY.sign(root.hash, 1, Action.LINK, b"%d" % number, entries[-1].hash))
        entries.append(ROOT_KEY.sign(entries[-1].hash, 1, Action.MODE, b"%d" % number, b"\x01\x80"))
    known = {entry.hash: entry.encode() for entry in entries}
    for seed in range(5):
        hashes = list(known)
        random.Random(seed).shuffle(hashes)
        found = [data for data in ordered(SimpleNamespace(entry=known.get), hashes) if data != PAUSE]
        assert [Entry.decode(data) for data in found] == entries


def test_ordered_keeps_an_order_that_is_good():
    writer = Writer()
    hashes = [writer.write((b"f%d" % (number % 7),), b"%d" % number).hash for number in range(50)]
    found = [data for data in ordered(writer.log(), hashes) if data != PAUSE]
    assert [Entry.decode(data).hash for data in found] == hashes


def test_the_size_of_a_content_that_is_here():
    writer = Writer()
    entries = [writer.write((b"%d" % size,), random_bytes(size)).encode() for size in (0, 100, 5000, 100_000)]
    sizes = [size_of(writer.log(), entry, INLINE_BLOCKS) - len(entry) for entry in entries]
    assert sizes == [0, 100, 5000, 100_000]
    log = Writer().log()
    log.add(writer.entries, writer.blocks[:3])
    # The manifest is enough of one whose blocks are exchanged.
    assert [size_of(log, entry, INLINE_BLOCKS) is None for entry in entries] == [False, False, False, False]
    log = Writer().log()
    log.add(writer.entries, writer.blocks[:1])
    assert [size_of(log, entry, INLINE_BLOCKS) is None for entry in entries] == [False, False, True, False]
