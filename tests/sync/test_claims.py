"""Contents that one session of a node brings are not asked for by the others."""

from __future__ import annotations

from basefs.log.hashes import BlockHash, sha224
from basefs.sync.claims import PATIENCE, Claims
from basefs.sync.limits import Limits
from basefs.sync.protocol import SyncProtocol
from basefs.sync.states import Role

from .helpers import ROOT, MemoryLog, Pair, Writer, random_bytes

BLOCK = BlockHash(sha224(b"block"))


def test_a_claim_holds_while_its_session_moves():
    claims = Claims()
    one, two = object(), object()
    claims.moved(one)
    claims.take(BLOCK, one)
    assert claims.held_by_other(BLOCK, two) and not claims.held_by_other(BLOCK, one)
    claims.tick(PATIENCE)
    assert not claims.held_by_other(BLOCK, two), "nothing has moved"
    claims.moved(one)
    assert claims.held_by_other(BLOCK, two)
    claims.came(BLOCK)
    assert not claims.held_by_other(BLOCK, two)
    claims.take(BLOCK, one)
    claims.ended(one)
    assert not claims.held_by_other(BLOCK, two)


def test_what_one_session_is_bringing_another_one_does_not_ask_for():
    writer = Writer()
    writer.write((b"large",), random_bytes(2_000_000))
    claims = Claims()
    log = MemoryLog(ROOT.hash)
    log.add(writer.entries, writer.blocks[:3])
    pairs = []
    for _ in range(2):
        pair = Pair(writer.log(), log)
        pair.right = SyncProtocol(log, Role.RESPONDER, claims=claims)
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


def test_a_session_that_is_cut_leaves_its_contents_to_the_next():
    writer = Writer()
    writer.write((b"large",), random_bytes(1_000_000))
    claims = Claims()
    log = MemoryLog(ROOT.hash)
    for turns in (6, 8, 1000):
        pair = Pair(writer.log(), log)
        pair.right = SyncProtocol(log, Role.RESPONDER, claims=claims, limits=Limits())
        pair.sent = {pair.left: bytearray(), pair.right: bytearray()}
        for _ in range(turns):
            pair.turn()
        pair.right.receive_eof()
    assert not log.missing_blocks(1)
