"""Reaches: how far a chain is here from some block on, without walking along it each time.

Entries name any block of a chain as the first one of their content, as many of them as their signers like.  What is
behind a block never changes, so ways that were walked are remembered, and walking all of them costs each block a few
steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from basefs.log.hashes import ZERO_HASH, BlockHash
from basefs.log.remembered import Remembered

#: Blocks of a walk between those from which the way is remembered.
_STRIDE = 64
#: Of these, kept in memory; about 400 bytes each.
_REMEMBERED = 50_000


class Run(NamedTuple):
    """The blocks that are here without a gap, from one on.

    Attributes:
        missing: the hash behind the last of them, `ZERO_HASH` at the end of the chain.
        last: hash of the last of them, `ZERO_HASH` if there is none.
        blocks: how many they are.
        held: bytes of data in them.
    """

    missing: BlockHash
    last: BlockHash
    blocks: int
    held: int


class Reaches:
    """The reaches in one set of blocks, which only grows until `clear`."""

    def __init__(self, step: Callable[[BlockHash], tuple[bytes, int] | None]) -> None:
        """`step`: the next hash of a block, and its bytes of data; `None` if it is not in the set."""
        self._step = step
        self._known: Remembered[BlockHash, Run] = Remembered(_REMEMBERED)

    def clear(self) -> None:
        """Blocks may have vanished."""
        self._known.clear()

    def of(self, first: BlockHash, most: int) -> Run:
        """Walk from a block on, no farther than `most` bytes need; what was remembered may lead farther."""
        hash, last = first, BlockHash(ZERO_HASH)
        blocks = held = steps = 0
        passed: list[tuple[BlockHash, int, int]] = []
        while hash != ZERO_HASH and held < most:
            way = self._known.get(hash)
            if way is not None:
                passed.append((hash, blocks, held))
            else:
                found = self._step(hash)
                if found is None:
                    break
                way = Run(BlockHash(found[0]), hash, 1, found[1])
                if steps % _STRIDE == 0:
                    passed.append((hash, blocks, held))
                steps += 1
            hash, last = way.missing, way.last
            blocks, held = blocks + way.blocks, held + way.held
        for start, before, bytes_before in passed:
            if blocks - before >= _STRIDE:
                self._known.keep(start, Run(hash, last, blocks - before, held - bytes_before))
        return Run(hash, last, blocks, held)
