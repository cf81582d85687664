"""The twin: what the protocol relies on."""

from __future__ import annotations

from basefs.log.blocks import SYNC_BLOCK_DATA, Encoded
from basefs.log.entries import Action
from basefs.log.hashes import SUM_MASK, ZERO_HASH, EntryHash, addend, sha224, sum_hash
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


def test_equal_content_is_there_already():
    writer = Writer()
    writer.write((b"f",), b"same")
    writer.write((b"g",), b"same")
    log = writer.log()
    assert log.missing_blocks(9) == [] and log.is_complete(EntryHash(sha224(writer.entries[-1][:-64])))


def test_block_size():
    for size, accepted in ((SYNC_BLOCK_DATA, 1), (SYNC_BLOCK_DATA + 1, 0)):
        block = bytes(size)
        named = Encoded(sha224(block), 0, size).encode()
        log = MemoryLog()
        log.add([ROOT.encode(), unsigned(ROOT.hash, Action.WRITE, b"f", named, size).encode()], ())
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
