"""Blocks: the pieces in which content is stored and sent (paper, figure 2; layout in `docs/formats.md`).

A block is `next hash (28 B) + data`; its hash is SHA-224 over both, and the last block's next hash is zero.  So the
hash in a write entry authenticates its first block, and each block the next one: a chain is verified in order as it
arrives from untrusted peers.  The price is that a chain is built from its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from basefs.errors import InvalidEntry
from basefs.log.hashes import HASH_SIZE, ZERO_HASH, BlockHash, sha224

#: Data bytes of a block that travels by gossip: with the tag and the next hash it fills an event of 512 bytes.
GOSSIP_BLOCK_DATA = 483
#: Data bytes of a block that travels by sync.  Larger blocks save hashes and rows, smaller ones save what a cut
#: connection throws away; 32 KiB is 44 KiB in base64, one line of the sync protocol.
SYNC_BLOCK_DATA = 32 * 1024
#: Content of up to this many small blocks is cut for gossip.  Cutting larger content as small would make a 10 MB file
#: 21 000 rows; whether the blocks are then gossiped is MAX_BLOCK_MESSAGES, which may be lower.
MAX_GOSSIP_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of a content.

    Attributes:
        next: hash of the following block, `ZERO_HASH` in the last one.
        data: 1 to `SYNC_BLOCK_DATA` bytes.
        hash: SHA-224 over the encoding; derived.
    """

    next: BlockHash
    data: bytes
    hash: BlockHash = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", BlockHash(sha224(self.next + self.data)))

    @property
    def is_last(self) -> bool:
        """Whether the chain ends here."""
        return self.next == ZERO_HASH

    def encode(self) -> bytes:
        """`next + data`."""
        return self.next + self.data

    @classmethod
    def decode(cls, raw: bytes) -> Block:
        """Parse an encoding.  Raises `InvalidEntry` if it is too short or too long."""
        if not HASH_SIZE < len(raw) <= HASH_SIZE + SYNC_BLOCK_DATA:
            raise InvalidEntry(f"a block has 1 to {SYNC_BLOCK_DATA} bytes of data, not {len(raw) - HASH_SIZE}")
        return cls(BlockHash(raw[:HASH_SIZE]), raw[HASH_SIZE:])


def block_count(size: int) -> int:
    """How many blocks `size` bytes of chain take."""
    data = GOSSIP_BLOCK_DATA if size <= GOSSIP_BLOCK_DATA * MAX_GOSSIP_BLOCKS else SYNC_BLOCK_DATA
    return -(-size // data)


def split(data: bytes) -> list[Block]:
    """Cut a chain's bytes into linked blocks, first block first.  Empty data give no block."""
    size = GOSSIP_BLOCK_DATA if len(data) <= GOSSIP_BLOCK_DATA * MAX_GOSSIP_BLOCKS else SYNC_BLOCK_DATA
    following = BlockHash(ZERO_HASH)
    chain: list[Block] = []
    for start in range((len(data) - 1) // size * size, -1, -size):
        block = Block(following, data[start : start + size])
        chain.append(block)
        following = block.hash
    chain.reverse()
    return chain
