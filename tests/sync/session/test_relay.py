"""A content that is still arriving is passed on: several nodes, each with several sessions."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.log.hashes import BlockHash, sha224
from basefs.log.interface import Digest
from basefs.sync.net.transport import SessionContext, SessionTiming
from basefs.sync.session.contents import FRUITLESS
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.result import Reason
from basefs.sync.session.states import Role
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import MAX_REPEATED, VERSION
from basefs.sync.wire.messages import BlockReq, Blocks, Eof, Hash, Wait
from tests.support.asynchronous import run, until
from tests.support.examples import part
from tests.support.memory import MemoryLog
from tests.support.syncing import Syncing, running
from tests.sync.helpers import ROOT, Pair, Writer, cut, random_bytes, work


class Node:
    """A log and what its sessions share."""

    def __init__(self, log):
        self.log = log
        self.requests = RequestTable()


class Link(Pair):
    """A session between two nodes."""

    def __init__(self, left, right, chunk=65536):
        super().__init__(left.log, right.log, chunk=chunk)
        self.left = SyncProtocol(left.log, Role.INITIATOR, port=1000, requests=left.requests)
        self.right = SyncProtocol(right.log, Role.RESPONDER, port=2000, requests=right.requests)
        self.sent = {self.left: bytearray(), self.right: bytearray()}

    def cut(self):
        cut(self.left)
        cut(self.right)

    def tick(self, now):
        self.left.tick(now)
        self.right.tick(now)

    def look(self):
        """What a shell does now and then while an answer waits for another session."""
        busy = self.turn()
        for here, there in ((self.left, self.right), (self.right, self.left)):
            if here.wants_time and (data := here.data_to_send(self.chunk)):
                self.sent[here] += data
                there.receive_data(data)
                busy = True
        return busy

    @property
    def over(self):
        return self.left.closed and self.right.closed


def play(rng, nodes, most, chunk, *, cuts, ended=lambda link: None):
    """Sessions between random nodes, so many at once at the most and cut with some chance, until no block is missing.

    `ended` is called with each that has a result.
    """
    links = []
    now = 0.0
    while links or any(node.log.missing_blocks(1) for node in nodes):
        assert now < 5000, "it ends"
        if len(links) < most and rng.random() < 0.2:
            links.append(Link(*rng.sample(nodes, 2), chunk=chunk))
        if links:
            link = rng.choice(links)
            link.look()
            if rng.random() < cuts:
                link.cut()
            if link.left.result or link.right.result:
                ended(link)
                link.cut()
                links.remove(link)
        now += 0.05
        for link in links:
            link.tick(now)


def some_nodes(size, have):
    """Nodes that all know a write of `size` bytes, and have so many blocks of it."""
    writer = Writer()
    writer.write((b"large",), random_bytes(size))
    nodes = []
    for count in have:
        log = MemoryLog(ROOT.hash)
        log.add(writer.entries, writer.blocks[:count])
        nodes.append(Node(log))
    return writer, nodes


def test_what_is_arriving_is_passed_on():
    writer, (origin, relay, last) = some_nodes(2_000_000, (None, 1, 0))
    first, second = Link(origin, relay, chunk=40_000), Link(relay, last, chunk=40_000)
    while not first.over or not second.over:
        assert first.look() | second.look()
        if not first.over:
            here = relay.log.blocks
            assert here - last.log.blocks <= here, "never ahead of whom it comes from"
            passed_on = last.log.blocks
    assert passed_on > len(writer.blocks) // 2, "it did not wait until the relay had all"
    assert relay.log.root_hash() == last.log.root_hash() == origin.log.root_hash()
    assert second.left.counters.blocks_sent == len(writer.blocks), "nothing twice"
    assert not last.log.missing_blocks(1)


@pytest.mark.parametrize("silent", [True, False])
def test_an_answer_does_not_wait_for_ever_for_who_brings_nothing(silent):
    _, (origin, relay, last) = some_nodes(2_000_000, (None, 5, 0))
    first, second = Link(origin, relay, chunk=20_000), Link(relay, last)
    for _ in range(30):
        first.look()
    while second.look():
        pass
    assert second.left.wants_time and not second.over
    for now in range(int(FRUITLESS) + 2):
        if not silent:
            first.right.receive_data(b"B")  # of a line that never ends
        first.tick(now)
        second.tick(now)
        while second.look():
            pass
    assert second.over, "the relay's own source brings nothing"
    assert last.log.blocks == relay.log.blocks


def test_two_that_wait_for_each_other_end():
    _, (one, two) = some_nodes(2_000_000, (3, 3))
    links = [Link(one, two), Link(two, one)]
    for now in range(5):
        for link in links:
            link.tick(now)
        while links[0].look() | links[1].look():
            pass
    assert all(link.over and link.left.result.reason is Reason.COMPLETE for link in links)


def greeted(node):
    """An initiator that asks a peer, played by the test, for the next block that it misses."""
    core = SyncProtocol(node.log, Role.INITIATOR, requests=node.requests)
    core.data_to_send(65536)
    core.receive_data(encode(Hash(VERSION, ROOT.hash, Digest(sha224(b"another root"), 1), 0)))
    work(core)
    return core, core.data_to_send(65536)


def test_who_was_told_to_wait_asks_somebody_else():
    writer, (_, node) = some_nodes(100_000, (None, 2))
    wanted = encode(BlockReq(tuple(BlockHash(sha224(block)) for block in writer.blocks[2:])))
    core, sent = greeted(node)
    assert wanted in sent
    _, sent = greeted(node)
    assert b"BLOCK_REQ" not in sent, "the first one brings it"
    core.receive_data(encode(Wait()))
    work(core)
    _, sent = greeted(node)
    assert wanted in sent


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda blocks: b"another one",
        lambda blocks: blocks[-1][:-1] + bytes([blocks[-1][-1] ^ 1]),
        lambda blocks: blocks[0],
    ],
)
def test_a_peer_that_sends_a_wrong_block_loses_its_turn(place, wrong):
    writer, (origin, node) = some_nodes(200_000, (None, 2))
    core, _ = greeted(node)
    right = writer.blocks[2 : 2 + place]
    core.receive_data(b"".join(encode(Blocks((block,))) for block in (*right, wrong(writer.blocks))))
    while core.wants_work:
        work(core)
    assert core.result is not None and core.result.reason is Reason.RUBBISH
    assert len(node.log.missing_blocks(9)) == len(writer.blocks) - 2 - place
    link = Link(origin, node)
    link.run()
    assert not node.log.missing_blocks(1)


def test_a_block_that_comes_twice_is_a_wrong_one():
    writer, (_, node) = some_nodes(100_000, (None, 2))
    core, _ = greeted(node)
    core.receive_data(encode(Blocks((writer.blocks[2],))) + encode(Blocks((writer.blocks[2],))))
    work(core)
    assert core.result is not None and core.result.reason is Reason.RUBBISH


def test_a_place_in_a_queue_is_given_up_when_others_have_brought_much():
    writer = Writer()
    writer.write((b"large",), random_bytes(MAX_REPEATED + 2_000_000))
    origin, node = Node(writer.log()), Node(MemoryLog(ROOT.hash))
    node.log.add(writer.entries, [])
    core, _ = greeted(node)
    core.receive_data(encode(Wait()))
    work(core)
    core.tick(0)
    assert core.result is None
    link = Link(origin, node)
    while node.log.blocks * 32768 <= MAX_REPEATED:
        assert link.look()
    core.tick(1)
    assert core.result is not None and core.result.reason is Reason.ENOUGH
    assert b"CLOSE NO enough" in core.data_to_send(65536)


def test_a_place_in_a_queue_is_kept_while_others_bring_little():
    writer, (origin, node) = some_nodes(100_000, (None, 2))
    core, _ = greeted(node)
    core.receive_data(encode(Wait()))
    work(core)
    Link(origin, node).run()
    core.tick(1)
    assert core.result is None
    core.receive_data(b"".join(encode(Blocks((block,))) for block in writer.blocks[2:]) + encode(Eof()))
    work(core)
    assert core.result is None and core.counters.rejected == 0, "what comes twice is no misbehaviour"


@part(12)
@given(st.integers(0, 2**32), st.integers(2, 5), st.sampled_from([7000, 50_000, 300_000]))
def test_any_sessions_cut_anywhere_bring_everything_to_all(seed, count, chunk):
    rng = random.Random(seed)
    blocks = 20
    _, nodes = some_nodes((blocks - 1) * 32768, [None, *(rng.randrange(blocks) for _ in range(count))])
    before = sum(node.log.blocks for node in nodes)
    play(rng, nodes, 2 * count, chunk, cuts=0.02)
    assert len({node.log.root_hash() for node in nodes}) == 1
    assert before <= len(nodes) * blocks == sum(node.log.blocks for node in nodes)


def test_the_first_node_does_not_send_a_large_content_to_all_by_itself():
    """Chance decides which peer a node asks while it waits, so the mean of three clusters counts."""
    size = 16_000_000
    one = size * 4 / 3
    #: Bytes by cluster and node.
    sent = []

    async def main(seed):
        writer = Writer()
        logs = [writer.log() for _ in range(5)]
        shared = [SessionContext(timing=SessionTiming(tick=0.05)) for _ in logs]
        services = [
            Syncing(log, rng=random.Random(seed + number), shared=each)
            for number, (log, each) in enumerate(zip(logs, shared, strict=True))
        ]
        async with running(*services):
            addresses = [("127.0.0.1", each.port) for each in services]
            for number, each in enumerate(services):
                each.peers = lambda own=addresses[number]: [other for other in addresses if other != own]
            writer.write((b"large",), random_bytes(size))
            logs[0].add(writer.entries[1:], writer.blocks)
            for each in services[1:]:
                each.request(addresses[0], "news")
            await until(lambda: all(log.digest() == logs[0].digest() for log in logs))
            sent.append([each.traffic.total().bytes_sent for each in services])

    for seed in (0, 10, 20):
        run(main(seed))
    assert sum(first for first, *_ in sent) / len(sent) < 3 * one, "it would be 4"
    assert all(sum(each) < 6 * one for each in sent), "and not much goes twice"
