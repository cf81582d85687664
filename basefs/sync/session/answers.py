"""What each request is answered with: iterators of lines, made when the transport can take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from basefs.log.hashes import ZERO_HASH, BlockHash
from basefs.log.interface import LogState
from basefs.path import Path
from basefs.sync.session.compare import Missing, Node, Plan, compare
from basefs.sync.session.index import EMPTY, Indexes
from basefs.sync.session.intake import Intake
from basefs.sync.session.outbox import Wish
from basefs.sync.session.result import Counters
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import MAX_HASHES, MAX_MARKS, PART_BLOCKS
from basefs.sync.wire.messages import LATER, PAUSE, WHOLE, BlockReq, Chain, ChainReq, EntryReq, Ls, PathReq, Request
from basefs.sync.wire.parcels import Packer, block_after, chain, next_block, ordered

#: Chains streamed in a round that are remembered, so that none is streamed twice for one stalled file.
_MAX_STREAMED = 4096

#: Parents of such paths that are remembered, so that each is asked for once.
_MAX_WHOLE = 256


class Answers:
    """Answers the peer's requests from the log, and derives our own requests from its lists.

    Attributes:
        bytes: of blocks, in the answer to a BLOCK_REQ that is being made, and in those that it goes on from.
    """

    def __init__(self, state: LogState, counters: Counters, intake: Intake) -> None:
        self._state = state
        self._intake = intake
        self._packer = Packer(state, counters)
        self._indexes = Indexes(state)
        self._streamed: set[BlockHash] = set()
        self._whole: set[Path] = set()
        #: Whether other sessions of this node ask before this one.
        self._waits = False
        self.bytes = 0
        #: Whether the last such answer did not reach the end of a chain, and what follows it.
        self._goes_on = False
        self._following: BlockHash | None = None

    def new_round(self) -> None:
        """Look at the log anew."""
        self._indexes.clear()
        self._streamed.clear()
        self._whole.clear()

    def write(self, wish: Wish) -> Iterator[bytes | Node]:
        """The line of a request of ours, after any number of `PAUSE`s; no line if it has become superfluous.

        Of what has come in part, a `Node` before it.
        """
        if isinstance(wish, Node):
            if wish.part == WHOLE and wish.theirs == self._state.path_hash(wish.path):
                return  # several sessions may have found the same difference
            index = (yield from self._indexes.open(wish.path)) or EMPTY
            if wish.part == WHOLE or wish.theirs != index.value(wish.part):
                yield encode(index.ls(wish.path, wish.part))
        elif isinstance(wish, Missing):
            # Another session may have brought something of them meanwhile.
            here = self._state.child_hashes(wish.path, list(wish.theirs))
            names = []
            for name, value in wish.theirs.items():
                ours = here.get(name, ZERO_HASH)
                if ours == ZERO_HASH:
                    names.append(name)
                elif ours != value:
                    yield Node((*wish.path, name), WHOLE, value)
            if names:
                yield encode(PathReq(wish.path, tuple(names)))
        elif (
            isinstance(wish, PathReq) and wish.path not in self._whole and self._state.path_hash(wish.path) != ZERO_HASH
        ):
            yield from self.write(Node(wish.path, WHOLE))
        elif isinstance(wish, EntryReq):
            missing = tuple(hash for hash in wish.hashes if self._state.entry(hash) is None)
            if missing:
                yield encode(EntryReq(missing))
        elif not isinstance(wish, BlockReq) or self._state.block(wish.hash) is None:
            yield encode(wish)

    def turn(self, done: bool) -> bool:
        """See `Intake.turn`.  Who had to wait looks at the log anew, for others have been fetching."""
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
        ask(self._wishes(theirs.path, plan))
        yield from self._packer.entries(ordered(self._state, plan.send_entries))
        for entry, their_block in plan.send_blocks:
            yield from self._stream_after(block_after(self._state, entry, their_block))
        for entry, our_block, their_block in plan.both_stalled:
            if self._ahead(our_block, their_block):
                yield from self._stream_after(block_after(self._state, entry, their_block))
        yield from self._packer.entries(entry for path in plan.send_paths for entry in self._state.walk(path))

    def _stream_after(self, first: BlockHash) -> Iterator[bytes]:
        # The peer may have asked for the rest of its stalled files when the round began.
        done = first == ZERO_HASH or first in self._streamed
        return iter(()) if done else self._stream(first, chain(self._state, first))

    def _ahead(self, our_block: BlockHash, their_block: BlockHash) -> bool:
        """Of two parts of one chain, whether ours is the longer: then it contains their last block."""
        return their_block == ZERO_HASH or (our_block != ZERO_HASH and self._state.block(their_block) is not None)

    def _wishes(self, here: Path, plan: Plan) -> list[Wish]:
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
            wishes.append(Missing(here, plan.ask_children))
        # Perhaps the parent of sub-paths that cannot be named: once is enough, whatever part they were found in.
        if plan.ask_whole and here not in self._whole:
            if len(self._whole) < _MAX_WHOLE:
                self._whole.add(here)
            wishes.append(PathReq(here))
        wishes += plan.look
        return wishes
