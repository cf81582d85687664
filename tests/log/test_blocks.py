"""Blocks and chains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import InvalidEntry
from basefs.log.blocks import GOSSIP_BLOCK_DATA, MAX_GOSSIP_BLOCKS, SYNC_BLOCK_DATA, Block, block_count, split
from basefs.log.hashes import HASH_SIZE, ZERO_HASH, BlockHash, sha224
from tests.support.helpers import noise

SMALL = GOSSIP_BLOCK_DATA * MAX_GOSSIP_BLOCKS
LENGTHS = [
    0,
    1,
    GOSSIP_BLOCK_DATA,
    GOSSIP_BLOCK_DATA + 1,
    SMALL,
    SMALL + 1,
    3 * SYNC_BLOCK_DATA,
    3 * SYNC_BLOCK_DATA + 1,
]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_chain_is_linked_and_holds_all_bytes(length: int) -> None:
    data = noise(1, length)
    chain = split(data)
    assert b"".join(block.data for block in chain) == data
    assert len(chain) == block_count(length)
    for block, following in zip(chain, [*chain[1:], None][: len(chain)], strict=True):
        assert block.next == (ZERO_HASH if following is None else following.hash)
        assert block.is_last == (following is None)
        assert block.hash == sha224(block.next + block.data)
    limit = GOSSIP_BLOCK_DATA if length <= SMALL else SYNC_BLOCK_DATA
    assert all(len(block.data) == limit for block in chain[:-1])
    assert all(0 < len(block.data) <= limit for block in chain[-1:])


def test_a_small_block_fills_one_event() -> None:
    assert 1 + HASH_SIZE + GOSSIP_BLOCK_DATA == 512


@given(st.binary(min_size=1, max_size=600), st.binary(min_size=HASH_SIZE, max_size=HASH_SIZE))
def test_round_trip(data: bytes, following: bytes) -> None:
    block = Block(BlockHash(following), data)
    assert Block.decode(block.encode()) == block


@pytest.mark.parametrize("size", [1, SYNC_BLOCK_DATA])
def test_accepted_at_the_limit(size: int) -> None:
    raw = ZERO_HASH + b"x" * size
    assert Block.decode(raw).encode() == raw


@pytest.mark.parametrize("size", [-HASH_SIZE, -1, 0, SYNC_BLOCK_DATA + 1])
def test_refused(size: int) -> None:
    with pytest.raises(InvalidEntry):
        Block.decode((ZERO_HASH + b"x" * (SYNC_BLOCK_DATA + 1))[: HASH_SIZE + size])
