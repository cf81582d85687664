"""Answers to the peer's requests: lines made lazily from the log, when the transport can take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from basefs.log.blocks import LISTED, places
from basefs.log.entries import encoded_of, is_gossip_key, needs_of
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash
from basefs.log.interface import LogState
from basefs.path import Path
from basefs.sync.session.compare import EMPTY, Differences, Indexes, MissingSubtrees, Subtree, compare
from basefs.sync.session.contents import is_exchanged
from basefs.sync.session.receiver import Receiver
from basefs.sync.session.requests import Wish
from basefs.sync.session.result import SessionCounters
from basefs.sync.wire.codec import encode, encode_bytes
from basefs.sync.wire.limits import (
    ENTRIES_PER_SLICE,
    INLINE_BLOCKS,
    MAX_BLOCKS,
    MAX_DATA_ITEMS,
    MAX_HASHES,
)
from basefs.sync.wire.messages import LATER, PAUSE, WHOLE, BlockReq, EntryReq, Ls, PathReq, Request


def content_of(state: LogState, data: bytes, is_whole: Callable[[BlockHash], bool]) -> Iterator[bytes]:
    """The blocks of an encoded entry's content that are to follow it, each list before what it names.

    All of a small content, as far as this log has it; of a larger one its manifest alone, so that the receiver knows at
    once what to ask for; so too of one whose blocks may be exchanged, unless `is_whole` of the hash of its first block.
    """
    encoded = encoded_of(data)
    if encoded is None:
        return
    known: dict[BlockHash, bytes] = {}

    def read(hash: BlockHash) -> bytes | None:
        return known.get(hash)

    for place in places(encoded.place, read):
        block = state.block(place.hash)
        if block is None:
            continue
        if place.role in LISTED:
            known[place.hash] = block
        if place.role not in LISTED and is_exchanged(encoded.length) and not is_whole(encoded.root):
            return
        yield block
        if encoded.length > INLINE_BLOCKS:
            return


def size_of(state: LogState, data: bytes, most: int) -> int | None:
    """Bytes of an encoded entry and its content, or more than `most`; `None` if this log lacks some of it.

    Of a content that may be exchanged, its list is enough.
    """
    encoded = encoded_of(data)
    if encoded is None:
        return len(data)
    if encoded.length > most:
        return len(data) + encoded.length
    for place in places(encoded.place, state.block):
        if is_exchanged(encoded.length) and place.role not in LISTED:
            break
        if not state.has_block(place.hash):
            return None
    return len(data) + encoded.length


def ordered(state: LogState, hashes: Sequence[EntryHash]) -> Iterator[bytes]:
    """The entries with these hashes, as given, except that none comes before what it needs.  Unknown ones are left out.

    Yields `PAUSE` now and then while it looks them up.
    """
    needs: dict[EntryHash, tuple[EntryHash, ...]] = {}
    for count, hash in enumerate(hashes, 1):
        data = state.entry(hash)
        if data is not None:
            needs[hash] = needs_of(data)
        if count % ENTRIES_PER_SLICE == 0:
            yield PAUSE
    done: set[EntryHash] = set()
    for hash in list(needs):
        climb = [hash]
        while climb:
            hash = climb[-1]
            first = [] if hash in done else [need for need in needs[hash] if need in needs and need not in done]
            climb += first
            if first:
                continue
            climb.pop()
            data = None if hash in done else state.entry(hash)
            done.add(hash)
            if data is not None:
                yield data


class BatchEncoder:
    """Turns entries and blocks into ENTRIES and BLOCKS lines, and counts them."""

    def __init__(
        self,
        state: LogState,
        counters: SessionCounters,
        is_whole: Callable[[BlockHash], bool] = lambda root: True,
        is_member: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_whole`: see `content_of`; `is_member`: see `RemotePeer`."""
        self._is_member = is_member
        self._state = state
        self._counters = counters
        self._is_whole = is_whole

    def entries(self, encoded: Iterable[bytes]) -> Iterator[bytes]:
        """Lines with these entries; the blocks of a write follow it, or its manifest if they are many (`content_of`).

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
            if is_gossip_key(data) and not self._is_member():
                # Its session is about to end; the secret behind its revoke must not be faster.
                continue
            batch.append(data)
            size += len(data) * 4 // 3
            for block in content_of(self._state, data, self._is_whole):
                blocks.append(block)
                block_size += len(block)
            if len(batch) == ENTRIES_PER_SLICE or size >= 16 * 1024 or block_size >= INLINE_BLOCKS:
                yield from self._flush(batch, blocks)
                batch, blocks = [], []
                size = block_size = 0
            elif len(batch) % 8 == 0:
                yield PAUSE  # after some 2 ms
        yield from self._flush(batch, blocks)

    def blocks(self, blocks: Iterable[bytes | None]) -> Iterator[bytes]:
        """Lines with these blocks, and `LATER` where `None` comes instead of one."""
        fields: list[bytes] = []
        size = 0
        for block in blocks:
            field = None if block is None else encode_bytes(block)
            # On a link of 32 kbit/s a line of 16 KiB would take 4 s, in which nobody can tell that a content arrives.
            if fields and (field is None or size + len(field) > 4 * 1024 or len(fields) == MAX_DATA_ITEMS):
                yield b" ".join((b"BLOCKS", *fields)) + b"\n"
                fields, size = [], 0
            if field is None:
                yield LATER
                continue
            fields.append(field)
            size += len(field)
            self._counters.blocks_sent += 1
        if fields:
            yield b" ".join((b"BLOCKS", *fields)) + b"\n"

    def _flush(self, batch: list[bytes], blocks: list[bytes]) -> Iterator[bytes]:
        if batch:
            self._counters.entries_sent += len(batch)
            line = b" ".join((b"ENTRIES", *map(encode_bytes, batch))) + b"\n"
            yield b"".join((line, *self.blocks(blocks)))


class Responder:
    """Answers the peer's requests from the log, and derives our own requests from its lists.

    Attributes:
        bytes: of blocks, in the answer to a BLOCK_REQ that is being made, and in those before it that were full.
        takes: whether this log takes what the peer has; if not, nothing is requested but lists.
        gives: whether the peer's log takes what is here; if not, it gets what it requests.
    """

    def __init__(
        self, state: LogState, counters: SessionCounters, receiver: Receiver, is_member: Callable[[], bool]
    ) -> None:
        self._state = state
        self._receiver = receiver
        # The peer gets blocks that neighbours exchange from these, or asks for them.
        self._encoder = BatchEncoder(state, counters, lambda root: not receiver.is_exchanged(root), is_member)
        self._indexes = Indexes(state)
        self._whole: set[Path] = set()
        #: Whether other sessions of this node ask before this one.
        self._waits = False
        self.bytes = 0
        self.takes = self.gives = True
        #: Whether the last such answer was as long as one may be, so that another one is likely to follow.
        self._goes_on = False
        #: Whether the peer has got a block in such an answer.
        self._has_begun = False

    def new_round(self) -> None:
        """Look at the log anew."""
        self._indexes.clear()
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
            case BlockReq(hashes):
                missing_blocks = self._receiver.still_missing(wish)
                if missing_blocks is not None:
                    yield encode(missing_blocks)
            case _:
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
        """See `Receiver.turn`.  A session that had to wait looks at the log anew, for others have been fetching."""
        may = self._receiver.turn(done)
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
                return self._encoder.entries(entry for path in paths for entry in self._state.walk(path))
            case EntryReq(hashes):
                return self._encoder.entries(ordered(self._state, hashes))
            case BlockReq(hashes):
                return self._encoder.blocks(self._blocks(hashes))

    def _blocks(self, hashes: Sequence[BlockHash]) -> Iterator[bytes | None]:
        """Those of these blocks that are here, or that another session is bringing; `None` while it is.

        Not before the peer has something of it: two nodes that lack the same would wait for each other.
        """
        self.bytes = self.bytes if self._goes_on else 0
        self._goes_on = False
        try:
            for hash in hashes:
                block = self._state.block(hash)
                while block is None and self._has_begun and self._receiver.comes_elsewhere(hash):
                    yield None
                    block = self._state.block(hash)
                if block is not None:
                    self._has_begun = True
                    self.bytes += len(block)
                    yield block
            self._goes_on = len(hashes) == MAX_BLOCKS
        finally:
            self.bytes = self.bytes if self._goes_on else 0

    def _settle(self, theirs: Ls, ask: Callable[[Sequence[Wish]], None]) -> Iterator[bytes]:
        index = yield from self._indexes.open(theirs.path)
        plan = compare(theirs, index)
        # Requests go out before our data: each direction of the connection has work at once, and the answers to them
        # cannot depend on the data, which we have already.
        ask(self._wishes(theirs.path, plan) if self.takes else plan.look)
        if not self.gives:
            return
        yield from self._encoder.entries(ordered(self._state, plan.send_entries))
        yield from self._encoder.entries(entry for path in plan.send_paths for entry in self._state.walk(path))

    def _wishes(self, here: Path, plan: Differences) -> list[Wish]:
        """Own entries first: what is below may depend on them."""
        wishes: list[Wish] = []
        missing = [hash for hash in plan.ask_entries if self._state.entry(hash) is None]
        wishes += [EntryReq(tuple(missing[i : i + MAX_HASHES])) for i in range(0, len(missing), MAX_HASHES)]
        if plan.ask_children:
            wishes.append(MissingSubtrees(here, plan.ask_children))
        # Perhaps the parent of sub-paths that cannot be named: once is enough, whatever part they were found in.
        if plan.ask_whole and here not in self._whole:
            if len(self._whole) < 256:
                self._whole.add(here)
            wishes.append(PathReq(here))
        wishes += plan.look
        return wishes
