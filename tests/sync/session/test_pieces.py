"""One large content from several peers at once."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import ZERO_HASH, BlockHash, sha224
from basefs.log.interface import Digest
from basefs.sync.session import inflight as module
from basefs.sync.session.inflight import DEPTH, WINDOW, PieceMap
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.result import Reason
from basefs.sync.session.states import Role
from basefs.sync.wire.codec import encode, parse
from basefs.sync.wire.limits import MAX_MARKS, PART_BLOCKS, VERSION
from basefs.sync.wire.messages import BlockReq, Blocks, Chain, ChainReq, Eof, Hash
from tests.support.asynchronous import run, until
from tests.support.memory import MemoryLog
from tests.support.syncing import Syncing, running
from tests.sync.helpers import ROOT, Writer, blocks_of, random_bytes, work
from tests.sync.session.test_relay import Link, Node, greeted

SIZE = 64
CHAIN = blocks_of(random_bytes(SIZE * PART_BLOCKS * 20), SIZE)
HASHES = [BlockHash(sha224(block)) for block in CHAIN]
STARTS = HASHES[::PART_BLOCKS]
OTHER = blocks_of(random_bytes(SIZE * PART_BLOCKS * 20, 1), SIZE)
OTHERS = [BlockHash(sha224(block)) for block in OTHER]


def part_of(number, chain=CHAIN):
    return chain[number * PART_BLOCKS : (number + 1) * PART_BLOCKS]


def put(parts, blocks):
    """Those of them that the log can take at once."""
    return [block for block in blocks if parts.put(BlockHash(sha224(block)), block)]


def given_to(log, parts, owner="log"):
    """Give a log, a list here, what was held."""
    while parts.is_due(owner):
        blocks = parts.give(owner)
        log += blocks
        parts.given(owner, len(blocks))
    return log


@pytest.fixture
def parts():
    """What knows all starts of a chain."""
    found = PieceMap(lambda owner: owner != "gone")
    assert found.begin(STARTS[0], "first")
    found.learn(STARTS[0], STARTS[1:], "teller")
    return found


def test_sessions_take_different_parts_and_not_too_many(parts):
    assert [parts.take("a", set()) for _ in range(DEPTH + 1)] == [*STARTS[:DEPTH], None]
    assert [parts.take("b", set()) for _ in range(DEPTH + 1)] == [*STARTS[DEPTH : 2 * DEPTH], None]
    for number in range(20):
        parts.take(f"more {number}", set())
    assert {parts.owner(start) is not None for start in STARTS[: WINDOW + 1]} == {True}
    assert parts.owner(STARTS[WINDOW + 1]) is None, "what cannot be verified stays bounded"
    assert not parts.wanted


def test_parts_in_any_order_reach_the_log_in_order(parts):
    log = put(parts, part_of(0)[:5])
    for number in (2, 1):
        assert put(parts, part_of(number)) == []
    log += put(parts, part_of(0)[5:])
    assert log == part_of(0)
    assert parts.holds(HASHES[PART_BLOCKS])
    assert put(parts, part_of(3)[:3]) == [], "not before what is held"
    assert given_to(log, parts) == CHAIN[: 3 * PART_BLOCKS + 3]
    assert put(parts, part_of(3)[3:]) == part_of(3)[3:]
    assert not any(parts.holds(hash) for hash in HASHES)


def test_one_session_at_a_time_gives_the_log_what_was_held(parts):
    put(parts, part_of(1))
    put(parts, part_of(0))
    some = parts.give("one")
    assert not parts.is_due("other") and parts.is_due("one")
    parts.ended("one")
    assert parts.give("other") == some, "it may not have reached the log"
    parts.given("one", len(some))
    assert parts.give("other") == some
    parts.given("other", len(some))
    assert parts.give("other") == part_of(1)[len(some) : 2 * len(some)]


def test_what_a_session_does_not_bring_is_taken_by_another(parts):
    assert parts.take("a", set()) == STARTS[0]
    assert parts.take("gone", set()) == STARTS[1]
    put(parts, part_of(1)[:3])
    assert parts.take("b", set()) == HASHES[PART_BLOCKS + 3], "it goes on where the other one stopped"
    parts.let_go("a", STARTS[5])
    assert parts.owner(STARTS[0]) == "a"
    parts.let_go("a", STARTS[0])
    assert parts.take("c", {STARTS[0]}) == STARTS[2], "who does not have it is not asked for it again"
    assert parts.take("c", set()) == STARTS[0]


def test_a_slow_peer_that_has_the_first_part_does_not_stop_all(parts):
    assert parts.take("slow", set()) == STARTS[0]
    asked = set()
    for number in range(1, WINDOW):
        start = parts.take("quick", asked)
        assert start == STARTS[number]
        put(parts, part_of(number))
    assert parts.take("quick", asked) == STARTS[WINDOW]
    put(parts, part_of(0)[:4])
    assert parts.take("quick", asked) == HASHES[4]


def test_at_the_end_nobody_waits_for_a_slow_peer(parts):
    asked = set()
    for number in range(20):
        owner = "slow" if number in (5, 18) else ("quick", "other")[number % 2]
        assert parts.take(owner, asked) == STARTS[number]
        if number != 18:
            put(parts, part_of(number))
    assert parts.take("other", asked) == STARTS[18]
    assert parts.take("quick", asked) is None, "once is enough"


def test_at_the_end_nothing_comes_twice_from_peers_of_equal_speed(parts):
    for number in range(19):
        parts.take("abc"[number % 3], set())
        put(parts, part_of(number))
    assert parts.take("a", set()) == STARTS[19]
    assert parts.take("b", set()) is None and parts.take("c", set()) is None


def test_who_brings_most_is_asked_for_more(parts):
    for number in range(8):
        parts.take("alone", set())
        put(parts, part_of(number))
        parts.take("alone", set())
    assert parts.owned("alone") < 4
    while parts.take("alone", set()):
        pass
    assert parts.owned("alone") == 4


def test_the_end_of_a_chain(parts):
    asked = set()
    for number in range(20):
        assert parts.take("a", asked) == STARTS[number]
        assert put(parts, part_of(number)) == part_of(number)
    assert parts.take("a", asked) is None and parts.head is None and parts.tail is None
    assert parts.begin(OTHERS[0], "b")


def test_what_nobody_has_told_is_found_out_block_by_block():
    parts = PieceMap(lambda owner: True)
    parts.begin(STARTS[0], "a")
    for number in range(20):
        assert parts.tail == STARTS[number]
        assert parts.take("a", set()) == STARTS[number]
        assert parts.take("a", set()) is None
        assert put(parts, part_of(number)) == part_of(number)


def test_another_content_waits_for_the_one_that_is_brought(parts):
    parts.take("a", set())
    assert not parts.begin(OTHERS[0], "b")
    parts.let_go("a")
    assert parts.begin(OTHERS[0], "b")
    assert not parts.tracks(STARTS[0])


@pytest.mark.parametrize(
    "starts", [[STARTS[0]], [STARTS[1], STARTS[1]], [BlockHash(ZERO_HASH)]], ids=["back", "twice", "behind the end"]
)
def test_a_list_that_no_chain_can_have(starts):
    parts = PieceMap(lambda owner: True)
    parts.begin(STARTS[0], "a")
    with pytest.raises(RemoteProtocolError):
        parts.learn(STARTS[0], starts, "teller")


def test_a_list_that_comes_late_says_what_is_new():
    parts = PieceMap(lambda owner: True)
    parts.begin(STARTS[0], "a")
    put(parts, part_of(0))
    parts.learn(STARTS[0], STARTS[1:4], "a")
    parts.learn(STARTS[0], STARTS[1:4], "a")
    parts.learn(STARTS[1], STARTS[2:4], "a")
    assert parts.tail == STARTS[3]
    parts.learn(OTHERS[0], OTHERS[1:4], "b")
    assert parts.tail == STARTS[3]


class Teller:
    """Whoever has told of a chain."""


def test_who_has_made_up_a_list_is_found_out_and_nobody_else():
    honest, liar = Teller(), Teller()
    parts = PieceMap(lambda owner: True)
    parts.begin(STARTS[0], honest)
    parts.learn(STARTS[0], STARTS[1:3], honest)
    parts.learn(STARTS[2], [*STARTS[3:5], *OTHERS[::PART_BLOCKS][5:8]], liar)
    put(parts, part_of(5, OTHER))
    for number in (4, 3, 2):
        put(parts, part_of(number))
    assert not parts.is_liar(liar), "it is not known yet which of both is wrong"
    log = put(parts, part_of(0)) + put(parts, part_of(1))
    assert parts.is_liar(liar) and not parts.is_liar(honest)
    assert not any(map(parts.holds, OTHERS)) and not any(map(parts.tracks, OTHERS))
    assert given_to(log, parts) == CHAIN[: 5 * PART_BLOCKS]
    assert put(parts, part_of(5)) == part_of(5), "it goes on without the list"


def test_a_made_up_part_that_leads_into_the_chain_does_no_harm():
    """Anybody can make a block that names a block of another's."""
    honest, liar = Teller(), Teller()
    junk = [b"junk"]
    following = STARTS[3]
    for number in reversed(range(PART_BLOCKS)):
        junk.append(following + b"junk %d" % number)
        following = BlockHash(sha224(junk[-1]))
    junk = junk[:0:-1]
    parts = PieceMap(lambda owner: True)
    parts.begin(STARTS[0], honest)
    parts.learn(STARTS[0], [following], liar)
    put(parts, junk[:-1])
    parts.learn(following, STARTS[2:5], honest)
    put(parts, junk[-1:])
    log = put(parts, part_of(0))
    assert parts.is_liar(liar) and not parts.is_liar(honest)
    for number in range(1, 20):
        log += put(parts, part_of(number))
    assert log == CHAIN


@settings(max_examples=50)
@given(st.data())
def test_the_log_gets_the_chain_whatever_is_told_and_whatever_comes_when(data):
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    tellers = [Teller() for _ in range(3)]
    honest = tellers[0]
    parts = PieceMap(lambda owner: rng.random() < 0.9)
    parts.begin(STARTS[0], honest)
    log = []
    world = dict(zip(HASHES + OTHERS, CHAIN + OTHER, strict=True))
    for _ in range(5000):
        if len(log) == len(CHAIN):
            break
        dice = rng.random()
        tail = parts.tail
        if dice < 0.1 and tail is not None:
            if rng.random() < 0.5 and tail in HASHES:
                index = HASHES.index(tail)
                parts.learn(tail, HASHES[index + PART_BLOCKS :: PART_BLOCKS][: rng.randrange(6)], honest)
            else:
                made_up = list(dict.fromkeys(rng.choice(HASHES + OTHERS) for _ in range(3)))
                if tail not in made_up:
                    parts.learn(tail, made_up, rng.choice(tellers[1:]))
        elif dice < 0.2:
            given_to(log, parts)
        elif (request := parts.take(owner := rng.randrange(4), set())) is not None:
            hash = request
            for _ in range(rng.randrange(1, PART_BLOCKS + 1)):
                block = world.get(hash)
                if block is None:
                    break
                if parts.tracks(hash) and parts.put(hash, block):
                    log.append(block)
                hash = BlockHash(block[:28])
            parts.let_go(owner, request)
        assert len(parts._held) <= (WINDOW + 1) * PART_BLOCKS
        assert log == CHAIN[: len(log)]
    assert log == CHAIN
    assert not parts.is_liar(honest)
    assert not parts._held


def some_nodes(have, count=WINDOW * PART_BLOCKS * 3, size=256):
    """Nodes that all know a large content, and have so many blocks of it."""
    writer = Writer()
    writer.write((b"large",), random_bytes(count * size), size)
    nodes = []
    for number in have:
        log = MemoryLog(ROOT.hash)
        log.add(writer.entries, writer.blocks[:number])
        nodes.append(Node(log))
    return writer, nodes


def move(links):
    """Let several sessions go on, each with one chunk at a time; returns whether any did."""
    went_on = [link.look() for link in links if not link.over]
    return any(went_on)


def test_a_content_comes_from_several_peers_at_once_and_nothing_twice():
    writer, (one, two, three, node) = some_nodes([None, None, None, 0])
    links = [Link(one, node, chunk=3000)]
    while not node.claims.parts.wanted:
        assert move(links)
    links += [Link(two, node, chunk=3000), Link(three, node, chunk=3000)]
    while move(links):
        pass
    assert node.log.root_hash() == one.log.root_hash()
    sent = [link.left.counters.blocks_sent for link in links]
    assert sum(sent) == len(writer.blocks), "nothing twice"
    assert min(sent) > len(writer.blocks) // 5
    assert all(link.left.result.reason is Reason.COMPLETE for link in links)


@pytest.mark.parametrize("role", [0, 1])
def test_whoever_opened_the_sessions(role):
    writer, (one, two, node) = some_nodes([None, None, 0])
    pairs = [(one, node), (two, node)]
    links = []
    for pair in pairs:
        links.append(Link(*(pair if role else pair[::-1]), chunk=3000))
        while not node.claims.parts.wanted:
            assert move(links)
    while move(links):
        pass
    assert node.log.root_hash() == one.log.root_hash()
    assert sum(node.blocks_sent for link in links for node in (link.left.counters, link.right.counters)) == len(
        writer.blocks
    )


def test_a_content_of_one_part_costs_what_it_did():
    _, (one, node) = some_nodes([None, 0], count=PART_BLOCKS)
    link = Link(one, node)
    link.run()
    assert b"CHAIN" not in link.sent[link.left] + link.sent[link.right]
    assert link.sent[link.right].count(b"BLOCK_REQ") == 1


def test_a_list_says_where_the_chain_goes_on():
    writer, (one,) = some_nodes([None], count=(MAX_MARKS + 5) * PART_BLOCKS, size=1)
    hashes = [BlockHash(sha224(block)) for block in writer.blocks]
    core = SyncProtocol(one.log, Role.RESPONDER, claims=one.claims)
    core.receive_data(encode(Hash(VERSION, ROOT.hash, Digest(one.log.root_hash()[::-1], 1), 0)))
    for hash in (hashes[0], hashes[7], hashes[-3], BlockHash(sha224(b"unknown"))):
        core.receive_data(encode(ChainReq(hash)))
    lines = []
    for _ in range(1000):
        work(core)
        lines += core.data_to_send(65536).split(b"\n")
    told = [parse(line).hashes for line in lines if line.startswith(b"CHAIN ")]
    assert told == [
        tuple(hashes[PART_BLOCKS::PART_BLOCKS][:MAX_MARKS]),
        tuple(hashes[7 + PART_BLOCKS :: PART_BLOCKS][:MAX_MARKS]),
    ]
    assert lines.count(b"EOF") == 4


def answer(core, *messages):
    for message in messages:
        core.receive_data(encode(message))
    while core.wants_work:
        work(core)
    return core.data_to_send(65536)


def blocks_from(blocks):
    return [Blocks(tuple(some)) for some in itertools.zip_longest(*[iter(blocks)] * 8) if None not in some]


def test_more_than_was_asked_for_breaks_a_rule():
    writer, (node,) = some_nodes([0])
    core, _ = greeted(node)
    answer(core, *blocks_from(writer.blocks[: PART_BLOCKS + 8]))
    assert core.result.reason is Reason.RUBBISH


@pytest.mark.parametrize("line", [Chain((BlockHash(sha224(b"a")),)), None])
def test_a_list_that_was_not_asked_for_breaks_a_rule(line):
    _, (node,) = some_nodes([0])
    core, _ = greeted(node)
    answer(core, line or Blocks((b"x" * 40,)))
    assert core.result.reason is Reason.RUBBISH


@pytest.mark.parametrize("silent", [True, False])
def test_a_peer_that_makes_up_a_list_loses_its_turn_and_costs_nothing_else(silent):
    writer, (one, node) = some_nodes([None, 0])
    core, sent = greeted(node)
    first = BlockReq(BlockHash(sha224(writer.blocks[0])))
    assert encode(first) in sent
    sent = answer(core, *blocks_from(writer.blocks[:PART_BLOCKS]), Eof())
    following = BlockHash(sha224(writer.blocks[PART_BLOCKS]))
    assert encode(ChainReq(following)) + encode(BlockReq(following)) in sent
    sent = answer(core, Chain(tuple(OTHERS[::PART_BLOCKS])), Eof())
    assert encode(BlockReq(OTHERS[0])) in sent
    if silent:
        node.claims.parts.let_go(core._receiver)
        link = Link(one, node)
        link.run()
    else:
        answer(core, *blocks_from(writer.blocks[PART_BLOCKS : 2 * PART_BLOCKS]), Eof(), *blocks_from(OTHER[:8]))
    core.tick(1)
    assert core.result.reason is Reason.RUBBISH and core.result.misbehaved
    link = Link(one, node)
    link.run()
    assert node.log.root_hash() == one.log.root_hash()
    assert link.right.result.reason is Reason.COMPLETE


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4), st.sampled_from([700, 5000, 65536]))
def test_any_sessions_cut_anywhere(seed, count, chunk):
    rng = random.Random(seed)
    blocks = PART_BLOCKS * 9
    _, nodes = some_nodes([None, *(rng.choice([0, blocks, rng.randrange(blocks)]) for _ in range(count))], blocks, 40)
    links = []
    now = 0.0
    while links or any(node.log.missing_blocks(1) for node in nodes):
        assert now < 5000, "it ends"
        if len(links) < 2 * count and rng.random() < 0.2:
            links.append(Link(*rng.sample(nodes, 2), chunk=chunk))
        if links:
            link = rng.choice(links)
            link.look()
            if rng.random() < 0.01:
                link.cut()
            if link.left.result or link.right.result:
                for core in (link.left, link.right):
                    assert core.result is None or not core.result.misbehaved, core.result
                link.cut()
                links.remove(link)
        now += 0.05
        for link in links:
            link.tick(now)
    assert len({node.log.root_hash() for node in nodes}) == 1
    assert all(len(node.log._blocks) == blocks for node in nodes)


def test_the_window_is_all_that_is_held(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 3)
    _, (one, node) = some_nodes([None, 0])
    parts = node.claims.parts
    parts.begin(BlockHash(node.log.missing_blocks(1)[0]), "slow")
    assert node.claims.take_part("slow", set())
    link = Link(one, node)
    most = 0
    while link.look():
        most = max(most, len(parts._held))
    assert 0 < most <= 4 * PART_BLOCKS


def test_two_sessions_with_one_peer_do_not_both_ask(parts):
    assert parts.take("a", set(), "peer") and not parts.asks("other")
    assert parts.take("b", set(), "peer") is None
    assert parts.take("c", set(), "other")
    parts.let_go("a")
    assert parts.take("b", set(), "peer") is None, "the requests of the first one will be answered"
    parts.leave("a")
    assert parts.take("b", set(), "peer")
    parts.ended("b")
    assert parts.take("a", set(), "peer")


def test_a_node_finds_other_peers_by_itself():
    async def main():
        size = 24_000_000
        writer = Writer()
        writer.write((b"large",), random_bytes(size))
        logs = [writer.log(), writer.log(), writer.log(), MemoryLog(ROOT.hash)]
        logs[-1].add(writer.entries, [])
        peers = []
        services = [
            Syncing(log, peers, rng=random.Random(number), content_pause=0.0001) for number, log in enumerate(logs)
        ]
        async with running(*services):
            peers += [("127.0.0.1", each.port) for each in services]
            services[-1].request(peers[0], "news")
            await until(lambda: logs[-1].root_hash() == logs[0].root_hash())
            sent = [each.traffic.total().bytes_sent for each in services[:-1]]
        assert sum(each > 1_000_000 for each in sent) >= 2
        assert sum(sent) < 1.5 * size * 4 / 3

    run(main())
