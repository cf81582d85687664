"""Answers to the peer's requests: lines made lazily from the log, when the transport can take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from basefs.log.codecs import chain_limit
from basefs.log.entries import Entry, blocks_of, parent_of
from basefs.log.hashes import HASH_SIZE, ZERO_HASH, BlockHash, EntryHash
from basefs.log.interface import LogState
from basefs.path import Path
from basefs.sync.session.compare import EMPTY, Differences, Indexes, MissingSubtrees, Subtree, compare
from basefs.sync.session.receiver import Receiver
from basefs.sync.session.requests import Wish
from basefs.sync.session.result import SessionCounters
from basefs.sync.wire.codec import encode, encode_bytes
from basefs.sync.wire.limits import (
    BLOCKS_LINE,
    ENTRIES_LINE,
    ENTRIES_PER_SLICE,
    INLINE_BLOCKS,
    MAX_HASHES,
    MAX_MARKS,
    PART_BLOCKS,
)
from basefs.sync.wire.messages import LATER, PAUSE, WHOLE, BlockReq, Chain, ChainReq, EntryReq, Ls, PathReq, Request

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


def content_from(state: LogState, data: bytes, first: BlockHash) -> Iterator[bytes]:
    """The blocks of an encoded entry's content from one on, as far as this log has them.

    Of a chain that is longer than the entry allows the first ones only: nobody takes the others for its sake.
    """
    room = chain_limit(1)
    is_known = False
    for block in chain(state, first):
        yield block
        room -= len(block) - HASH_SIZE
        if room <= 0 and not is_known:
            # Small contents need not be decoded.
            is_known = True
            room += chain_limit(Entry.decode(data).size) - chain_limit(1)
        if room <= 0:
            return


def content_of(data: bytes) -> BlockHash:
    """The first block of an encoded entry of a log; `ZERO_HASH` if it is no write or the file is empty."""
    # Decoding every entry costs 10 us.
    return BlockHash(blocks_of(data) or ZERO_HASH)


def size_of(state: LogState, data: bytes, most: int) -> int | None:
    """Bytes of an encoded entry and its content, or of a part of it beyond `most`; `None` if this log lacks some."""
    size, last = len(data), content_of(data)
    for block in chain(state, last):
        size += len(block)
        last = next_block(block)
        if size > most:
            return size
    return size if last == ZERO_HASH else None


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


class BatchEncoder:
    """Turns entries and blocks into ENTRIES and BLOCKS lines, and counts them."""

    def __init__(self, state: LogState, counters: SessionCounters) -> None:
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
            for block in content_from(self._state, data, content_of(data)):
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


#: Chains streamed in a round that are remembered, so that none is streamed twice for one stalled file.
_MAX_STREAMED = 4096

#: Parents of such paths that are remembered, so that each is asked for once.
_MAX_WHOLE = 256


class Responder:
    """Responder the peer's requests from the log, and derives our own requests from its lists.

    Attributes:
        bytes: of blocks, in the answer to a BLOCK_REQ that is being made, and in those that it goes on from.
        takes: whether this log takes what the peer has; if not, nothing is requested but lists.
        gives: whether the peer's log takes what is here; if not, it gets what it requests.
    """

    def __init__(self, state: LogState, counters: SessionCounters, intake: Receiver) -> None:
        self._state = state
        self._intake = intake
        self._packer = BatchEncoder(state, counters)
        self._indexes = Indexes(state)
        self._streamed: set[BlockHash] = set()
        self._whole: set[Path] = set()
        #: Whether other sessions of this node ask before this one.
        self._waits = False
        self.bytes = 0
        self.takes = self.gives = True
        #: Whether the last such answer did not reach the end of a chain, and what follows it.
        self._goes_on = False
        self._following: BlockHash | None = None

    def new_round(self) -> None:
        """Look at the log anew."""
        self._indexes.clear()
        self._streamed.clear()
        self._whole.clear()

    def write(self, wish: Wish) -> Iterator[bytes | Subtree]:
        """The line of a request of ours, after any number of `PAUSE`s; no line if it has become superfluous.

        Of what has come in part, a `Subtree` before it.
        """
        match wish:
            case Subtree():
                yield from self._write_list(wish)
            case MissingSubtrees():
                yield from self._write_missing(wish)
            case PathReq(path) if path not in self._whole and self._state.path_hash(path) != ZERO_HASH:
                yield from self._write_list(Subtree(path, WHOLE))
            case EntryReq(hashes):
                missing = tuple(hash for hash in hashes if self._state.entry(hash) is None)
                if missing:
                    yield encode(EntryReq(missing))
            case _:
                if not isinstance(wish, BlockReq) or self._state.block(wish.hash) is None:
                    yield encode(wish)

    def _write_list(self, wish: Subtree) -> Iterator[bytes]:
        if wish.part == WHOLE and wish.theirs == self._state.path_hash(wish.path):
            return  # several sessions may have found the same difference
        index = (yield from self._indexes.open(wish.path)) or EMPTY
        if wish.part == WHOLE or wish.theirs != index.value(wish.part):
            yield encode(index.ls(wish.path, wish.part))

    def _write_missing(self, wish: MissingSubtrees) -> Iterator[bytes | Subtree]:
        # Another session may have brought something of them meanwhile.
        here = self._state.child_hashes(wish.path, list(wish.theirs))
        names = []
        for name, value in wish.theirs.items():
            ours = here.get(name, ZERO_HASH)
            if ours == ZERO_HASH:
                names.append(name)
            elif ours != value:
                yield Subtree((*wish.path, name), WHOLE, value)
        if names:
            yield encode(PathReq(wish.path, tuple(names)))

    def turn(self, done: bool) -> bool:
        """See `Receiver.turn`.  Who had to wait looks at the log anew, for others have been fetching."""
        may = self._intake.turn(done)
        if not done:
            if may and self._waits:
                self._indexes.clear()
            self._waits = not may
        return may

    def to(self, request: Request, ask: Callable[[Sequence[Wish]], None]) -> Iterator[bytes]:
        """The lines that answer a request, without EOF.  `ask` takes the requests that it leads to."""
        match request:
            case Ls():
                return self._settle(request, ask)
            case PathReq(path, names):
                paths = [(*path, name) for name in names] or [path]
                return self._packer.entries(entry for path in paths for entry in self._state.walk(path))
            case EntryReq(hashes):
                return self._packer.entries(ordered(self._state, hashes))
            case BlockReq(hash):
                return self._stream(hash, self._follow(hash))
            case ChainReq(hash):
                return self._marks(hash)

    def _stream(self, first: BlockHash, blocks: Iterator[bytes]) -> Iterator[bytes]:
        if len(self._streamed) < _MAX_STREAMED:
            self._streamed.add(first)
        return self._packer.blocks(blocks)

    def _follow(self, hash: BlockHash) -> Iterator[bytes]:
        """A part of a chain from a block on, for as long as it is here or another session brings it.

        Not before the peer has something of it: two nodes that lack the same would wait for each other.
        """
        has_begun = hash == self._following
        self.bytes = self.bytes if self._goes_on else 0
        self._goes_on = False
        count = 0
        try:
            while hash != ZERO_HASH and count < PART_BLOCKS:
                block = self._state.block(hash)
                if block is not None:
                    self.bytes += len(block)
                    count += 1
                    yield block
                    hash = next_block(block)
                elif (has_begun or count) and self._intake.comes_elsewhere(hash):
                    yield LATER
                else:
                    return
            self._goes_on = hash != ZERO_HASH
        finally:
            self._following = hash if count else self._following
            self.bytes = self.bytes if self._goes_on else 0

    def _marks(self, hash: BlockHash) -> Iterator[bytes]:
        marks: list[BlockHash] = []
        while len(marks) < MAX_MARKS and (mark := self._state.block_behind(hash, PART_BLOCKS)) is not None:
            marks.append(mark)
            hash = mark
            yield PAUSE
        if marks:
            yield encode(Chain(tuple(marks)))

    def _settle(self, theirs: Ls, ask: Callable[[Sequence[Wish]], None]) -> Iterator[bytes]:
        index = yield from self._indexes.open(theirs.path)
        plan = compare(theirs, index)
        # Requests go out before our data: each direction of the connection has work at once, and the answers to them
        # cannot depend on the data, which we have already.
        ask(self._wishes(theirs.path, plan) if self.takes else plan.look)
        if not self.gives:
            return
        yield from self._packer.entries(ordered(self._state, plan.send_entries))
        for entry, their_block in plan.send_blocks:
            yield from self._stream_after(entry, their_block)
        for entry, our_block, their_block in plan.both_stalled:
            if self._ahead(our_block, their_block):
                yield from self._stream_after(entry, their_block)
        yield from self._packer.entries(entry for path in plan.send_paths for entry in self._state.walk(path))

    def _stream_after(self, entry: EntryHash, last: BlockHash) -> Iterator[bytes]:
        first, data = block_after(self._state, entry, last), self._state.entry(entry)
        # The peer may have asked for the rest of its stalled files when the round began.
        done = data is None or first == ZERO_HASH or first in self._streamed
        return iter(()) if data is None or done else self._stream(first, content_from(self._state, data, first))

    def _ahead(self, our_block: BlockHash, their_block: BlockHash) -> bool:
        """Of two parts of one chain, whether ours is the longer: then it contains their last block."""
        return their_block == ZERO_HASH or (our_block != ZERO_HASH and self._state.block(their_block) is not None)

    def _wishes(self, here: Path, plan: Differences) -> list[Wish]:
        """Own entries first: what is below may depend on them."""
        wishes: list[Wish] = []
        missing = [hash for hash in plan.ask_entries if self._state.entry(hash) is None]
        wishes += [EntryReq(tuple(missing[i : i + MAX_HASHES])) for i in range(0, len(missing), MAX_HASHES)]
        stalled = plan.ask_blocks + [
            (entry, ours) for entry, ours, theirs in plan.both_stalled if not self._ahead(ours, theirs)
        ]
        firsts = [block_after(self._state, entry, last) for entry, last in stalled]
        wishes += self._intake.ask_blocks([first for first in firsts if first != ZERO_HASH])
        if plan.ask_children:
            wishes.append(MissingSubtrees(here, plan.ask_children))
        # Perhaps the parent of sub-paths that cannot be named: once is enough, whatever part they were found in.
        if plan.ask_whole and here not in self._whole:
            if len(self._whole) < _MAX_WHOLE:
                self._whole.add(here)
            wishes.append(PathReq(here))
        wishes += plan.look
        return wishes
