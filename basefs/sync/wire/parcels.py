"""Entries and blocks, packed into lines as they are asked for, never all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from basefs.log.entries import Action
from basefs.log.hashes import HASH_SIZE, ZERO_HASH, BlockHash, EntryHash
from basefs.log.interface import LogState
from basefs.sync.session.result import Counters
from basefs.sync.wire.fields import encode_bytes
from basefs.sync.wire.limits import BLOCKS_LINE, ENTRIES_LINE, ENTRIES_PER_SLICE, INLINE_BLOCKS
from basefs.sync.wire.messages import LATER, PAUSE

#: Entries that are looked up, with their blocks, without a pause: some 2 ms.
_LOOKED_UP = 8


def next_block(block: bytes) -> BlockHash:
    """The hash of the block that follows, `ZERO_HASH` at the end of a chain."""
    return BlockHash(block[:HASH_SIZE])


def chain(state: LogState, first: BlockHash) -> Iterator[bytes]:
    """The blocks from `first` to the end of the chain, or as far as this log has them."""
    hash = first
    while hash != ZERO_HASH:
        block = state.block(hash)
        if block is None:
            return
        yield block
        hash = next_block(block)


def content_of(data: bytes) -> BlockHash:
    """The first block of an encoded entry of a log; `ZERO_HASH` if it is no write or the file is empty."""
    # The places are those of docs/formats.md; decoding every entry costs 10 us.
    content = 36 + data[34]
    if data[33] != Action.WRITE or data[content - 1] != HASH_SIZE:
        return BlockHash(ZERO_HASH)
    return BlockHash(data[content : content + HASH_SIZE])


def size_of(state: LogState, data: bytes, most: int) -> int | None:
    """Bytes of an encoded entry and its content, or of a part of it beyond `most`; `None` if this log lacks some."""
    size, last = len(data), content_of(data)
    for block in chain(state, last):
        size += len(block)
        last = next_block(block)
        if size > most:
            return size
    return size if last == ZERO_HASH else None


def parent_of(data: bytes) -> EntryHash:
    """The parent of an encoded entry of a log."""
    return EntryHash(data[1 : 1 + HASH_SIZE])


def first_block(state: LogState, entry: EntryHash) -> BlockHash:
    """Where the content of a write begins; `ZERO_HASH` if it is empty, no write, or not in this log."""
    data = state.entry(entry)
    return content_of(data) if data is not None else BlockHash(ZERO_HASH)


def block_after(state: LogState, entry: EntryHash, last: BlockHash) -> BlockHash:
    """The block that follows `last` in the content of `entry`; a `last` of zero: the first.

    `ZERO_HASH` if there is none, or this log cannot tell.
    """
    if last == ZERO_HASH:
        return first_block(state, entry)
    block = state.block(last)
    return next_block(block) if block is not None else BlockHash(ZERO_HASH)


def ordered(state: LogState, hashes: Sequence[EntryHash]) -> Iterator[bytes]:
    """The entries with these hashes, as given, except that none comes before its parent.  Unknown ones are left out.

    Yields `PAUSE` now and then while it looks up the parents.
    """
    parents: dict[EntryHash, EntryHash] = {}
    for count, hash in enumerate(hashes, 1):
        data = state.entry(hash)
        if data is not None:
            parents[hash] = parent_of(data)
        if count % ENTRIES_PER_SLICE == 0:
            yield PAUSE
    done: set[EntryHash] = set()
    for hash in list(parents):
        climb: list[EntryHash] = []
        while hash in parents and hash not in done:
            climb.append(hash)
            done.add(hash)
            hash = parents[hash]
        for found in reversed(climb):
            data = state.entry(found)
            if data is not None:
                yield data


class Packer:
    """Turns entries and blocks into ENTRIES and BLOCKS lines, and counts them."""

    def __init__(self, state: LogState, counters: Counters) -> None:
        self._state = state
        self._counters = counters

    def entries(self, encoded: Iterable[bytes]) -> Iterator[bytes]:
        """Lines with these entries; the blocks of a write follow it, up to `INLINE_BLOCKS` of them.

        An item is a line with entries and those with their blocks: nothing else goes between them, so that whoever
        receives them gives them to the log together.
        """
        batch: list[bytes] = []
        blocks: list[bytes] = []
        size = block_size = 0
        for data in encoded:
            if data == PAUSE:
                yield PAUSE
                continue
            batch.append(data)
            size += len(data) * 4 // 3
            inline = 0
            for block in chain(self._state, content_of(data)):
                inline += len(block) - HASH_SIZE
                if inline > INLINE_BLOCKS:
                    break
                blocks.append(block)
                block_size += len(block)
            if len(batch) == ENTRIES_PER_SLICE or size >= ENTRIES_LINE or block_size >= INLINE_BLOCKS:
                yield from self._flush(batch, blocks)
                batch, blocks = [], []
                size = block_size = 0
            elif len(batch) % _LOOKED_UP == 0:
                yield PAUSE
        yield from self._flush(batch, blocks)

    def blocks(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Lines with these blocks, and `LATER` where that comes instead of one."""
        fields = [b"BLOCKS"]
        size = 0
        for block in blocks:
            if block == LATER:
                if size:
                    yield b" ".join(fields) + b"\n"
                    fields = [b"BLOCKS"]
                    size = 0
                yield LATER
                continue
            field = encode_bytes(block)
            if size and size + len(field) > BLOCKS_LINE:
                yield b" ".join(fields) + b"\n"
                fields = [b"BLOCKS"]
                size = 0
            fields.append(field)
            size += len(field)
            self._counters.blocks_sent += 1
        if size:
            yield b" ".join(fields) + b"\n"

    def _flush(self, batch: list[bytes], blocks: list[bytes]) -> Iterator[bytes]:
        if batch:
            self._counters.entries_sent += len(batch)
            line = b" ".join((b"ENTRIES", *map(encode_bytes, batch))) + b"\n"
            yield b"".join((line, *self.blocks(blocks)))
