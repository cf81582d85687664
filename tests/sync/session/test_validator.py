"""What comes in answer to a BLOCK_REQ."""

from __future__ import annotations

import pytest

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import BlockHash, sha224
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.receiver import ResponseValidator
from basefs.sync.wire.limits import MAX_REPEATED
from basefs.sync.wire.messages import BlockReq
from tests.sync.helpers import blocks_of, random_bytes

CHAIN = blocks_of(random_bytes(5000), 1000)
FIRST = BlockReq(BlockHash(sha224(CHAIN[0])))


def test_a_chain_may_come_on_any_lines():
    stream = ResponseValidator(RequestTable())
    stream.check(FIRST, CHAIN[:2])
    stream.check(FIRST, CHAIN[2:3])
    stream.check(FIRST, CHAIN[3:])


def test_each_request_begins_anew():
    stream = ResponseValidator(RequestTable())
    stream.check(FIRST, CHAIN[:2])
    stream.check(BlockReq(BlockHash(sha224(CHAIN[3]))), CHAIN[3:])
    with pytest.raises(RemoteProtocolError):
        ResponseValidator(RequestTable()).check(FIRST, CHAIN[3:])


@pytest.mark.parametrize("blocks", [CHAIN[1:], CHAIN[:1] * 2, [CHAIN[0], CHAIN[2]], [*CHAIN, CHAIN[0]], [bytes(40)]])
def test_anything_else_is_refused(blocks):
    with pytest.raises(RemoteProtocolError):
        ResponseValidator(RequestTable()).check(FIRST, blocks)


def test_what_others_bring_while_it_waits_makes_it_late():
    claims = RequestTable()
    stream, other = ResponseValidator(claims), ResponseValidator(claims)
    other.came(FIRST.hash, MAX_REPEATED + 1)
    assert not stream.is_late
    stream.waits()
    other.came(FIRST.hash, MAX_REPEATED)
    assert not stream.is_late
    stream.waits()
    other.came(FIRST.hash, 1)
    assert stream.is_late
    stream.gained()
    assert not stream.is_late


def test_what_repeats_itself_is_late():
    stream = ResponseValidator(RequestTable())
    stream.came(FIRST.hash, MAX_REPEATED)
    assert not stream.is_late
    stream.came(FIRST.hash, 1)
    assert stream.is_late
    stream.gained()
    assert not stream.is_late
