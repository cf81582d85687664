"""Sessions that stay open: what crosses them, what does not, and how they end."""

from __future__ import annotations

import tracemalloc

import pytest

from basefs.log.hashes import HASH_SIZE
from basefs.log.interface import Digest
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.push import LEAST_WINDOW, PATIENCE, Notice, QueuedPush
from basefs.sync.session.result import Reason
from basefs.sync.session.states import Role, SessionState
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import MAX_KEPT, VERSION, Limits
from basefs.sync.wire.messages import Entries, Hash, Root
from tests.sync.helpers import ROOT, Pair, Writer, cut, noticed, random_bytes, work

LIMITS = Limits(heartbeat=5, push_backlog=100_000)


class PushSession(Pair):
    """A pair of equal logs whose session stands."""

    def __init__(self, writer, limits=LIMITS):
        self.logs = writer.log(), writer.log()
        super().__init__(*self.logs, limits=limits)
        self.left = SyncProtocol(self.logs[0], Role.INITIATOR, port=1000, limits=limits, stay=lambda port: port == 2000)
        self.right = SyncProtocol(
            self.logs[1],
            Role.RESPONDER,
            port=2000,
            limits=limits,
            stay=lambda port: port == 1000,
            peer=self.right.peer,
        )
        self.sent = {self.left: bytearray(), self.right: bytearray()}
        self.quiet()
        assert self.left.push and self.right.push

    def quiet(self):
        """Until nothing moves; returns the sections that were sent, left's and right's."""
        for sent in self.sent.values():
            sent.clear()
        while self.turn():
            pass
        return [[line.split(b" ")[0].decode() for line in bytes(self.sent[core]).splitlines()] for core in self.sent]

    def write(self, writer, *paths, size=1):
        """New files in the left log, as the application of a node makes them; returns the encoded entries."""
        entries, blocks = len(writer.entries), len(writer.blocks)
        for path in paths:
            writer.write(path, random_bytes(size, len(writer.entries)))
        self.logs[0].add(writer.entries[entries:], writer.blocks[blocks:])
        return writer.entries[entries:]


def writer_with_a_file():
    writer = Writer()
    writer.write((b"d", b"f"), b"x")
    return writer


def test_both_logs_are_compared_before_it_stands():
    left, right = writer_with_a_file(), Writer()
    pair = Pair(left.log(), right.log())
    pair.left = SyncProtocol(left.log(), Role.INITIATOR, port=1, stay=lambda port: True)
    log = right.log()
    pair.right = SyncProtocol(log, Role.RESPONDER, port=2, stay=lambda port: True)
    pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
    while pair.turn():
        pass
    assert pair.left.push and pair.right.push
    assert log.root_hash() == left.log().root_hash()
    assert not noticed(pair.left, Notice.GAP) and not noticed(pair.right, Notice.GAP)


def test_it_stands_after_two_rounds_although_something_is_written_all_the_time():
    left, right = writer_with_a_file(), Writer()
    right.write((b"other",), b"y")
    logs = left.log(), right.log()
    listing = logs[0].listing

    def growing(path):
        found = listing(path)
        entries, blocks = len(left.entries), len(left.blocks)
        left.write((b"new%d" % entries,), b"z")
        logs[0].add(left.entries[entries:], left.blocks[blocks:])
        return found

    logs[0].listing = growing
    pair = Pair(*logs)
    pair.left = SyncProtocol(logs[0], Role.INITIATOR, port=1, stay=lambda port: True)
    pair.right = SyncProtocol(logs[1], Role.RESPONDER, port=2, stay=lambda port: True)
    pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
    while pair.turn():
        pass
    assert pair.left.push and pair.right.push
    assert pair.left.counters.rounds == 2
    assert logs[0].root_hash() != logs[1].root_hash()
    assert noticed(pair.right, Notice.GAP), "it is told of what was written meanwhile"


@pytest.mark.parametrize("unwilling", ["left", "right"])
def test_it_stands_only_if_both_want_it(unwilling):
    log = writer_with_a_file().log()
    pair = Pair(log, log)
    stay = {side: (lambda port, willing=side != unwilling: willing) for side in ("left", "right")}
    pair.left = SyncProtocol(log, Role.INITIATOR, port=1, stay=stay["left"])
    pair.right = SyncProtocol(log, Role.RESPONDER, port=2, stay=stay["right"])
    pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
    for result in pair.run():
        assert result.reason is Reason.COMPLETE and not result.stood


def test_news_crosses_at_once_and_once():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    news = pair.write(writer, (b"d", b"g"))
    pair.left.push.send(news)
    pair.left.push.send(news)
    assert pair.quiet() == [["ENTRIES", "BLOCKS"], []]
    assert pair.logs[0].root_hash() == pair.logs[1].root_hash()
    assert pair.right.counters.accepted == 2
    pair.right.push.send(news)
    assert pair.quiet() == [[], []], "what came from the peer does not go back to it"
    assert not noticed(pair.right, Notice.GAP)


def test_a_missing_parent_is_a_gap_told_once():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    first, second = pair.write(writer, (b"e", b"g"))
    pair.left.push.send([second])
    pair.quiet()
    assert noticed(pair.right, Notice.GAP) and not noticed(pair.right, Notice.GAP)
    assert pair.right.push, "the session goes on"
    pair.left.push.send([first])
    pair.quiet()
    assert pair.logs[0].root_hash() == pair.logs[1].root_hash(), "what waited for its parent is in the log too"


def test_the_heartbeat_finds_what_nobody_pushed():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    for core in (pair.left, pair.right):
        core.tick(0.0)
    assert pair.quiet() == [[], []], "both have told their root when it began"
    assert not noticed(pair.right, Notice.GAP)
    pair.write(writer, (b"d", b"lost"))
    pair.left.tick(4.9)
    assert pair.quiet() == [[], []]
    pair.left.tick(5.0)
    assert pair.quiet() == [["ROOT"], []]
    assert noticed(pair.right, Notice.GAP)


def test_the_number_of_entries_is_told_with_the_root():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    pair.told_right.clear()
    pair.write(writer, (b"d", b"g"), (b"d", b"h"))
    pair.left.push.tell_root()
    pair.quiet()
    assert [heard[:2] for heard in pair.told_right] == [(1000, pair.logs[0].digest())]
    assert pair.logs[0].digest().entries == pair.logs[1].digest().entries + 2


def test_it_stands_for_long_without_news_but_not_without_a_heartbeat():
    pair = PushSession(writer_with_a_file(), Limits(heartbeat=5, silence=25, idle_timeout=60, stall_timeout=100))
    for now in range(0, 1000, 5):
        pair.left.tick(now)
        pair.right.tick(now)
        pair.quiet()
    assert pair.left.push and pair.right.push
    for now in range(1000, 1070):
        pair.left.tick(now)
        pair.left.data_to_send(1 << 20)  # what this side says itself is no sign of the other
    assert pair.left.result is not None and pair.left.result.reason is Reason.TIMEOUT


def test_a_slow_connection_is_told_to_compare_instead():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    news = pair.write(writer, *[(b"d", b"%d" % number) for number in range(40)], size=20_000)
    for entry in news:
        pair.left.push.send([entry])
    sent = pair.quiet()[0]
    assert sent.count("ENTRIES") < 10, "the rest was never queued"
    assert sent[-1] == "ROOT"
    assert noticed(pair.right, Notice.GAP)


@pytest.mark.parametrize("leaver", ["left", "right"])
def test_either_side_may_leave(leaver):
    pair = PushSession(writer_with_a_file())
    getattr(pair, leaver).end(Reason.COMPLETE)
    pair.quiet()
    for core in (pair.left, pair.right):
        assert core.closed and core.result.reason is Reason.COMPLETE and core.result.stood
    pair.left.end(Reason.COMPLETE)
    assert pair.left.state is SessionState.DONE


@pytest.mark.parametrize(
    "line",
    [
        b"PATH_REQ /\n",
        b"EOF\n",
        b"STAY\n",
        b"STAY 1\n",
        encode(Hash(VERSION, ROOT.hash, Digest(bytes(HASH_SIZE), 0), 1)),
        b"SAME 1\n",
        b"WAIT\n",
        b"ROOT x 1 0 0 - 1\n",
    ],
)
def test_what_has_no_place_in_it_ends_it(line):
    pair = PushSession(writer_with_a_file())
    pair.right.receive_data(line)
    work(pair.right)
    assert pair.right.result is not None and pair.right.result.reason is not Reason.COMPLETE
    assert b"CLOSE NO" in pair.right.data_to_send(1 << 20)


def test_a_stay_that_nobody_offered_is_refused():
    core = SyncProtocol(Writer().log(), Role.INITIATOR, stay=lambda port: True)
    core.receive_data(encode(Hash(VERSION, ROOT.hash, Writer().log().digest(), 1)) + b"STAY\n")
    work(core)
    assert core.result.reason is Reason.RUBBISH


def test_refused_entries_end_it_sooner_or_later():
    pair = PushSession(writer_with_a_file(), Limits(rejected=10))
    rubbish = encode_rubbish(20)
    pair.right.receive_data(rubbish)
    while pair.right.wants_work:
        work(pair.right)
    assert pair.right.result.reason is Reason.RUBBISH


def encode_rubbish(count):
    return b"".join(encode(Entries((random_bytes(200, number),))) for number in range(count))


def test_a_lost_connection_is_told():
    pair = PushSession(writer_with_a_file())
    cut(pair.left)
    assert pair.left.result.reason is Reason.LOST and pair.left.result.stood


# A burst


def later(entries, size=1000):
    """News that waits for the connection."""
    return [QueuedPush(entry, size, 0.0) for entry in entries]


def test_a_burst_goes_on_while_the_peer_acknowledges_it():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    pair.left.push.send_later(later(pair.write(writer, *[(b"e", b"%d" % number) for number in range(100)])))
    turns = 0
    while pair.left.push.waits:
        assert pair.left.wants_time, "it is looked at again"
        pair.left.push.drain(0, 0.01 * turns)
        turns += 1
        assert "ROOT" not in pair.quiet()[0]
    assert turns < 20
    assert pair.logs[0].root_hash() == pair.logs[1].root_hash()
    assert not noticed(pair.right, Notice.GAP)


def test_a_root_hash_follows_what_waits():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    pair.left.push.send_later(later(pair.write(writer, (b"d", b"g"))))
    pair.left.push.tell_root()
    assert pair.quiet() == [[], []]
    pair.left.push.drain(0, 0.0)
    assert pair.quiet() == [["ENTRIES", "BLOCKS", "ROOT"], []]
    assert not noticed(pair.right, Notice.GAP)


def test_a_peer_that_acknowledges_nothing_is_told_to_compare():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    pair.left.push.send_later(later(pair.write(writer, *[(b"e", b"%d" % number) for number in range(50)])))
    pair.left.push.drain(0, 0.0)
    pair.left.push.drain(LEAST_WINDOW, 0.1)
    pair.quiet()
    assert pair.left.push.waits
    pair.left.push.drain(LEAST_WINDOW, 0.1 + PATIENCE)
    assert pair.quiet()[0] == ["ROOT"] and noticed(pair.right, Notice.GAP)
    assert not pair.left.push.waits


def test_what_is_too_large_for_the_connection_is_told_behind_the_rest():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    news = pair.write(writer, (b"d", b"g"), (b"d", b"h"))
    pair.left.push.send_later(later(news[:1], LEAST_WINDOW + 1) + later(news[1:]))
    pair.left.push.drain(0, 0.0)
    assert pair.quiet()[0] == ["ENTRIES", "BLOCKS", "ROOT"]
    assert noticed(pair.right, Notice.GAP)


@pytest.mark.parametrize("who", ["left", "right"])
def test_a_session_that_turns_lazy_sends_nothing_of_a_burst(who):
    writer = writer_with_a_file()
    pair = PushSession(writer)
    pair.left.push.send_later(later(pair.write(writer, (b"d", b"g"))))
    getattr(pair, who).push.prune()
    assert "ENTRIES" not in pair.quiet()[0]
    assert not pair.left.push.waits and noticed(pair.right, Notice.GAP)


# Lazy sessions


def lazy_pair(writer):
    """A pair whose session has brought something twice."""
    pair = PushSession(writer)
    news = pair.write(writer, (b"d", b"twice"))
    pair.logs[1].add(news, writer.blocks)
    pair.left.push.send(news)
    pair.quiet()
    assert noticed(pair.right, Notice.REPEATS) and not noticed(pair.right, Notice.REPEATS)
    pair.right.push.prune()
    pair.right.push.prune()
    assert pair.quiet() == [[], ["PRUNE"]]
    assert pair.left.push.lazy and pair.right.push.lazy
    return pair


def test_a_lazy_session_tells_the_root_and_sends_on_request():
    writer = writer_with_a_file()
    pair = lazy_pair(writer)
    pair.left.push.send(pair.write(writer, (b"d", b"h")))
    assert pair.quiet() == [[], []]
    pair.left.push.tell_if_new()
    assert pair.quiet() == [["ROOT"], []]
    assert noticed(pair.right, Notice.GAP)
    assert pair.right.push.graft() and not pair.right.push.graft()
    assert pair.quiet() == [["ENTRIES", "BLOCKS", "ROOT"], ["GRAFT"]]
    assert pair.logs[0].root_hash() == pair.logs[1].root_hash()
    assert not noticed(pair.right, Notice.GAP) and not pair.right.push.differs
    pair.left.push.send(pair.write(writer, (b"d", b"i")))
    assert pair.quiet()[0] == ["ENTRIES", "BLOCKS"], "from now on it is sent unasked"


def test_nobody_says_what_both_know():
    writer = writer_with_a_file()
    pair = lazy_pair(writer)
    news = pair.write(writer, (b"d", b"h"))
    pair.left.push.send(news)
    pair.logs[1].add(news, writer.blocks)
    pair.right.push.send(news)
    pair.left.push.tell_if_new()
    assert pair.quiet() == [["ROOT"], []]
    assert not noticed(pair.right, Notice.GAP)
    pair.right.push.tell_if_new()
    for now in (0.0, 6.0):
        pair.left.tick(now)
        pair.right.tick(now)
    assert pair.quiet() == [[], []]
    assert pair.left.push.agrees and pair.right.push.agrees


@pytest.mark.parametrize("told", [False, True])
def test_more_than_is_kept_is_to_be_compared(told):
    writer = writer_with_a_file()
    pair = lazy_pair(writer)
    count = 3 if told else MAX_KEPT + 1
    pair.left.push.send(pair.write(writer, *[(b"d", b"%d" % number) for number in range(count)]))
    pair.left.push.tell_root() if told else pair.left.push.tell_if_new()
    pair.quiet()
    assert noticed(pair.right, Notice.GAP)
    assert not pair.right.push.graft()
    pair.quiet()
    assert not pair.left.push.lazy, "but what comes next is sent unasked"


def test_a_peer_that_is_behind_has_nothing_for_us():
    writer = writer_with_a_file()
    pair = lazy_pair(writer)
    pair.right.push.send([])
    old = pair.logs[1].root_hash()
    pair.write(writer, (b"d", b"h"))
    pair.left.push.send([])
    pair.left.receive_data(encode(Root(Digest(old, 1), 0)))
    work(pair.left)
    assert not noticed(pair.left, Notice.GAP)


def test_a_failed_attempt_is_made_again():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    pair.write(writer, (b"d", b"lost"))
    pair.left.push.tell_root()
    pair.quiet()
    pair.right.tick(100.0)
    assert noticed(pair.right, Notice.GAP)
    pair.right.tick(104.0)
    assert not noticed(pair.right, Notice.GAP)
    pair.right.tick(105.0)
    assert noticed(pair.right, Notice.GAP), "until it is here, whatever happens to the sessions that should bring it"
    assert not noticed(pair.left, Notice.GAP)


def test_a_peer_that_changes_its_mind_all_the_time_and_reads_nothing_costs_little():
    writer = writer_with_a_file()
    pair = PushSession(writer)
    pair.left.push.send(pair.write(writer, *[(b"d", b"%d" % number) for number in range(20)]))
    pair.quiet()
    tracemalloc.start()
    try:
        for number in range(5000):
            pair.left.receive_data(b"PRUNE\nGRAFT\n" + encode(Root(Digest(random_bytes(HASH_SIZE, number), number), 8)))
            while pair.left.wants_work:
                work(pair.left)
            noticed(pair.left, Notice.GAP)
        assert pair.left.push
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
