"""What is here from some block on, without walking there again and again."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from basefs.log.hashes import ZERO_HASH, BlockHash, sha224
from basefs.log.reaches import Reaches, Run

HASHES = [BlockHash(sha224(b"%d" % number)) for number in range(3000)]


def walked(here: dict[BlockHash, tuple[bytes, int]], hash: BlockHash, most: int) -> Run:
    """The same, step by step."""
    last, blocks, held = BlockHash(ZERO_HASH), 0, 0
    while hash != ZERO_HASH and held < most and hash in here:
        last, (following, size) = hash, here[hash]
        hash, blocks, held = BlockHash(following), blocks + 1, held + size
    return Run(hash, last, blocks, held)


@given(st.integers(0, 2**32))
def test_it_is_what_a_walk_finds(seed: int) -> None:
    """While blocks come in any order, where some chains lead into others."""
    chance = random.Random(seed)
    count = chance.choice((5, 70, 300))
    behind = [HASHES[chance.randrange(n)] if n and chance.random() < 0.05 else ZERO_HASH for n in range(count)]
    chain = {
        HASHES[n]: (bytes(behind[n] if n == 0 or chance.random() < 0.01 else HASHES[n - 1]), chance.randint(1, 9))
        for n in range(count)
    }
    here: dict[BlockHash, tuple[bytes, int]] = {}
    reaches = Reaches(here.get)
    for hash in chance.sample(sorted(chain), count):
        here[hash] = chain[hash]
        for first in chance.sample(HASHES[:count], 3):
            most = chance.choice((1, 50, 10**9))
            found, expected = reaches.of(first, most), walked(here, first, most)
            if most == 10**9 or expected.held < most:
                assert found == expected
            else:
                assert found.held >= most and found == walked(here, first, found.held)


def test_walks_from_each_block_of_a_chain_cost_each_a_few_steps() -> None:
    steps = 0
    chain = {hash: (bytes(following), 1) for hash, following in itertools.pairwise(HASHES)}

    def step(hash: BlockHash) -> tuple[bytes, int] | None:
        nonlocal steps
        steps += 1
        return chain.get(hash)

    reaches = Reaches(step)
    for number, hash in enumerate(HASHES):
        assert reaches.of(hash, 10**9).blocks == len(chain) - number
    assert steps < 70 * len(HASHES)
