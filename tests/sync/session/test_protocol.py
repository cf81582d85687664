"""Two cores back to back: what a session does, what it costs, and how it ends."""

from __future__ import annotations

import pytest

from basefs.errors import NoSpace
from basefs.log.entries import Action, Entry
from basefs.log.hashes import ZERO_HASH, sha224
from basefs.log.interface import Digest
from basefs.path import MAX_PATH, path_size
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.responder import BatchEncoder
from basefs.sync.session.result import Reason, SessionCounters
from basefs.sync.session.states import Role, SessionState
from basefs.sync.wire.codec import encode, encode_bytes
from basefs.sync.wire.limits import ENTRIES_PER_SLICE, MAX_ITEMS, MAX_LINE, MAX_REQUESTS, VERSION, Limits
from basefs.sync.wire.messages import PAUSE, WHOLE, Close, Entries, Hash, Ls
from tests.support.memory import MemoryLog
from tests.sync.helpers import KEY, KEYS, ROOT, ROOT_ALONE, STRANGER_ROOT, Pair, Writer, cut, random_bytes, sync, work

GREETING = encode(Hash(VERSION, ROOT.hash, Digest(ROOT_ALONE, 1), 0))
#: Of a peer with another log, which is asked for it.
OTHER = encode(Hash(VERSION, ROOT.hash, Digest(sha224(b"different"), 1), 0))


def sections(data):
    return [line.split(b" ")[0].decode() for line in bytes(data).splitlines()]


def talk(core, data):
    """Feed bytes, run to the end, return what it says."""
    core.receive_data(data)
    out = b""
    while core.wants_work or core.wants_send:
        work(core)
        out += core.data_to_send(1 << 20)
    return out


def responder(log=None, **limits):
    return SyncProtocol(log or Writer().log(), Role.RESPONDER, limits=Limits(**limits))


# How a session runs


def test_equal_logs_need_one_round_trip():
    writer = Writer()
    writer.write((b"a", b"f"), b"x")
    pair = sync(writer.log(), writer.log())
    assert sections(pair.sent[pair.left]) == ["HASH", "CLOSE"]
    assert sections(pair.sent[pair.right]) == ["SAME"]
    assert pair.bytes < 200


def test_equal_trees_of_unequal_logs_are_told_apart():
    """An entry whose blocks are arriving is in no tree, and the number of entries tells of it."""
    greeting = encode(Hash(VERSION, ROOT.hash, Digest(ROOT_ALONE, 2), 0))
    assert talk(responder(), greeting).startswith(encode(Hash(VERSION, ROOT.hash, Digest(ROOT_ALONE, 1), 0)))


@pytest.mark.parametrize("newer", ["left", "right"])
def test_one_new_file(newer):
    writer = Writer()
    writer.write((b"a", b"f"), b"x")
    old = writer.log()
    writer.write((b"a", b"g"), b"y")
    new = writer.log()
    pair = sync(new, old) if newer == "left" else sync(old, new)
    old_side, new_side = (pair.right, pair.left) if newer == "left" else (pair.left, pair.right)
    assert old_side.counters.accepted == 2
    assert (new_side.counters.entries_sent, new_side.counters.blocks_sent) == (1, 1)
    assert new_side.counters.accepted == 0
    assert old.entry(writer.heads[b"a", b"g"].hash) is not None


def test_the_ports_are_told():
    pair = sync(Writer().log(), Writer().log())
    assert pair.left.result.peer_port == 2000
    assert pair.right.result.peer_port == 1000


def test_the_number_of_entries_is_told_before_anything_is_fetched_and_at_the_end():
    writer = Writer()
    writer.write((b"a", b"f"), b"x")
    old = writer.log()
    for number in range(20):
        writer.write((b"a", b"g%d" % number), b"y")
    new = writer.log()
    pair = Pair(old, new)
    told = {pair.left: pair.told_left, pair.right: pair.told_right}
    first = old.digest()
    pair.run()
    assert told[pair.right][0] == (1000, first, 23)
    assert told[pair.left][0] == (2000, new.digest(), 3)
    assert told[pair.left][-1] == (2000, new.digest(), 23) and told[pair.right][-1] == (1000, new.digest(), 23)


def test_an_equal_root_stands_for_an_equal_number():
    pair = Pair(Writer().log(), Writer().log())
    pair.run()
    assert sections(pair.sent[pair.right]) == ["SAME"]
    assert pair.told_left == [(2000, Writer().log().digest(), 1)]


class LogOnFullDisk(MemoryLog):
    """A log that must not be given anything once it has what was written."""

    is_full = False

    def add(self, entries, blocks, *, peer=""):
        if self.is_full:
            raise NoSpace("the disk is full")
        return super().add(entries, blocks, peer=peer)


@pytest.mark.parametrize("full_side", ["left", "right"])
def test_a_side_with_a_full_disk_hands_out_and_is_sent_nothing(full_side):
    mine, theirs = Writer(), Writer()
    for number in range(100):
        mine.write((b"mine", b"f%d" % number), random_bytes(100_000 if number == 50 else 500, number))
        theirs.write((b"theirs", b"f%d" % number), random_bytes(2000, number + 1000))
        mine.write((b"both", b"f%d" % number), b"x")
        theirs.write((b"both", b"f%d" % number), b"y")
    full, other = LogOnFullDisk(ROOT.hash), theirs.log()
    full.add(mine.entries, mine.blocks)
    full.is_full, before = True, full.digest()
    left = full_side == "left"
    pair = Pair(*((full, other) if left else (other, full)), full=(left, not left))
    pair.run()
    giving, taking = (pair.left, pair.right) if left else (pair.right, pair.left)
    assert giving.result.reason is taking.result.reason is Reason.COMPLETE
    assert full.digest() == before and giving.counters.entries_received == giving.counters.blocks_received == 0
    assert all(other.entry(Entry.decode(entry).hash) for entry in mine.entries)
    assert all(other.block(sha224(block)) == block for block in mine.blocks)
    assert len(pair.sent[taking]) < 60_000, "lists and requests"


def test_a_full_disk_shows_where_the_logs_are_equal():
    pair = Pair(Writer().log(), Writer().log(), full=(False, True))
    pair.run()
    assert sections(pair.sent[pair.right])[0] == "HASH" and pair.left.peer.greeting.full
    assert pair.left.result.equal and pair.right.result.equal


@pytest.mark.parametrize("waiting_side", ["left", "right"])
def test_contents_that_wait_show_where_the_logs_are_equal(waiting_side):
    class WaitingLog(MemoryLog):
        def digest(self):
            return super().digest()._replace(waiting=2, missing=2)

    log, waiting = Writer().log(), WaitingLog(ROOT.hash)
    waiting.add(Writer().entries, ())
    left = waiting_side == "left"
    pair = Pair(*((waiting, log) if left else (log, waiting)))
    pair.run()
    assert {log.waiting for _, log, _ in (pair.told_right if left else pair.told_left)} == {2}
    assert {log.waiting for _, log, _ in (pair.told_left if left else pair.told_right)} == {0}
    assert pair.left.result.equal and pair.right.result.equal


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_bytes_may_be_cut_anywhere(chunk):
    left, right = Writer(), Writer()
    for number in range(60):
        left.write((b"d", b"left%d" % number), b"x%d" % number)
        right.write((b"d", b"right%d" % number), b"y%d" % number)
    # The directory was made twice, at the same second: one entry.
    pair = sync(left.log(), right.log(), chunk=chunk)
    assert pair.left.counters.accepted == pair.right.counters.accepted == 120


def test_a_newcomer_gets_everything_and_verifies_it():
    log = MemoryLog(ROOT.hash, KEYS)
    log.add([ROOT.encode()], ())
    parent = KEY.sign(ROOT.hash, 1, Action.MKDIR, b"d")
    log.add([parent.encode()] + [KEY.sign(parent.hash, 1, Action.MKDIR, b"%d" % n).encode() for n in range(100)], ())
    newcomer = MemoryLog(keys=KEYS)
    pair = sync(newcomer, log)
    assert newcomer.identity == ROOT.hash == pair.left.result.peer_identity
    assert pair.left.counters.accepted == 102
    pinned = MemoryLog(ROOT.hash, KEYS)
    sync(pinned, log)


def test_work_is_sliced():
    class Slow(MemoryLog):
        given = 0

        def add(self, entries, blocks, *, peer=""):
            given.append(len(entries))
            self.given += len(entries)
            return super().add(entries, blocks, peer=peer)

    given = []
    writer = Writer()
    for number in range(1000):
        writer.write((b"%d" % number,))
    slow = Slow(ROOT.hash)
    pair = Pair(slow, writer.log())
    most = 0
    while not pair.left.closed:
        work(pair.right)
        if data := pair.right.data_to_send(65536):
            pair.left.receive_data(data)
        given.clear()
        work(pair.left)
        most = max(most, *given, 0)
        if data := pair.left.data_to_send(65536):
            pair.right.receive_data(data)
    assert slow.given == 1001
    assert most <= Limits().batch


# What it costs


def test_one_difference_in_a_large_directory():
    writer = Writer()
    for number in range(2000):
        writer.write((b"d", b"file-number-%d" % number), b"x%d" % number)
    old = writer.log()
    writer.write((b"d", b"new"), b"y")
    assert sync(old, writer.log()).bytes < 3500


def test_one_difference_in_a_deep_tree():
    writer = Writer()
    path = ()
    for level in range(20):
        for number in range(20):
            writer.write((*path, b"file%d" % number))
        path = (*path, b"directory%d" % level)
        writer.mkdir(path)
    old = writer.log()
    writer.write((*path, b"new"), b"y")
    assert sync(old, writer.log()).bytes < 20 * 1500


def test_one_more_edit_of_a_file_with_a_long_history():
    writer = Writer()
    for number in range(3000):
        writer.write((b"f",), b"%d" % number)
    old = writer.log()
    writer.write((b"f",), b"y")
    assert sync(old, writer.log()).bytes < 4500


def test_many_edits_of_one_file_find_their_order():
    writer = Writer()
    for number in range(60):
        writer.write((b"f",), b"%d" % number)
    old = writer.log()
    for number in range(500):
        writer.write((b"f",), b"n%d" % number)
    pair = sync(old, writer.log())
    assert pair.left.counters.rounds == 1
    assert pair.left.counters.rejected == 0
    assert pair.bytes < 500 * 400 + 10_000


def test_a_large_content_is_streamed():
    writer = Writer()
    writer.write((b"f",), random_bytes(10 * 1024 * 1024))
    full = writer.log()
    pair = Pair(MemoryLog(ROOT.hash), full)
    held = []
    pair.run(lambda: held.append(len(pair.right._queue._buffer)))
    assert pair.left.result.equal
    assert pair.left.counters.blocks_received == len(writer.blocks)
    assert pair.bytes < 10 * 1024 * 1024 * 1.35
    assert max(held) <= MAX_LINE


def test_a_content_that_is_known_already_costs_nothing():
    writer = Writer()
    writer.write((b"f",), random_bytes(1 << 20))
    old = writer.log()
    writer.write((b"g",), random_bytes(1 << 20))
    assert sync(old, writer.log()).bytes < 100_000


# Contents that arrive in part


def partial(writer, blocks):
    log = MemoryLog(ROOT.hash)
    log.add(writer.entries, writer.blocks[:blocks])
    return log


@pytest.mark.parametrize("have", [0, 1, 5])
@pytest.mark.parametrize("swap", [False, True])
def test_missing_blocks_are_fetched_once(have, swap):
    writer = Writer()
    writer.write((b"f",), random_bytes(6 * 32768))
    behind, full = partial(writer, have), writer.log()
    pair = sync(full, behind) if swap else sync(behind, full)
    sender = pair.left if swap else pair.right
    assert sender.counters.blocks_sent == 7 - have
    assert not behind.missing_blocks(1)
    assert pair.left.counters.rounds == 1


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 4), (4, 0)])
def test_both_lack_some(left, right):
    writer = Writer()
    writer.write((b"f",), random_bytes(6 * 32768))
    logs = partial(writer, left), partial(writer, right)
    pair = sync(*logs)
    assert logs[0].missing_blocks(9) == logs[1].missing_blocks(9) or len(logs[0].missing_blocks(9)) == len(
        logs[1].missing_blocks(9)
    )
    assert pair.left.counters.blocks_sent + pair.right.counters.blocks_sent == abs(left - right)


def test_both_have_what_the_other_lacks():
    writer = Writer()
    writer.write((b"f",), random_bytes(6 * 32768))
    logs = partial(writer, 1), partial(writer, 1)
    logs[0].add((), writer.blocks[1:4])
    logs[1].add((), writer.blocks[4:])
    sync(*logs)
    assert not logs[0].missing_blocks(1) and not logs[1].missing_blocks(1)


def test_blocks_that_the_peer_does_not_have_are_asked_for_once():
    writer = Writer()
    writer.write((b"f",), random_bytes(6 * 32768))
    pair = sync(partial(writer, 2), partial(writer, 2))
    for side in pair.sent.values():
        assert sections(side).count("BLOCK_REQ") == 1


def test_an_entry_that_builds_on_one_whose_content_is_arriving():
    writer = Writer()
    head = writer.write((b"f",), random_bytes(100_000))
    writer.put(head, Action.DELETE, b"f")
    behind = MemoryLog(ROOT.hash)
    behind.add([ROOT.encode()], ())
    pair = Pair(behind, partial(writer, 1))
    left, _ = pair.run()
    assert left.reason is Reason.COMPLETE and left.equal
    assert len(behind) == 3


# Order of what depends on each other


def test_sub_paths_wait_for_many_own_entries():
    writer = Writer()
    for number in range(MAX_ITEMS + 10):
        writer.put(writer.root, Action.GRANT, b"key%d" % number, bytes(32))
    old = writer.log()
    for number in range(MAX_ITEMS + 10):
        writer.put(writer.root, Action.GRANT, b"new%d" % number, bytes(32))
    writer.write((b"d", b"f"), b"x")
    new = writer.log()
    order = []
    add = old.add
    old.add = lambda entries, blocks, peer: (
        order.extend(Entry.decode(e).action for e in entries) or add(entries, blocks)
    )
    pair = sync(old, new)
    assert order.index(Action.MKDIR) > max(n for n, action in enumerate(order) if action is Action.GRANT)
    assert pair.left.counters.rounds == 2


def test_what_differs_below_the_longest_path_is_all_that_is_sent():
    """However many entries are there: whoever is sent what it has calls that an offence."""
    writer = Writer()
    names = (b"x" * 255,) * 15
    for number in range(500):
        writer.write((*names, b"%d" % number), b"1")
    old = writer.log()
    writer.write((*names, b"n" * 255), b"2")
    assert path_size((*names, b"n" * 255)) == MAX_PATH
    pair = sync(old, writer.log())
    assert pair.left.counters.entries_received == 1


# Both grow, both begin, connections break


def test_logs_that_grow_meanwhile():
    writers = Writer(), Writer()
    for number in range(200):
        for side, writer in enumerate(writers):
            writer.write((b"d%d" % (number % 7), b"%d-%d" % (side, number)), b"x")
    logs = [writer.log() for writer in writers]
    count = 0

    def grow():
        nonlocal count
        count += 1
        if count <= 30:
            for side, writer in enumerate(writers):
                writer.write((b"d%d" % (count % 7), b"late%d-%d" % (side, count)), b"x")
                logs[side].add(writer.entries, writer.blocks[-1:])

    pair = Pair(*logs, chunk=2000)
    for result in pair.run(grow):
        assert result.reason is Reason.COMPLETE
    sync(*logs)


def test_a_log_that_never_rests_ends_the_session_all_the_same():
    writer = Writer()
    left, right = writer.log(), writer.log()
    count = 0

    def grow():
        nonlocal count
        count += 1
        writer.write((b"f%d" % count,))
        right.add(writer.entries[-1:], ())

    grow()
    pair = Pair(left, right, limits=Limits(rounds=5))
    result, _ = pair.run(grow)
    assert result.reason is Reason.COMPLETE
    assert result.counters.rounds == 5


def test_both_initiate_at_once():
    left, right = Writer(), Writer()
    for number in range(100):
        left.write((b"l%d" % number,), b"x%d" % number)
        right.write((b"r%d" % number,), b"y%d" % number)
    logs = left.log(), right.log()
    pairs = [Pair(*logs, chunk=500), Pair(*reversed(logs), chunk=500)]
    while sum(pair.turn() for pair in pairs):
        pass
    for pair in pairs:
        assert pair.left.result.equal and pair.right.result.equal
    assert logs[0].root_hash() == logs[1].root_hash()


def test_cut_anywhere_and_resumed():
    writer = Writer()
    writer.write((b"big",), random_bytes(2 << 20))
    for number in range(100):
        writer.write((b"d", b"%d" % number), b"x%d" % number)
    full = writer.log()
    behind = MemoryLog(ROOT.hash)
    for turns in range(1, 200):
        pair = Pair(behind, full, chunk=30_000)
        for _ in range(min(turns, 20)):
            pair.turn()
        if pair.left.closed:
            break
        for core in (pair.left, pair.right):
            cut(core)
            if core.result is None or core.result.reason is not Reason.COMPLETE:
                assert core.state is SessionState.FAILED and core.result.reason is Reason.LOST
    assert pair.left.result.equal
    assert turns < 60


@pytest.mark.parametrize("swap", [False, True])
def test_what_another_session_brings_meanwhile_is_not_asked_for(swap):
    writer = Writer()
    writer.write((b"f",), random_bytes(6 * 32768))
    behind, full = partial(writer, 2), writer.log()
    pair = Pair(full, behind) if swap else Pair(behind, full)
    core, other = (pair.right, pair.left) if swap else (pair.left, pair.right)
    if not swap:
        other.receive_data(core.data_to_send(65536))
        work(other)
    while other.wants_send:
        core.receive_data(other.data_to_send(65536))
    work(core)  # it has BLOCK_REQ in mind
    behind.add((), writer.blocks[2:])
    for result in pair.run():
        assert result.reason is Reason.COMPLETE
        assert result.counters.blocks_sent == 0
    assert behind.root_hash() == full.root_hash()


def test_a_request_that_becomes_superfluous_behind_close_does_not_hold_up_the_end():
    writer = Writer()
    writer.write((b"f",), random_bytes(6 * 32768))
    behind, other = partial(writer, 2), writer.log()
    pair = Pair(behind, other)
    pair.right.receive_data(pair.left.data_to_send(65536))
    work(pair.right)
    pair.left.receive_data(pair.right.data_to_send(65536))
    assert pair.right.state is SessionState.SETTLED
    work(pair.left)
    assert pair.left.state is SessionState.TALKING, "it has BLOCK_REQ in mind"
    behind.add((), writer.blocks[2:])
    left, right = pair.run()
    assert left.reason is right.reason is Reason.COMPLETE


def test_the_peer_may_close_right_behind_its_last_line():
    writer = Writer()
    pair = Pair(writer.log(), writer.log())
    left, right = pair.left, pair.right
    right.receive_data(left.data_to_send(1000))
    work(right)
    left.receive_data(right.data_to_send(1000))
    work(left)
    right.receive_data(left.data_to_send(1000))
    cut(right)
    cut(left)
    assert left.result.reason is right.result.reason is Reason.COMPLETE


# Strangers


def test_another_filesystem_is_told_why():
    pair = Pair(MemoryLog(STRANGER_ROOT.hash), Writer().log())
    left, right = pair.run()
    assert left.reason is right.reason is Reason.WRONG_FILESYSTEM
    assert left.by_peer and not right.by_peer
    assert left.detail == "this node serves another filesystem"
    assert encode_bytes(ROOT.hash) not in pair.sent[pair.right]


def test_a_responder_that_serves_another_filesystem():
    core = SyncProtocol(Writer().log(), Role.INITIATOR)
    out = talk(core, encode(Hash(VERSION, STRANGER_ROOT.hash, Digest(ZERO_HASH, 0), 0)))
    assert out.endswith(b"CLOSE NO identity this%20node%20serves%20another%20filesystem\n")
    assert core.result.reason is Reason.WRONG_FILESYSTEM and core.closed


def test_another_version_is_told_why():
    core = responder()
    assert talk(core, b"HASH 4 whatever\n").startswith(b"CLOSE NO version this%20node%20speaks%20version%203")
    assert core.result.reason is Reason.WRONG_VERSION


# Peers that break the rules

NOT_FIRST = [
    b"EOF",
    b"PATH_REQ /",
    b"LS / -",
    b"ENTRIES eA",
    b"CLOSE OK 0 %s 1 0 0 -" % encode_bytes(ROOT.hash),
    b"rubbish",
]


@pytest.mark.parametrize("line", NOT_FIRST)
def test_a_greeting_comes_first(line):
    core = responder()
    out = talk(core, line + b"\n")
    assert out.startswith(b"CLOSE NO protocol ")
    assert core.result.reason is Reason.RUBBISH and core.closed


LATER = [
    b"EOF",
    b"ENTRIES eA",
    GREETING.strip() + b"x",
    b"CLOSE OK 1 %s 1 0 0 -" % encode_bytes(ROOT.hash),
    b"BLOCKS_REC %s\nEOF" % encode_bytes(ROOT.hash),
    b"BLOCKS_REC %s\nBLOCKS_REC %s" % ((encode_bytes(ROOT.hash),) * 2),
    b"LS / -\n" * (MAX_REQUESTS + 1),
]


@pytest.mark.parametrize("lines", LATER)
def test_later_on_too(lines):
    core = responder()
    out = talk(core, GREETING + lines + b"\n")
    assert b"CLOSE NO protocol " in out
    assert core.result.reason is Reason.RUBBISH and core.closed
    assert talk(core, b"more\n") == b"", "the session is over"


def test_close_while_something_is_outstanding():
    log = Writer().log()
    core = responder(log)
    greeting = encode(Hash(VERSION, ROOT.hash, Digest(sha224(b"different"), 1), 0))
    assert b"LS / -" in talk(core, greeting)
    assert b"CLOSE NO protocol" in talk(core, b"CLOSE OK 0 %s 1 0 0 -\n" % encode_bytes(ZERO_HASH))


def test_a_request_after_close_takes_it_back():
    core = responder()
    assert talk(core, GREETING) == b"SAME 0\n"
    assert core.state is SessionState.SETTLED
    assert talk(core, b"PATH_REQ /\n").count(b"CLOSE OK 1") == 1
    assert talk(core, b"CLOSE OK 0 %s 1 0 0 -\n" % encode_bytes(ROOT_ALONE)) == b""
    assert core.state is SessionState.DONE and core.result.equal


def test_refused_entries_at_the_limit_and_above():
    for count, failed in ((5, False), (6, True)):
        core = responder(rejected=5)
        talk(core, OTHER)
        talk(core, b"ENTRIES" + b" eA" * count + b"\nEOF\n")
        assert core.closed is failed
        assert core.counters.rejected == count


def test_useless_bytes_at_the_limit_and_above():
    line = b"LS / - e:%s\n" % encode_bytes(ROOT.hash)
    core = responder(useless_bytes=len(GREETING) + 3 * len(line))
    talk(core, GREETING)
    for _ in range(3):
        talk(core, line)
    assert not core.closed
    assert b"CLOSE NO useless" in talk(core, line)
    assert core.result.reason is Reason.USELESS


def test_a_list_of_what_the_peer_does_not_have_at_the_limit_and_above():
    """Each sub-path that it lists is asked for, and there is nothing."""
    for count, failed in ((5, False), (6, True)):
        core = responder(barren=5)
        talk(core, OTHER)
        talk(core, b"EOF\n")
        names = tuple((b"n%d" % number, sha224(b"%d" % number)) for number in range(count))
        asked = talk(core, encode(Ls((), WHOLE, children=names)))
        assert b"PATH_REQ / " + b" ".join(name for name, _ in names) + b"\n" in asked
        told = talk(core, b"EOF\n")
        assert core.counters.barren == count
        assert core.closed is failed is (b"CLOSE NO useless" in told)


def test_an_answer_that_holds_an_entry_is_not_barren():
    """Ask for as much as there is, of everybody: honest peers never come near that limit."""
    for seed in range(3):
        left, right = Writer(), Writer()
        for number in range(60):
            left.write((b"l%d" % (number % 7), b"f%d" % number), random_bytes(number, seed))
            right.write((b"r%d" % (number % 5), b"f%d" % number), random_bytes(number, seed))
        pair = sync(left.log(), right.log(), limits=Limits(barren=0))
        assert pair.left.counters.barren == pair.right.counters.barren == 0
        assert pair.left.counters.accepted > 0


def test_known_entries_at_the_limit_and_above():
    line = encode(Entries((ROOT.encode(),)))
    core = responder(known=5)
    talk(core, OTHER)
    talk(core, line * 5)
    assert not core.closed
    assert b"CLOSE NO useless" in talk(core, line)
    assert core.result.reason is Reason.USELESS and core.result.misbehaved


def test_a_new_entry_among_many_known_ones_resets_the_count():
    writer = Writer()
    known = encode(Entries((ROOT.encode(),))) * 5
    core = responder(known=5)
    talk(core, OTHER)
    for number in range(20):
        writer.mkdir((b"d%d" % number,))
        talk(core, known + encode(Entries((writer.entries[-1],))))
    assert not core.closed and core.counters.accepted == 20


def test_what_is_of_use_resets_the_count():
    line = b"ENTRY_REQ %s\n" % encode_bytes(ROOT.hash)
    core = responder(useless_bytes=len(GREETING) + len(line))
    talk(core, GREETING)
    for _ in range(20):
        talk(core, line)
    assert not core.closed


def test_time_outs():
    core = responder(greeting_timeout=10, idle_timeout=60)
    core.tick(0)
    core.tick(10)
    assert not core.closed
    core.tick(10.5)
    assert core.result.reason is Reason.TIMEOUT
    assert core.data_to_send(1000).startswith(b"CLOSE NO timeout")
    assert core.closed
    core = responder(greeting_timeout=10, idle_timeout=60)
    core.tick(0)
    talk(core, GREETING)
    core.tick(60)
    core.tick(120)
    assert core.result is None
    core.tick(121)
    assert core.result.reason is Reason.TIMEOUT  # type: ignore[attr-defined]


def test_abort():
    core = responder()
    core.end(Reason.FAILURE, "this node is stopping")
    assert core.data_to_send(1000) == b"CLOSE NO failure this%20node%20is%20stopping\n"
    assert core.result.reason is Reason.FAILURE and core.closed
    core.end(Reason.FAILURE, "again")
    assert core.result.detail == "this node is stopping"


@pytest.mark.parametrize("answered", [1, 99])
def test_a_close_that_counts_wrongly_ends_the_session_with_a_reason(answered):
    core = responder()
    talk(core, GREETING)
    rounds = 0
    while core.state is not SessionState.SETTLED and rounds < 10:
        talk(core, b"EOF\n")
        rounds += 1
    assert core.state is SessionState.SETTLED
    assert b"CLOSE NO protocol" in talk(core, encode(Close(answered + 1, Digest(ROOT.hash, 1))))
    assert core.closed and core.result.reason is Reason.RUBBISH


def counting(logs):
    """How many entries each call of `add` of these logs is given from now on, and how many blocks."""
    calls = []
    for log in logs:
        add = log.add

        def count(entries, blocks, add=add, peer=""):
            calls.append((len(entries), len(blocks)))
            return add(entries, blocks)

        log.add = count
    return calls


def sync_counting(*logs, **options):
    """Have a session; see `counting`."""
    calls = counting(logs)
    sync(*logs, **options)
    return calls


def test_many_small_files_are_few_transactions_whoever_asks_for_them():
    left, right = Writer(), Writer()
    for number in range(160):
        left.write((b"d%d" % number,), b"x%d" % number)
        right.write((b"e%d" % number,), b"y%d" % number)
    calls = sync_counting(left.log(), right.log())
    assert sum(entries for entries, _ in calls) == 320
    assert len(calls) <= 80


def test_what_the_peer_asks_for_between_its_answers_cuts_no_transaction():
    left, right = Writer(), Writer()
    for number in range(160):
        left.write((b"d%d" % (number % 2), b"x%d" % number), b"x%d" % number)
        right.write((b"d%d" % (number % 2), b"y%d" % number), b"y%d" % number)
    logs = left.log(), right.log()
    calls = counting(logs)
    cores = SyncProtocol(logs[0], Role.RESPONDER), SyncProtocol(logs[1], Role.INITIATOR)
    while not all(core.closed for core in cores):
        for core, other in (cores, cores[::-1]):
            # All that one has to say has come before the other one looks at it.
            while core.wants_send:
                other.receive_data(core.data_to_send(65536))
            while other.wants_work:
                work(other)
    assert logs[0].root_hash() == logs[1].root_hash()
    assert sum(entries for entries, _ in calls) >= 320
    assert len(calls) <= 8


@pytest.mark.parametrize("chunk", [1, 100, 1000, 65536])
def test_entries_and_their_blocks_are_one_transaction_wherever_the_connection_cuts_them(chunk):
    left, right = Writer(), Writer()
    for number in range(40):
        left.write((b"d%d" % number,), b"x%d" % number)
        right.write((b"e%d" % number,), b"y%d" % number)
    calls = sync_counting(left.log(), right.log(), chunk=chunk)
    assert sum(entries for entries, _ in calls) == 80
    assert [blocks for entries, blocks in calls if entries == 0] == []


def asking():
    """A core with the root entry alone that waits for the answer to its list."""
    log = Writer().log()
    core = responder(log)
    assert b"LS " in talk(core, encode(Hash(VERSION, ROOT.hash, Digest(sha224(b"another"), 1), 0)))
    return core, log


def test_entries_without_blocks_do_not_wait_for_the_rest_of_the_answer():
    core, log = asking()
    writer = Writer()
    for number in range(100):
        writer.mkdir((b"d%d" % number,))
    lines = [
        line for line in BatchEncoder(writer.log(), SessionCounters()).entries(writer.entries[1:]) if line != PAUSE
    ]
    for line in lines[:2]:
        talk(core, line)
    assert len(log) == 1 + 2 * ENTRIES_PER_SLICE


def test_what_has_come_counts_where_the_connection_ends_before_its_blocks():
    core, log = asking()
    writer = Writer()
    writer.write((b"f",), b"content")
    talk(
        core,
        b"".join(BatchEncoder(writer.log(), SessionCounters()).entries(writer.entries[1:])).partition(b"BLOCKS")[0],
    )
    cut(core)
    assert core.result.reason is Reason.LOST
    assert len(log) == 2
