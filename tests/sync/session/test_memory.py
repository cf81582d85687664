"""The twin: what the protocol relies on."""

from __future__ import annotations

from basefs.log.entries import Action
from basefs.log.hashes import HASH_SIZE, SUM_MASK, ZERO_HASH, addend, sha224, stalled_hash, sum_hash
from basefs.sync.wire.limits import MAX_BLOCK_DATA
from tests.support.memory import MemoryLog
from tests.sync.helpers import KEY, KEYS, ROOT, STRANGER_ROOT, Writer, blocks_of, unsigned


def total(*hashes):
    return sum_hash(sum(map(addend, hashes)) & SUM_MASK)


def test_tree_hash_is_that_of_the_sum_of_everything():
    writer = Writer()
    writer.write((b"a", b"b", b"f"), b"content")
    writer.write((b"a", b"g"))
    log = writer.log()
    hashes = [sha224(entry[:-64]) for entry in writer.entries]
    assert log.root_hash() == total(*hashes)
    listing = log.listing((b"a",))
    assert [name for name, _ in listing.children] == [b"b", b"g"]
    assert log.path_hash((b"a",)) == total(*(set(hashes) - {ROOT.hash}))
    assert log.listing((b"x",)) is None
    assert log.path_hash((b"x",)) == ZERO_HASH


def test_states_of_a_content():
    writer = Writer()
    entry = writer.write((b"f",), b"0123456789", block_size=4)
    log = MemoryLog(ROOT.hash)
    first, second, third = writer.blocks
    result = log.add(writer.entries, ())
    assert result.missing_blocks == (sha224(first),) == log.missing_blocks(9)
    receiving = log.root_hash()
    assert log.listing((b"f",)).receiving == (entry.hash,)
    assert receiving == total(ROOT.hash)
    log.stall()
    assert log.listing((b"f",)).stalled == ((entry.hash, ZERO_HASH),)
    assert log.add((), [first]).missing_blocks == (sha224(second),)
    assert log.root_hash() == receiving
    log.stall()
    assert log.listing((b"f",)).stalled == ((entry.hash, sha224(first)),)
    assert log.path_hash((b"f",)) == total(stalled_hash(entry.hash, sha224(first)))
    assert log.add((), [second, third]).missing_blocks == ()
    assert log.listing((b"f",)).entries == (entry.hash,)
    assert log.path_hash((b"f",)) == total(entry.hash)
    assert log.missing_blocks(9) == ()


def test_blocks_are_accepted_in_order_only():
    writer = Writer()
    writer.write((b"f",), b"0123456789", block_size=4)
    log = MemoryLog(ROOT.hash)
    log.add(writer.entries, ())
    result = log.add((), [writer.blocks[1]])
    assert result.accepted == 0 and "not the next" in result.rejected[0]
    result = log.add((), [writer.blocks[0], writer.blocks[0], writer.blocks[1]])
    assert result.accepted == 2 and not result.rejected


def test_where_a_chain_goes_on():
    writer = Writer()
    writer.write((b"f",), b"0123456789", block_size=2)
    log = MemoryLog(ROOT.hash)
    log.add(writer.entries, writer.blocks[:4])
    hashes = [sha224(block) for block in writer.blocks]
    assert [log.block_behind(hash, 2) for hash in hashes] == [hashes[2], hashes[3], None, None, None]
    log.add((), writer.blocks[4:])
    assert [log.block_behind(hash, 2) for hash in hashes] == [hashes[2], hashes[3], hashes[4], None, None]


def test_equal_content_is_there_already():
    writer = Writer()
    writer.write((b"f",), b"same")
    writer.write((b"g",), b"same")
    log = writer.log()
    assert log.missing_blocks(9) == ()


def test_block_size():
    for size, accepted in ((MAX_BLOCK_DATA, 1), (MAX_BLOCK_DATA + 1, 0)):
        block = bytes(HASH_SIZE + size)
        log = MemoryLog()
        log.add([ROOT.encode(), unsigned(ROOT.hash, Action.WRITE, b"f", sha224(block), size).encode()], ())
        assert log.add((), [block]).accepted == accepted


def test_what_is_refused():
    log = MemoryLog(ROOT.hash, KEYS)
    child = KEY.sign(ROOT.hash, 1, Action.MKDIR, b"d")
    forged = unsigned(ROOT.hash, Action.MKDIR, b"e").encode()
    assert log.add([child.encode()], ()).missing_parents == (ROOT.hash,)
    assert log.add([ROOT.encode(), child.encode()], ()).accepted == 2
    assert log.add([ROOT.encode()], ()) == log.add((), ())
    misnamed = KEY.sign(child.hash, 1, Action.DELETE, b"other").encode()
    for data in (b"", b"rubbish", forged, STRANGER_ROOT.encode(), misnamed, child.encode() + b"x"):
        result = log.add([data], ())
        assert result.accepted == 0 and len(result.rejected) == 1, data
    assert "not granted" in MemoryLog(ROOT.hash, {}).add([ROOT.encode()], ()).rejected[0]


def test_an_empty_log_may_take_any_filesystem():
    log = MemoryLog()
    assert log.identity == ZERO_HASH
    log.add([STRANGER_ROOT.encode(), ROOT.encode()], ())
    assert log.identity == STRANGER_ROOT.hash
    assert len(log) == 1


def test_it_is_bounded():
    size = len(ROOT.encode())
    assert MemoryLog(max_bytes=size).add([ROOT.encode()], ()).accepted == 1
    assert "full" in MemoryLog(max_bytes=size - 1).add([ROOT.encode()], ()).rejected[0]


def test_walk_is_in_an_acceptable_order_while_the_log_grows():
    writer = Writer()
    for number in range(20):
        writer.write((b"d%d" % (number % 3), b"s", b"f%d" % number), b"x")
        writer.write((b"d%d" % (number % 3), b"s", b"f%d" % number), b"y")
    log = writer.log()
    walk = log.walk(())
    seen = [next(walk)]
    writer.write((b"d1", b"late"), b"z")
    log.add(writer.entries, blocks_of(b"z"))
    seen += walk
    copy = MemoryLog(ROOT.hash)
    result = copy.add(seen, writer.blocks)
    assert result.accepted >= len(seen) and not result.missing_parents
    assert [*MemoryLog().walk(())] == []
