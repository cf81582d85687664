"""What comes in answer to a BLOCK_REQ."""

from __future__ import annotations

import pytest

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import BlockHash, sha224
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.receiver import BlockAnswers
from basefs.sync.wire.limits import MAX_REPEATED
from basefs.sync.wire.messages import BlockReq
from tests.sync.helpers import random_bytes

BLOCKS = [random_bytes(1000, number) for number in range(5)]
ALL = BlockReq(tuple(BlockHash(sha224(block)) for block in BLOCKS))


def test_blocks_may_come_on_any_lines_and_in_any_order():
    answers = BlockAnswers(RequestTable())
    answers.check(ALL, BLOCKS[2:])
    answers.check(ALL, BLOCKS[1:2])
    assert answers.end(ALL) == [ALL.hashes[0]], "the peer does not have it"


def test_each_request_begins_anew():
    answers = BlockAnswers(RequestTable())
    answers.check(ALL, BLOCKS[:2])
    answers.end(ALL)
    again = BlockReq(ALL.hashes[:1])
    answers.check(again, BLOCKS[:1])
    assert answers.end(again) == []


@pytest.mark.parametrize("blocks", [BLOCKS[:1] * 2, [*BLOCKS, BLOCKS[0]], [bytes(40)], [BLOCKS[0] + b"x"]])
def test_anything_else_is_refused(blocks):
    with pytest.raises(RemoteProtocolError):
        BlockAnswers(RequestTable()).check(ALL, blocks)


def test_what_others_bring_while_it_waits_makes_it_late():
    requests = RequestTable()
    answers = BlockAnswers(requests)
    requests.came(ALL.hashes[0], MAX_REPEATED + 1, "other")
    assert not answers.is_late
    answers.waits()
    requests.came(ALL.hashes[0], MAX_REPEATED, "other")
    assert not answers.is_late
    answers.waits()
    requests.came(ALL.hashes[0], 1, "other")
    assert answers.is_late
    answers.gained()
    assert not answers.is_late


def test_what_repeats_itself_is_late():
    answers = BlockAnswers(RequestTable())
    answers.came(MAX_REPEATED)
    assert not answers.is_late
    answers.came(1)
    assert answers.is_late
    answers.gained()
    assert not answers.is_late
