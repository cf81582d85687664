"""News over a graph of standing sessions: it reaches everybody, once where the graph is quiet, whatever is lost."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.push import Notice
from basefs.sync.session.states import Role
from basefs.sync.wire.limits import Limits
from tests.support.examples import part
from tests.support.memory import MemoryLog
from tests.sync.helpers import ROOT, Pair, Writer, blocks_of, cut, noticed, random_bytes, work

LIMITS = Limits(heartbeat=5, silence=1e9)


class Node:
    """A log, and the cores of its standing sessions with the number of the peer."""

    def __init__(self):
        self.log = MemoryLog(ROOT.hash)
        self.log.add([ROOT.encode()], [])
        self.cores = {}
        self.seen = 1

    def write(self, name, content):
        """A new file in the root directory."""
        writer = Writer()
        writer.write((name,), content)
        self.log.add(writer.entries, blocks_of(content))

    def news(self):
        """The entries that came since the last call, as the pusher passes them on."""
        entries = [encoded for encoded, _ in itertools.islice(self.log._entries.values(), self.seen, None)]
        self.seen = len(self.log)
        return entries


class Graph:
    """Some nodes with sessions between them, and what daemons do with them."""

    def __init__(self, count, edges):
        self.nodes = [Node() for _ in range(count)]
        self.now = 0.0
        self.sent = 0
        self.compared = 0
        for one, two in edges:
            self.connect(one, two)

    def connect(self, one, two):
        """Open a session that stands."""
        if two in self.nodes[one].cores:
            return
        logs = self.nodes[one].log, self.nodes[two].log
        left = SyncProtocol(logs[0], Role.INITIATOR, port=1, limits=LIMITS, stay=lambda port: True)
        right = SyncProtocol(logs[1], Role.RESPONDER, port=2, limits=LIMITS, stay=lambda port: True)
        self.nodes[one].cores[two], self.nodes[two].cores[one] = left, right
        while self.deliver(one, two) + self.deliver(two, one):
            pass
        assert left.push and right.push

    def cut(self, one, two):
        """The connection is gone, with all that was on its way."""
        for here, there in ((one, two), (two, one)):
            core = self.nodes[here].cores.pop(there, None)
            if core is not None:
                cut(core)

    def pass_on(self, number):
        """What the pusher does."""
        news = self.nodes[number].news()
        for core in self.nodes[number].cores.values():
            if news:
                core.push.send(news)

    def deliver(self, sender, receiver, chunk=1 << 20):
        """Move some bytes, and do what the keeper does; returns how many."""
        core, other = self.nodes[sender].cores.get(receiver), self.nodes[receiver].cores.get(sender)
        if core is None or other is None:
            return 0
        data = core.data_to_send(chunk)
        self.sent += len(data)
        if data:
            other.receive_data(data)
        while other.wants_work:
            work(other)
        others = [each.push for each in self.nodes[receiver].cores.values() if each is not other and each.push]
        if noticed(other, Notice.REPEATS) and any(map(other.push.repeats, others)):
            other.push.prune()
        return len(data)

    def edges(self):
        return [(one, two) for one, node in enumerate(self.nodes) for two in node.cores]

    def quiet(self):
        """Until nothing moves any more."""
        moved = True
        while moved:
            for number in range(len(self.nodes)):
                self.pass_on(number)
            moved = sum(self.deliver(one, two) for one, two in self.edges())

    def mend(self):
        """Whoever has heard of a gap looks for himself: by what was kept back, or by comparing."""
        for one, two in self.edges():
            core = self.nodes[one].cores[two]
            if noticed(core, Notice.GAP) and core.push.differs and not core.push.graft():
                self.compared += 1
                Pair(self.nodes[one].log, self.nodes[two].log).run()

    def beat(self):
        """Six seconds without a change."""
        for one, two in self.edges():
            news = self.nodes[one].cores[two].push
            if news.lazy:
                news.tell_if_new()
        self.quiet()
        self.mend()
        self.quiet()
        self.now += 6.0
        for one, two in self.edges():
            self.nodes[one].cores[two].tick(self.now)
        self.quiet()
        self.mend()
        self.quiet()

    @property
    def equal(self):
        return len({node.log.root_hash() for node in self.nodes}) == 1


def random_graph(count, degree, seed):
    """Edges such that each node has a few, and the graph is connected."""
    chance = random.Random(seed)
    edges = {(number, chance.randrange(number)) for number in range(1, count)}
    while len(edges) < min(degree, count - 1) * count // 2:
        one, two = chance.sample(range(count), 2)
        edges.add((max(one, two), min(one, two)))
    return sorted(edges)


@pytest.mark.parametrize("seed", range(5))
def test_after_the_first_change_each_node_gets_each_entry_once(seed):
    count = 30
    graph = Graph(count, random_graph(count, 4, seed))
    sizes = []
    for number in range(6):
        graph.nodes[number * 5].write(b"%d" % number, random_bytes(400, number))
        before = graph.sent, sum(core.counters.entries_sent for node in graph.nodes for core in node.cores.values())
        graph.quiet()
        assert graph.equal, "at once, without a heartbeat"
        graph.beat()
        after = sum(core.counters.entries_sent for node in graph.nodes for core in node.cores.values())
        sizes.append((after - before[1], graph.sent - before[0]))
    assert sizes[0][0] > count - 1
    assert all(entries == count - 1 for entries, _ in sizes[1:])
    assert graph.compared == 0
    assert all(size / count < 1100 for _, size in sizes[1:]), "bytes a node, of which 850 are the entry and its block"


def test_what_comparisons_have_brought_makes_no_session_lazy():
    graph = Graph(3, [(1, 0), (2, 0), (2, 1)])
    graph.nodes[0].write(b"f", b"content")
    graph.pass_on(0)
    for one, two in graph.edges():
        Pair(graph.nodes[one].log, graph.nodes[two].log).run()
    graph.quiet()
    assert not any(core.push.lazy for node in graph.nodes for core in node.cores.values())
    graph.nodes[0].write(b"g", b"content")
    graph.quiet()
    assert [core.push.lazy for core in graph.nodes[0].cores.values()] == [False, False]
    assert graph.nodes[1].cores[2].push.lazy and graph.nodes[2].cores[1].push.lazy


@part(5)
@given(st.integers(2, 7), st.integers(0, 2**32), st.lists(st.integers(0, 2**32), min_size=1, max_size=40))
def test_whatever_is_cut_and_lost_all_become_equal(count, seed, steps):
    edges = random_graph(count, 3, seed)
    graph = Graph(count, edges)
    names = itertools.count()
    for step in steps:
        chance = random.Random(step)
        kind = chance.choice(
            ["write", "write", "pass", "deliver", "deliver", "deliver", "cut", "lose", "connect", "beat"]
        )
        number = chance.randrange(count)
        if kind in ("write", "lose"):
            graph.nodes[number].write(b"%d" % next(names), random_bytes(chance.choice([1, 400, 5000]), step))
        if kind == "lose":
            graph.nodes[number].news()  # nobody is told
        elif kind == "pass":
            graph.pass_on(number)
        elif kind == "deliver" and graph.edges():
            graph.deliver(*chance.choice(graph.edges()), chunk=chance.choice([1, 50, 5000]))
        elif kind == "cut":
            graph.cut(*chance.choice(edges))
        elif kind == "connect":
            graph.connect(*chance.choice(edges))
        elif kind == "beat":
            graph.beat()
    for one, two in edges:
        graph.connect(one, two)
    for _ in range(count + 2):
        if graph.equal:
            break
        graph.beat()
    assert graph.equal
    sent = graph.sent
    graph.beat()
    graph.beat()
    settled = graph.sent
    graph.beat()
    assert graph.sent == settled, f"equal nodes go on talking: {sent} {settled} {graph.sent}"
