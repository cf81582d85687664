"""Contents whose blocks neighbours exchange over sessions that stand."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest

from basefs.log.blocks import Encoded
from basefs.log.codecs import STORED
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import BlockHash, Fingerprint, sha224
from basefs.sync.session.contents import FOLLOWS, FRUITLESS, KEPT_SECONDS, MOST_CONTENTS
from basefs.sync.session.inflight import DEPTH, RequestTable
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.responder import size_of
from basefs.sync.session.result import Reason
from basefs.sync.session.states import Role
from basefs.sync.wire.codec import encode, encode_bytes
from basefs.sync.wire.limits import INLINE_BLOCKS
from basefs.sync.wire.messages import BlockReq, Blocks, Entries, Eof, Have, PathReq
from tests.sync.helpers import Writer, random_bytes, work

#: A content of 16 blocks and their list.
SIZE, BLOCKS = 16 * 500, 17


class Full:
    """A log that has room for one more block, and goes on wanting the others."""

    def __init__(self, log):
        self._log = log
        self._room = 1

    def add(self, entries, blocks, *, peer=""):
        taken = list(blocks)[: self._room]
        self._room -= len(taken)
        return self._log.add(entries, taken, peer=peer)

    def __getattr__(self, name):
        return getattr(self._log, name)


class Graph:
    """Nodes with equal logs, between some of which sessions stand.  Each sends one line at a time."""

    def __init__(self, nodes, edges, full=()):
        self.writer = Writer()
        self.writer.write((b"f",), b"x")
        self.logs = [self.writer.log() for _ in range(nodes)]
        self.logs = [Full(log) if node in full else log for node, log in enumerate(self.logs)]
        self.requests = [RequestTable(random.Random(number).random) for number in range(nodes)]
        self.ends = {}
        for here, there in edges:
            self.ends[here, there] = self._core(here, Role.INITIATOR)
            self.ends[there, here] = self._core(there, Role.RESPONDER)
        #: Nodes that say what they have, and answer no request for it; the last word that each end has sent.
        self.mute = set()
        self.last = {}
        self.now = 0.0
        #: Blocks that each node has sent, and how often each block was.
        self.sent, self.times = Counter(), Counter()
        self.waiting = {}
        self.passed = set()
        self.run(6.0)
        assert all(core.push for core in self.ends.values())

    def _core(self, node, role):
        return SyncProtocol(self.logs[node], role, port=node + 1, stay=lambda port: True, requests=self.requests[node])

    def run(self, seconds=40.0):
        """Let so many seconds pass; a line takes a fifth of one."""
        for _ in range(round(5 * seconds)):
            self.now += 0.2
            for core in self.ends.values():
                core.tick(self.now)
            for node in range(len(self.logs)):
                self._send(node)

    def _send(self, node):
        """A node sends one line, to whom it has sent none for longest."""
        for edge in [edge for edge in self.ends if edge[0] == node]:
            if self._move(*edge):
                self.ends[edge] = self.ends.pop(edge)
                return True
        return False

    def _move(self, here, there):
        core, other = self.ends[here, there], self.ends[there, here]
        if core.push is not None:
            core.push.drain(0, self.now, whole=False)
        waiting = self.waiting.setdefault((here, there), deque())
        if core.wants_send and not waiting:
            waiting.extend(core.data_to_send(1 << 20).splitlines(keepends=True))
        line = waiting.popleft() if waiting else b""
        if line:
            word, *fields = line.split()
            if word == b"BLOCKS":
                self.sent[here] += len(fields)
                self.times.update(fields)
            is_answer = word == b"EOF" or (word == b"BLOCKS" and self.last.get((here, there)) != b"ENTRIES")
            self.last[here, there] = word
            if here not in self.mute or not is_answer:
                other.receive_data(line)
        while other.wants_work:
            work(other)
        self._pass_on(there)
        return bool(line)

    def _pass_on(self, node):
        """As a node does with what is new in its log."""
        self.requests[node].contents.look(self.logs[node])
        new = self._new()
        if new is None or node in self.passed or not self.logs[node].entry(new.hash):
            return
        if size_of(self.logs[node], new.encode(), INLINE_BLOCKS) is not None:
            self.passed.add(node)
            self.push(node)

    def _new(self):
        return self.writer.heads.get((b"new",))

    def push(self, node, whole=False):
        """A node gives the new file to its neighbours."""
        for (here, _), core in self.ends.items():
            if here == node and core.push is not None:
                core.push.send([self._new().encode()], whole=whole)

    def write(self, node, size=SIZE, whole=False):
        """A new file at a node; returns its blocks, the list first."""
        count = len(self.writer.blocks)
        self.writer.write((b"new",), random_bytes(size, 7))
        self.logs[node].add(self.writer.entries[-1:], self.writer.blocks[count:])
        self.passed.add(node)
        self.push(node, whole)
        return self.writer.blocks[count:]

    @property
    def complete(self):
        """The nodes that have all of the file."""
        new = self._new().hash
        return [node for node, log in enumerate(self.logs) if log.entry(new) and log.is_complete(new)]


def star_and_ring(nodes):
    """The first node knows all others, which know their neighbours in a ring."""
    ring = range(1, nodes)
    return [(0, node) for node in ring] + [(node, node % (nodes - 1) + 1) for node in ring]


def test_neighbours_give_each_other_what_the_writer_has_sent_to_one_of_them():
    graph = Graph(7, star_and_ring(7))
    graph.write(0)
    graph.run()
    assert graph.complete == list(range(7))
    assert graph.sent[0] < 6 * BLOCKS * 0.7
    assert all(graph.sent[node] >= 4 for node in range(1, 7))


@pytest.mark.parametrize("size", [FOLLOWS + 1, SIZE, 20_000, 60_000])
@pytest.mark.parametrize("seed", range(5))
def test_each_node_gets_each_block_once_in_any_graph(seed, size):
    chance = random.Random(seed)
    nodes = chance.randrange(2, 9)
    edges = {(chance.randrange(node), node) for node in range(1, nodes)}
    edges |= {tuple(sorted(chance.sample(range(nodes), 2))) for _ in range(nodes)}
    graph = Graph(nodes, sorted(edges))
    blocks = graph.write(chance.randrange(nodes), size)
    graph.run()
    assert graph.complete == list(range(nodes))
    # The list follows the entry, on several ways where the graph has circles.
    parts = blocks[1:] or blocks
    assert {graph.times[encode_bytes(part)] for part in parts} == {nodes - 1}
    assert all(core.result is None for core in graph.ends.values())


def test_a_small_content_follows_its_entry():
    graph = Graph(3, [(0, 1), (1, 2)])
    graph.write(0, FOLLOWS)
    graph.run()
    assert graph.complete == [0, 1, 2]
    assert not list(graph.requests[1].contents)


def test_a_content_is_sent_whole_where_the_link_is_wide():
    graph = Graph(2, [(0, 1)])
    graph.write(0, whole=True)
    graph.run(2.0)
    assert graph.sent[1] == 0 and graph.sent[0] == BLOCKS


def test_a_neighbour_that_tells_of_blocks_and_sends_none_holds_nobody_up_for_long():
    graph = Graph(4, [(0, 1), (0, 2), (1, 2), (2, 3), (1, 3)])
    graph.mute.add(1)
    graph.write(0)
    graph.run(40.0 + FRUITLESS)
    assert set(graph.complete) >= {0, 2, 3}


def test_a_block_that_the_peer_told_of_and_did_not_send_is_not_asked_for_again():
    graph = Graph(2, [(0, 1)])
    first = graph.write(0)[0]
    for _ in range(4):
        graph._send(0)
    core = graph.ends[1, 0]
    asked = []
    for _ in range(2 * BLOCKS):
        # The peer goes on telling of all of them.
        core.receive_data(encode(Have(BlockHash(sha224(first)), (1 << BLOCKS) - 1)))
        while core.wants_work:
            work(core)
        core.push.drain(0, graph.now, whole=False)
        requests = [line for line in core.data_to_send(1 << 16).splitlines() if line.startswith(b"BLOCK_REQ")]
        for request in requests:
            asked += request.split()[1:]
            core.receive_data(encode(Eof()))
    assert len(asked) == len(set(asked)) == BLOCKS - 1


def test_a_block_that_came_and_was_not_taken_is_not_asked_of_the_same_peer_again():
    graph = Graph(2, [(0, 1)], full=[1])
    blocks = graph.write(0)
    graph.run()
    assert max(graph.times[encode_bytes(block)] for block in blocks) == 1
    assert all(core.result is None for core in graph.ends.values()), "nobody is to blame"


def test_a_peer_that_brings_other_news_holds_a_block_for_a_while_only():
    requests, slow = RequestTable(), object()
    block = BlockHash(sha224(b"block"))
    requests.tick(1.0)
    requests.take((block,), slow)
    for second in range(1, int(KEPT_SECONDS)):
        requests.tick(1.0 + second)
        requests.moved(slow)
        requests.gained(slow)
        assert requests.is_asked(block)
    requests.tick(1.0 + KEPT_SECONDS)
    assert not requests.is_asked(block)


def compare(graph, node, log):
    """A session that compares, of a node with a log that has everything."""
    core = SyncProtocol(graph.logs[node], Role.INITIATOR, requests=graph.requests[node])
    other = SyncProtocol(log, Role.RESPONDER)
    while not core.closed:
        for here, there in ((core, other), (other, core)):
            there.receive_data(here.data_to_send(1 << 16))
            while there.wants_work:
                work(there)
    assert core.result and core.result.reason is Reason.COMPLETE


def test_a_neighbour_that_tells_of_blocks_and_brings_other_news_keeps_no_session_from_bringing_them():
    graph = Graph(2, [(0, 1)])
    graph.mute.add(0)
    graph.write(0)

    def bring_news(seconds):
        for _ in range(int(seconds)):
            graph.writer.write((b"other %d" % len(graph.writer.entries),))
            graph.logs[0].add(graph.writer.entries[-1:], ())
            graph.ends[0, 1].push.send(graph.writer.entries[-1:])
            graph.run(1.0)

    bring_news(5)
    assert graph.requests[1].contents.comes, "it seems so"
    bring_news(FRUITLESS)
    assert not graph.requests[1].contents.comes
    compare(graph, 1, graph.writer.log())
    assert len(graph.logs[1].missing_blocks(BLOCKS)) == DEPTH, "those that it was asked for"
    bring_news(KEPT_SECONDS - FRUITLESS)
    compare(graph, 1, graph.writer.log())
    assert graph.complete == [0, 1]


def asked(graph, here, there, blocks):
    """How many blocks a peer that asks for some is sent."""
    core, before = graph.ends[here, there], graph.sent[here]
    core.data_to_send(1 << 20)
    core.receive_data(encode(BlockReq(tuple(BlockHash(sha224(block)) for block in blocks))))
    while core.wants_work:
        work(core)
    core.push.drain(0, graph.now, whole=False)
    lines = core.data_to_send(1 << 20).splitlines()
    assert lines[-1] == b"EOF" and graph.sent[here] == before
    return sum(len(line.split()) - 1 for line in lines if line.startswith(b"BLOCKS "))


def test_a_peer_is_sent_each_block_of_what_is_exchanged_once():
    graph = Graph(2, [(0, 1)])
    other = graph.writer.blocks[:]
    blocks = graph.write(0)[1:]
    assert other and asked(graph, 0, 1, other) == 0, "it would take no turns with others"
    assert asked(graph, 0, 1, blocks[:4]) == 4
    assert asked(graph, 0, 1, blocks) == BLOCKS - 1 - 4
    assert asked(graph, 0, 1, blocks) == 0


def test_a_peer_that_has_a_block_is_not_sent_it():
    graph = Graph(2, [(0, 1)])
    first, *blocks = graph.write(0)
    graph.ends[0, 1].receive_data(encode(Have(BlockHash(sha224(first)), 0b111)))
    assert asked(graph, 0, 1, blocks) == BLOCKS - 3


def test_contents_that_one_key_writes_and_nobody_has_do_not_push_out_those_of_others():
    graph = Graph(2, [(0, 1)])
    blocks = graph.write(0)
    hostile = Fingerprint(sha224(b"another key"))
    entries = []
    for number in range(2 * MOST_CONTENTS):
        named = Encoded(BlockHash(sha224(b"nothing %d" % number)), STORED.tag, 20_000).encode()
        name, extensions = b"withheld %d" % number, Extensions(20_000)
        entry = Entry(graph.writer.root.hash, number, Action.WRITE, name, named, extensions, hostile, bytes(64))
        entries.append(entry.encode())
        graph.logs[0].add(entries[-1:], ())
    graph.ends[0, 1].push.send(entries, whole=False)
    graph.run(5.0)
    assert graph.logs[1].entry(sha224(entries[-1][:-64])) and len(list(graph.requests[0].contents)) == MOST_CONTENTS
    graph.ends[1, 0].push.send(entries, whole=False)
    assert len(list(graph.requests[1].contents)) == MOST_CONTENTS
    graph.run(20.0)
    assert graph.complete == [0, 1] and all(graph.times[encode_bytes(block)] == 1 for block in blocks)


def test_a_content_that_nobody_sends_is_exchanged_for_a_while_only():
    graph = Graph(2, [(0, 1)])
    graph.mute.add(0)
    graph.write(0)
    graph.run(KEPT_SECONDS / 2)
    assert list(graph.requests[1].contents)
    graph.run(KEPT_SECONDS)
    assert not list(graph.requests[1].contents)


def test_what_is_asked_for_over_a_session_that_stands_are_blocks():
    graph = Graph(2, [(0, 1)])
    core = graph.ends[0, 1]
    core.receive_data(encode(PathReq(())))
    work(core)
    assert core.result and core.result.reason is Reason.RUBBISH


def test_news_may_come_in_the_middle_of_an_answer():
    graph = Graph(2, [(0, 1)])
    graph.write(0)
    for _ in range(4):
        graph._send(0)
    core, log = graph.ends[1, 0], graph.logs[1]
    core.push.drain(0, graph.now, whole=False)
    assert b"BLOCK_REQ" in core.data_to_send(1 << 16)
    count = len(graph.writer.blocks)
    graph.writer.write((b"more",), b"y")
    core.receive_data(encode(Entries((graph.writer.entries[-1],))) + encode(Blocks(tuple(graph.writer.blocks[count:]))))
    while core.wants_work:
        work(core)
    assert core.result is None
    assert log.is_complete(graph.writer.heads[b"more",].hash)


def test_a_content_that_is_complete_is_forgotten_after_a_while():
    graph = Graph(2, [(0, 1)])
    graph.write(0)
    graph.run(KEPT_SECONDS / 2)
    assert graph.complete == [0, 1] and list(graph.requests[0].contents)
    graph.run(KEPT_SECONDS + 2)
    assert not list(graph.requests[0].contents) and not list(graph.requests[1].contents)
