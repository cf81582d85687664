"""Contents that one session of a node brings are not asked for by the others."""

from __future__ import annotations

import gc
import weakref

import pytest

from basefs.log.hashes import BlockHash, sha224
from basefs.sync.session.contents import FRUITLESS
from basefs.sync.session.inflight import CROWDED, DEPTH, PATIENCE, WIDE, RequestTable
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.receiver import Receiver
from basefs.sync.session.result import Reason, SessionCounters
from basefs.sync.session.states import Role, SessionState
from basefs.sync.wire.limits import MAX_BLOCKS, Limits
from tests.support.memory import MemoryLog
from tests.sync.helpers import ROOT, Pair, Writer, cut, random_bytes

BLOCK = BlockHash(sha224(b"block"))


def test_a_claim_holds_while_its_session_moves():
    requests = RequestTable()
    one, two = object(), object()
    requests.moved(one)
    requests.take((BLOCK,), one)
    assert requests.held_by_other(BLOCK, two) and not requests.held_by_other(BLOCK, one)
    requests.tick(PATIENCE)
    assert not requests.held_by_other(BLOCK, two), "nothing has moved"
    requests.moved(one)
    assert requests.held_by_other(BLOCK, two)
    requests.came(BLOCK, 5, one)
    assert not requests.held_by_other(BLOCK, two)
    requests.take((BLOCK,), one)
    requests.ended(one)
    assert not requests.held_by_other(BLOCK, two)


def test_a_session_that_moves_and_brings_nothing_does_not_count_for_ever():
    requests = RequestTable()
    one, two = object(), object()
    requests.asks(one)
    requests.take((BLOCK,), one)
    now = 0.0
    while now < FRUITLESS:
        assert not requests.may_ask(two) and requests.held_by_other(BLOCK, two)
        now += 1.0
        requests.tick(now)
        requests.moved(one)
    assert requests.may_ask(two) and not requests.held_by_other(BLOCK, two)
    requests.gained(one)
    assert not requests.may_ask(two) and requests.held_by_other(BLOCK, two)


HASHES = [BlockHash(sha224(b"%d" % number)) for number in range(20 * MAX_BLOCKS)]


def request(number):
    """The blocks of a request."""
    return tuple(HASHES[number * MAX_BLOCKS : (number + 1) * MAX_BLOCKS])


def test_a_session_has_some_requests_on_their_way():
    requests = RequestTable()
    one, two = object(), object()
    for number in range(DEPTH):
        assert requests.may_take(one)
        requests.take(request(number), one)
    assert not requests.may_take(one) and requests.may_take(two)
    requests.answered(one, request(0))
    assert requests.may_take(one)
    assert not any(map(requests.is_coming, request(0))) and all(map(requests.is_coming, request(1)))


def test_who_brings_most_is_asked_for_more():
    requests = RequestTable()
    one, two = object(), object()
    for number in range(8):
        requests.take(request(number), one)
        for hash in request(number):
            requests.came(hash, 1, one)
        requests.answered(one, request(number))
    taken = {one: 0, two: 0}
    for number in range(10, 20):
        for owner in (one, two):
            if requests.may_take(owner):
                requests.take(request(number), owner)
                taken[owner] += 1
    assert taken[one] > taken[two] == DEPTH


def test_two_sessions_with_one_peer_do_not_both_ask():
    requests = RequestTable()
    requests.take(request(0), "a", "peer")
    assert not requests.may_take("b", "peer") and requests.may_take("c", "other")
    assert requests.asks_peer("peer") and not requests.asks_peer("other")
    assert not requests.held_by_other(HASHES[0], "b", "peer"), "who would wait for itself"
    assert requests.held_by_other(HASHES[0], "b", "other")
    requests.ended("a")
    assert requests.may_take("b", "peer")


def test_at_the_end_nobody_waits_for_a_slow_peer():
    requests = RequestTable()
    slow, quick = object(), object()
    requests.take(request(0), slow)
    assert not requests.late(quick), "nothing shows that it is slow"
    for number in range(1, 9):
        requests.take(request(number), quick)
        for hash in request(number):
            requests.came(hash, 1, quick)
        requests.answered(quick, request(number))
    assert list(requests.late(quick)) == list(request(0)) and not requests.late(slow)
    requests.take(request(0), quick)
    requests.came(HASHES[0], 1, slow)
    requests.answered(slow, request(0))
    assert requests.is_coming(HASHES[1]), "the other one was asked since"


def test_where_many_want_a_content_one_session_at_a_time_brings_it():
    requests = RequestTable()
    one, two = object(), object()
    requests.take(request(0), one)
    requests.spare = True
    assert requests.wanted and requests.may_take(two), "there is more than one peer can bring"
    requests.waits(two)
    assert not requests.wanted and not requests.may_take(two) and requests.may_take(one)
    requests.gained(two, 1, int(PATIENCE) * WIDE)
    requests.tick(PATIENCE)
    assert requests.wanted and requests.may_take(two), "nothing has moved in the other one"
    now = PATIENCE
    while now < CROWDED:
        requests.moved(one)
        requests.gained(one, 1, WIDE)
        assert not requests.may_take(two)
        now += 1.0
        requests.tick(now)
    assert requests.wanted and requests.may_take(two)


def test_a_peer_that_lets_a_session_wait_is_asked_in_no_other_one():
    """It has the request, and answers it later: over a narrow link all would come twice."""
    requests = RequestTable()
    one, two = object(), object()
    requests.take(request(0), one, "busy")
    requests.waits(one)
    assert not requests.is_coming(HASHES[0])
    assert requests.may_take(two, "other") and not requests.may_take(two, "busy")
    requests.answered(one, request(0))
    assert requests.may_take(two, "busy")


def test_who_brings_little_does_not_keep_others_from_helping():
    requests = RequestTable()
    slow, quick = object(), object()
    requests.take(request(0), slow)
    requests.spare = True
    now = 0.0
    while now <= PATIENCE:
        requests.waits(quick)
        assert now == PATIENCE or not requests.may_take(quick)
        now += 1.0
        requests.moved(slow)
        requests.gained(slow, 1, WIDE // 2)
        requests.tick(now)
    requests.waits(quick)
    assert requests.wanted and requests.may_take(quick), "whatever is said again and again"


def test_who_passes_on_what_arrives_takes_it_from_one_peer():
    requests = RequestTable()
    one, two = object(), object()
    requests.take(request(0), one)
    requests.spare = True
    serving = Receiver(MemoryLog(ROOT.hash), SessionCounters(), Limits(), requests)
    assert not serving.comes_elsewhere(BLOCK) and requests.wanted, "nobody waits for something that does not come"
    assert serving.comes_elsewhere(HASHES[0]) and not requests.wanted
    assert not requests.may_take(two) and requests.may_take(one)


def test_what_one_session_is_bringing_another_one_does_not_ask_for():
    writer = Writer()
    writer.write((b"large",), random_bytes(2_000_000))
    requests = RequestTable()
    log = MemoryLog(ROOT.hash)
    log.add(writer.entries, writer.blocks[:3])
    pairs = []
    for _ in range(2):
        pair = Pair(writer.log(), log)
        pair.right = SyncProtocol(log, Role.RESPONDER, requests=requests)
        pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
        pairs.append(pair)
    first, second = pairs
    for _ in range(4):
        first.turn()
    assert b"BLOCK_REQ" in first.sent[first.right]
    second.run()
    assert b"BLOCK_REQ" not in second.sent[second.right]
    assert len(second.sent[second.left]) < 1000
    first.run()
    assert not log.missing_blocks(1)


@pytest.mark.parametrize("moment", ["before the first list", "after it"])
@pytest.mark.parametrize("came", [50, 100])
def test_what_another_session_has_brought_is_not_asked_for_by_one_that_waited(moment, came):
    writer = Writer()
    for number in range(100):
        writer.write((b"f%d" % number,), b"%d" % number)
    requests, other = RequestTable(), object()
    log = Writer().log()
    core = SyncProtocol(log, Role.RESPONDER if moment == "before the first list" else Role.INITIATOR, requests=requests)
    pair = Pair(writer.log(), log)
    if core.role is Role.RESPONDER:
        pair.right = core
    else:
        pair.left, pair.right = core, SyncProtocol(writer.log(), Role.RESPONDER)
    pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
    requests.asks(other)
    while not core.wants_time:
        pair.turn()
    assert len(log) == 1
    log.add(writer.entries[: 1 + came], writer.blocks[:came])
    requests.has_answer(other)
    pair.run()
    assert log.root_hash() == writer.log().root_hash()
    assert core.counters.entries_received == 100 - came
    # A list of 16 prefixes, or what they lead to.
    assert pair.sent[core].count(b"LS ") <= (0 if came == 100 else 17)
    assert pair.sent[core].count(b"PATH_REQ ") <= min(16, 100 - came), "one for all names of a list"


def test_of_what_came_in_part_while_a_request_waited_the_rest_is_asked_for():
    writer = Writer()
    for name in (b"all", b"none", b"part"):
        writer.mkdir((name,))
        writer.write((name, b"f"), name)
    requests, other = RequestTable(), object()
    log = Writer().log()
    core = SyncProtocol(log, Role.INITIATOR, requests=requests)
    pair = Pair(writer.log(), log)
    pair.left, pair.right = core, SyncProtocol(writer.log(), Role.RESPONDER)
    pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
    requests.asks(other)
    while not core.wants_time:
        pair.turn()
    root, *entries = writer.entries
    log.add([root, *entries[:2], entries[4]], writer.blocks[:1])
    requests.has_answer(other)
    pair.run()
    assert log.root_hash() == writer.log().root_hash()
    asked = [line for line in bytes(pair.sent[core]).splitlines() if line.startswith((b"LS ", b"PATH_REQ "))]
    assert [line.split(b" ")[:3] for line in asked] == [[b"PATH_REQ", b"/", b"none"], [b"LS", b"/part", b"-"]]
    assert core.counters.entries_received == 3


def test_a_peer_that_is_behind_by_now_has_not_listed_what_it_does_not_have():
    writer = Writer()
    writer.write((b"f",), b"1")
    requests, other = RequestTable(), object()
    log, behind = Writer().log(), writer.log()
    core = SyncProtocol(log, Role.INITIATOR, requests=requests)
    pair = Pair(log, behind)
    pair.left = core
    pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
    requests.asks(other)
    while not core.wants_time:
        pair.turn()
    writer.write((b"f",), b"2")
    log.add(writer.entries, writer.blocks)
    requests.has_answer(other)
    pair.run()
    assert core.counters.barren == 0
    assert log.root_hash() == behind.root_hash() == writer.log().root_hash()


def test_a_session_that_is_cut_leaves_its_contents_to_the_next():
    writer = Writer()
    writer.write((b"large",), random_bytes(1_000_000))
    requests = RequestTable()
    log = MemoryLog(ROOT.hash)
    for turns in (6, 8, 1000):
        pair = Pair(writer.log(), log)
        pair.right = SyncProtocol(log, Role.RESPONDER, requests=requests, limits=Limits())
        pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
        for _ in range(turns):
            pair.turn()
        cut(pair.right)
    assert not log.missing_blocks(1)


def test_two_sessions_do_not_bring_the_same_entries():
    writer = Writer()
    for number in range(400):
        writer.write((b"d%d" % (number % 7), b"%d" % number), random_bytes(50, number))
    requests = RequestTable()
    log = MemoryLog(ROOT.hash)
    log.add(writer.entries[:1], [])
    pairs = []
    for role in (Role.RESPONDER, Role.INITIATOR, Role.RESPONDER):
        pair = Pair(writer.log(), writer.log())
        core = SyncProtocol(log, role, requests=requests)
        if role is Role.RESPONDER:
            pair.right = core
        else:
            pair.left = core
        pair.chunk = 1000
        pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
        pairs.append((pair, core))
    moving = True
    while moving:
        moving = sum(pair.turn() for pair, _ in pairs) > 0
    assert all(core.result is not None and core.result.equal for _, core in pairs)
    assert len(log) == len(writer.entries)
    assert sum(core.counters.entries_received for _, core in pairs) == len(writer.entries) - 1


def test_who_asks_later_says_so_to_a_peer_that_has_nothing_left_to_ask():
    ours, theirs = Writer(), Writer()
    for number in range(3):
        theirs.write((b"theirs%d" % number,), b"x")
    requests = RequestTable()
    log = ours.log()
    pair = Pair(log, theirs.log())
    pair.left = SyncProtocol(log, Role.INITIATOR, requests=requests)
    pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
    another = object()
    requests.asks(another)
    while pair.turn():
        pass
    assert pair.left.wants_time and pair.right.state is SessionState.SETTLED
    for now in (1000, 1010):
        requests.tick(now)
        requests.moved(another)
        requests.gained(another)
        pair.left.tick(now)
        pair.right.tick(now)
        while pair.turn():
            pass
    assert b"WAIT" in pair.sent[pair.left]
    assert pair.left.result is None and pair.right.state is SessionState.SETTLED
    requests.has_answer(another)
    pair.run()
    assert pair.left.result and pair.left.result.equal
    assert log.root_hash() == theirs.log().root_hash()


def test_a_session_that_is_stuck_does_not_keep_others_from_asking():
    requests = RequestTable()
    one, two = object(), object()
    requests.asks(one)
    assert not requests.may_ask(two)
    requests.tick(PATIENCE)
    assert requests.may_ask(two)
    requests.asks(two)
    requests.has_answer(one)
    assert not requests.may_ask(one)
    requests.ended(two)
    assert requests.may_ask(one)


def told_to_wait():
    """Claims of two sessions, of which one has asked for a block, and was told to wait."""
    requests, one, two = RequestTable(), object(), object()
    requests.moved(one)
    requests.take((BLOCK,), one)
    assert requests.is_coming(BLOCK)
    requests.waits(one)
    return requests, one, two


def test_who_has_to_wait_lets_others_ask():
    requests, one, two = told_to_wait()
    assert not requests.is_coming(BLOCK) and not requests.held_by_other(BLOCK, two)
    requests.take((BLOCK,), one)
    assert requests.is_coming(BLOCK) and requests.held_by_other(BLOCK, two)


def overtaken(requests, others_bring, **limits):
    """The end of a session that has asked for 200 files, when another one of the node has brought some of them."""
    writer = Writer()
    for number in range(200):
        writer.write((b"d", b"%d" % number), random_bytes(50, number))
    log = Writer().log()
    slow = Pair(log, writer.log())
    slow.left = SyncProtocol(log, Role.INITIATOR, requests=requests, limits=Limits(**limits))
    slow.sent = {slow.left: bytearray(), slow.right: bytearray()}
    while b"PATH_REQ" not in slow.sent[slow.left]:
        slow.turn()
    assert len(log) == 1
    requests.tick(PATIENCE)
    other = Writer()
    other.entries, other.blocks = writer.entries[: 2 + others_bring], writer.blocks[:others_bring]
    quick = Pair(log, other.log())
    quick.left = SyncProtocol(log, Role.INITIATOR, requests=requests)
    quick.sent = {quick.left: bytearray(), quick.right: bytearray()}
    quick.run()
    assert quick.left.counters.entries_received == 1 + others_bring
    log.add(writer.entries, writer.blocks)
    while slow.turn():
        pass
    return slow.left.result, slow.right.result


@pytest.mark.parametrize("limits", [{"known": 100}, {"useless_bytes": 30_000}])
def test_a_peer_that_others_have_overtaken_has_done_nothing_wrong(limits):
    ours, theirs = overtaken(RequestTable(), 200, **limits)
    assert ours.reason is theirs.reason is Reason.ENOUGH
    assert not ours.misbehaved and not theirs.misbehaved


@pytest.mark.parametrize("limits", [{"known": 100}, {"useless_bytes": 30_000}])
def test_what_others_bring_is_no_excuse_for_sending_much_more_in_vain(limits):
    ours, theirs = overtaken(RequestTable(), 10, **limits)
    assert ours.reason is theirs.reason is Reason.USELESS
    assert ours.misbehaved


def test_who_asks_again_after_others_has_the_same_time_again():
    requests = RequestTable()
    one, two = object(), object()
    requests.asks(one)
    requests.tick(FRUITLESS)
    assert requests.may_ask(two)
    requests.asks(two)
    requests.has_answer(two)
    requests.asks(one)
    assert not requests.may_ask(two)
    # But not for asking one thing after the other.
    requests.tick(2 * FRUITLESS)
    requests.has_answer(one)
    requests.asks(one)
    requests.moved(one)
    assert requests.may_ask(two)


def test_who_asks_again_after_it_was_told_to_wait_has_the_same_time_again():
    requests, one, two = told_to_wait()
    requests.tick(2 * FRUITLESS)
    requests.moved(one)
    requests.take((BLOCK,), one)
    assert requests.held_by_other(BLOCK, two)
    requests.tick(3 * FRUITLESS)
    requests.moved(one)
    assert not requests.held_by_other(BLOCK, two)


class Owner:
    """A session; unlike an `object`, one can see when nothing refers to it."""


def test_nothing_is_remembered_of_a_session_that_has_ended():
    requests = RequestTable()
    one = Owner()
    requests.asks(one)
    requests.take((BLOCK,), one)
    requests.gained(one)
    requests.ended(one)
    assert not requests.is_coming(BLOCK)
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None
