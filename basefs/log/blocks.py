"""Blocks: the pieces in which content is stored and sent (layout in `docs/formats.md`, section 5).

A block is bytes, and its hash is the SHA-224 of these.  A write entry names one block: the whole content, or its
manifest, the list of the hashes of its parts.  The signed entry also states the length of the encoded content, from
which follow the size of each block and whether it is a part or a list.  So every block can be verified by itself, from
any peer and in any order, and what is missing is a difference of sets.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from basefs.errors import InvalidEntry
from basefs.log import varint
from basefs.log.hashes import HASH_SIZE, BlockHash, sha224

#: Bytes of a block that travels by gossip: with the tag it fills an event of 512 bytes.
GOSSIP_BLOCK_DATA = 511
#: Bytes of a block that travels by sync.  Larger blocks save hashes and rows, smaller ones save what a cut connection
#: throws away; 32 KiB is 44 KiB in base64, one line of the sync protocol.
SYNC_BLOCK_DATA = 32 * 1024
#: Hashes in a list that travels by gossip, and in any other one.
MAX_GOSSIP_BLOCKS = GOSSIP_BLOCK_DATA // HASH_SIZE
MAX_LISTED = SYNC_BLOCK_DATA // HASH_SIZE
#: Largest content, bytes.  An entry could state 2**48 - 1, and each reader needs space to unpack it.
MAX_CONTENT_BYTES = 16 * 1024 * 1024 * 1024
#: An encoded content has at most the size of the content, a 256th of it and this: more than any codec adds to noise.
_SLACK = 1024


class BlockRole(enum.IntEnum):
    """The meaning of a block for one content; the numbers are in the log."""

    PART = 1  # bytes of a content, alone or in a LIST
    SMALL = 2  # bytes of a content, in a SMALL_LIST
    LIST = 3  # hashes of parts
    SMALL_LIST = 4  # hashes of small parts
    TOP = 5  # hashes of lists


#: The role of the blocks in a list, and of the list of such blocks.
LISTED = {BlockRole.LIST: BlockRole.PART, BlockRole.SMALL_LIST: BlockRole.SMALL, BlockRole.TOP: BlockRole.LIST}
LISTING = {listed: role for role, listed in LISTED.items()}
#: Bytes of a block in a list, but for the last one.
_FULL = {BlockRole.PART: SYNC_BLOCK_DATA, BlockRole.SMALL: GOSSIP_BLOCK_DATA, BlockRole.LIST: MAX_LISTED * HASH_SIZE}
#: Bytes of encoded content that it stands for.
_BELOW = {
    BlockRole.PART: SYNC_BLOCK_DATA,
    BlockRole.SMALL: GOSSIP_BLOCK_DATA,
    BlockRole.LIST: MAX_LISTED * SYNC_BLOCK_DATA,
}


# Not `frozen`, like `Entry`: mypy refuses changes of what is `Final`.
@dataclass(slots=True, unsafe_hash=True)
class Block:
    """One piece of a content, or a list of them.

    Attributes:
        data: 1 to `SYNC_BLOCK_DATA` bytes.
        hash: SHA-224 of these; derived.
    """

    data: Final[bytes]
    hash: Final[BlockHash] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.hash = BlockHash(sha224(self.data))  # type: ignore[misc]  # made once, here

    def encode(self) -> bytes:
        """Its bytes."""
        return self.data

    @classmethod
    def decode(cls, raw: bytes) -> Block:
        """Check the size.  Raises `InvalidEntry`."""
        if not 0 < len(raw) <= SYNC_BLOCK_DATA:
            raise InvalidEntry(f"a block has 1 to {SYNC_BLOCK_DATA} bytes, not {len(raw)}")
        return cls(raw)


class BlockPlace(NamedTuple):
    """A block where a content has one.

    Attributes:
        hash: of the block.
        role: what it is.
        size: its bytes.
        exact: whether it has exactly as many; otherwise up to as many, since it is the last one of a list.
    """

    hash: BlockHash
    role: BlockRole
    size: int
    exact: bool

    def fits(self, size: int) -> bool:
        """Whether a block of `size` bytes can stand here."""
        if self.exact:
            return size == self.size
        return 0 < size <= self.size and (self.role not in LISTED or size % HASH_SIZE == 0)


class Encoded(NamedTuple):
    """An encoded content, as the write entry names it.

    Attributes:
        root: hash of its only block, or of its manifest.
        codec: tag of the codec.
        length: bytes of the encoded content, from 1 on.
    """

    root: BlockHash
    codec: int
    length: int

    def encode(self) -> bytes:
        """The content field of the entry."""
        return self.root + bytes((self.codec,)) + varint.encode(self.length)

    @classmethod
    def decode(cls, data: bytes) -> Encoded:
        """Parse the content field of a write that is not empty.  Raises `InvalidEntry`."""
        if len(data) < HASH_SIZE + 2:
            raise InvalidEntry("a write names its content by a hash, a codec and a length")
        length, end = varint.decode(data, HASH_SIZE + 1, 6)
        if end != len(data) or not length:
            raise InvalidEntry("an encoded content has at least one byte, and nothing follows its length")
        return cls(BlockHash(data[:HASH_SIZE]), data[HASH_SIZE], length)

    @property
    def place(self) -> BlockPlace:
        """Where its root stands."""
        role = root_role(self.length)
        size = self.length if role not in LISTED else HASH_SIZE * _ceil(self.length, _BELOW[LISTED[role]])
        return BlockPlace(self.root, role, size, exact=True)


def most_encoded(size: int) -> int:
    """Bytes that a content of `size` bytes may have when it is encoded.

    Lists of two levels name more than that of the largest content.
    """
    return size + size // 256 + _SLACK


def root_role(length: int) -> BlockRole:
    """The role of the block that the entry of a content of so many encoded bytes names."""
    if GOSSIP_BLOCK_DATA < length <= MAX_GOSSIP_BLOCKS * GOSSIP_BLOCK_DATA:
        return BlockRole.SMALL_LIST
    if length <= SYNC_BLOCK_DATA:
        return BlockRole.PART
    return BlockRole.LIST if length <= MAX_LISTED * SYNC_BLOCK_DATA else BlockRole.TOP


def block_size(length: int) -> int:
    """Bytes of the parts into which an encoded content of so many bytes is cut."""
    return GOSSIP_BLOCK_DATA if length <= MAX_GOSSIP_BLOCKS * GOSSIP_BLOCK_DATA else SYNC_BLOCK_DATA


def block_count(length: int) -> int:
    """How many blocks `length` bytes of encoded content take, lists included."""
    role = root_role(length)
    if role not in LISTED:
        return 1
    parts = _ceil(length, block_size(length))
    return 1 + parts + (_ceil(parts, MAX_LISTED) if role is BlockRole.TOP else 0)


def listed(place: BlockPlace, data: bytes) -> list[BlockPlace]:
    """The blocks in a list that stands at a place; none if it is a part of the content."""
    role = LISTED.get(place.role)
    if role is None:
        return []
    last = len(data) - HASH_SIZE
    return [
        BlockPlace(BlockHash(data[at : at + HASH_SIZE]), role, _FULL[role], exact=at < last)
        for at in range(0, last + 1, HASH_SIZE)
    ]


def places(
    place: BlockPlace,
    read: Callable[[BlockHash], bytes | None],
    walked: set[tuple[BlockHash, BlockRole]] | None = None,
) -> Iterator[BlockPlace]:
    """A place and all below it, each list before what it names.

    Args:
        place: where to begin.
        read: returns the bytes of a block, `None` if it is not here: then nothing below is known.
        walked: gets the lists, by hash and role; none that is in it is walked again.  Without it each is, however often
            it is named: a few lists can name the same ones over and over.
    """
    todo = [place]
    while todo:
        each = todo.pop()
        key = each.hash, each.role
        if walked is not None and key in walked:
            continue
        yield each
        data = read(each.hash) if each.role in LISTED else None
        if data is not None and each.fits(len(data)):
            todo += reversed(listed(each, data))
            if walked is not None:
                walked.add(key)


def length_below(role: BlockRole, count: int, last: int) -> int:
    """Bytes of encoded content in a list of `count` blocks, the last of which stands for `last` bytes."""
    return (count - 1) * _BELOW[LISTED[role]] + last


class Manifest:
    """The lists of a content whose parts are told one after the other, in order.

    Attributes:
        lists: the lists that are full, or that `seal` has ended, each after all that it names.
    """

    def __init__(self, length: int) -> None:
        """`length`: bytes of the encoded content."""
        self.lists: list[Block] = []
        self._role = root_role(length)
        self._hashes = bytearray()
        self._above = bytearray()
        self._only: BlockHash | None = None

    def add(self, part: BlockHash) -> None:
        """Tell the hash of the next part."""
        self._only = part
        if len(self._hashes) == _FULL[BlockRole.LIST]:
            self._end_list()
        self._hashes += part

    def _end_list(self) -> None:
        block = Block(bytes(self._hashes))
        self.lists.append(block)
        self._above += block.hash
        self._hashes.clear()

    def seal(self) -> BlockHash:
        """End the lists; returns the hash of the root."""
        if self._role not in LISTED:
            assert self._only is not None, "a content has a part"
            return self._only
        self._end_list()
        if self._role is BlockRole.TOP:
            self.lists.append(Block(bytes(self._above)))
        return self.lists[-1].hash


def split(data: bytes) -> tuple[BlockHash, list[Block]]:
    """Cut the bytes of an encoded content, at least one; returns the hash of the root, and all blocks, root first."""
    size = block_size(len(data))
    parts = [Block(data[start : start + size]) for start in range(0, len(data), size)]
    manifest = Manifest(len(data))
    for part in parts:
        manifest.add(part.hash)
    root = manifest.seal()
    return root, [*reversed(manifest.lists), *parts]


def _ceil(size: int, unit: int) -> int:
    return -(-size // unit)
