"""One large content from several peers at once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basefs.replication.scheduler import PullLimits
from basefs.sync.session.result import Reason
from basefs.sync.wire.limits import MAX_BLOCKS
from tests.support.asynchronous import run, until
from tests.support.memory import MemoryLog
from tests.support.syncing import Syncing, running
from tests.sync.helpers import ROOT, Writer, random_bytes
from tests.sync.session.test_relay import Link, play, some_nodes

#: Bytes of a content of many requests.
SIZE = 10 * MAX_BLOCKS * 32768


def move(links):
    """Let several sessions go on, each with one chunk at a time; returns whether any did."""
    went_on = [link.look() for link in links if not link.over]
    return any(went_on)


def test_a_content_comes_from_several_peers_at_once_and_nothing_twice():
    writer, (one, two, three, node) = some_nodes(SIZE, [None, None, None, 0])
    links = [Link(one, node, chunk=30_000)]
    while not node.requests.wanted:
        assert move(links)
    links += [Link(two, node, chunk=30_000), Link(three, node, chunk=30_000)]
    while move(links):
        pass
    assert node.log.root_hash() == one.log.root_hash()
    sent = [link.left.counters.blocks_sent for link in links]
    assert sum(sent) == len(writer.blocks), "nothing twice"
    assert min(sent) > len(writer.blocks) // 5
    assert all(link.left.result.reason is Reason.COMPLETE for link in links)


@pytest.mark.parametrize("role", [0, 1])
def test_whoever_opened_the_sessions(role):
    writer, (one, two, node) = some_nodes(SIZE, [None, None, 0])
    pairs = [(one, node), (two, node)]
    links = []
    for pair in pairs:
        links.append(Link(*(pair if role else pair[::-1]), chunk=30_000))
        while not node.requests.wanted:
            assert move(links)
    while move(links):
        pass
    assert node.log.root_hash() == one.log.root_hash()
    assert sum(node.blocks_sent for link in links for node in (link.left.counters, link.right.counters)) == len(
        writer.blocks
    )


def test_a_content_of_a_few_blocks_is_one_request():
    _, (one, node) = some_nodes(MAX_BLOCKS * 32768, [None, 1])
    link = Link(one, node)
    link.run()
    assert link.sent[link.right].count(b"BLOCK_REQ") == 1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4), st.sampled_from([7000, 50_000, 300_000]))
def test_any_sessions_cut_anywhere(seed, count, chunk):
    rng = random.Random(seed)
    blocks = MAX_BLOCKS * 3 + 1
    have = (rng.choice([0, blocks, rng.randrange(blocks)]) for _ in range(count))
    _, nodes = some_nodes((blocks - 1) * 32768, [None, *have])

    def honest(link):
        for core in (link.left, link.right):
            assert core.result is None or not core.result.misbehaved, core.result

    play(rng, nodes, 2 * count, chunk, cuts=0.01, ended=honest)
    assert len({node.log.root_hash() for node in nodes}) == 1
    assert all(node.log.blocks == blocks for node in nodes)


def test_a_node_finds_other_peers_by_itself():
    async def main():
        size = 24_000_000
        writer = Writer()
        writer.write((b"large",), random_bytes(size))
        logs = [writer.log(), writer.log(), writer.log(), MemoryLog(ROOT.hash)]
        logs[-1].add(writer.entries, [])
        peers = []
        services = [
            Syncing(log, peers, rng=random.Random(number), pulls=PullLimits(content_pause=0.0001))
            for number, log in enumerate(logs)
        ]
        async with running(*services):
            peers += [("127.0.0.1", each.port) for each in services]
            services[-1].request(peers[0], "news")
            await until(lambda: not logs[-1].missing_blocks(1))
            sent = [each.traffic.total().bytes_sent for each in services[:-1]]
        assert sum(each > 1_000_000 for each in sent) >= 2
        assert sum(sent) < 1.5 * size * 4 / 3

    run(main())
