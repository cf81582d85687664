"""What arrives, on its way into the log: in batches, parents first, and what to ask for next.  No I/O, no clock.

Invariants:
1. The log is given at most `Limits.batch` entries, with the blocks that follow them, in one call: what has come at once
   is one transaction, as far as nothing stands between that needs the log to have it.
2. Lines are taken in the order in which they came: entries are in the log before their blocks are offered, or come
   with them.
3. A block is asked for at most once in a session, an entry at most once in a round: a peer that does not have it
   cannot make us repeat ourselves, and the session ends.
4. Memory: `orphan_bytes` of entries, `asked` hashes of blocks twice, one batch and one received line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

from basefs.errors import InvalidEntry, RemoteProtocolError
from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE, ZERO_HASH, BlockHash, EntryHash, sha224
from basefs.log.interface import AddResult, LogState
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.result import RemotePeer, SessionCounters
from basefs.sync.wire.limits import BATCH_BYTES, MAX_HASHES, MAX_REPEATED, PART_BLOCKS, Limits
from basefs.sync.wire.messages import BlockReq, ChainReq, EntryReq, ForBlocks

#: Blocks of orphans that are recognized when they come, even where there is no room for them; beyond that, they count
#: as refused.
_MAX_EXPECTED = 65_536


class OrphanBuffer:
    """Entries whose parent is not in the log yet, by parent, with the blocks that followed them on the line."""

    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes
        self._hashes: set[EntryHash] = set()
        self._waiting: dict[EntryHash, list[tuple[Entry, bytes]]] = {}
        self._blocks: dict[BlockHash, bytes] = {}  # of any orphan, since contents may be equal
        self._expected: set[BlockHash] = set()  # blocks that continue the content of an orphan

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def hold(self, entry: Entry, data: bytes) -> None:
        """Keep an entry until its parent comes; drops it if there is no room."""
        if entry.action is Action.WRITE and entry.content and len(self._expected) < _MAX_EXPECTED:
            self._expected.add(BlockHash(entry.content))
        if entry.hash not in self._hashes and self._take(data):
            self._hashes.add(entry.hash)
            self._waiting.setdefault(entry.parent, []).append((entry, data))

    def hold_block(self, block: bytes) -> bool:
        """Keep a block if it belongs to an orphan.  Returns whether it does."""
        hash = BlockHash(sha224(block)) if self._expected else None
        if hash is None or (hash not in self._expected and hash not in self._blocks):
            return False
        self._expected.discard(hash)
        self._expected.add(BlockHash(block[:HASH_SIZE]))
        if hash not in self._blocks and self._take(block):
            self._blocks[hash] = block
        return True

    def release(self, parent: EntryHash) -> list[tuple[bytes, list[bytes]]]:
        """The entries that waited for this parent, and their blocks; the entries are no longer kept."""
        ready = []
        for entry, data in self._waiting.pop(parent, []):
            self._hashes.discard(entry.hash)
            self._room += len(data)
            blocks = []
            following = BlockHash(entry.content)
            while following in self._blocks:
                blocks.append(self._blocks[following])
                following = BlockHash(self._blocks[following][:HASH_SIZE])
            self._expected.discard(following)  # may be on the next line, and is the log's business from now on
            ready.append((data, blocks))
        return ready

    def _take(self, data: bytes) -> bool:
        fits = len(data) <= self._room
        self._room -= len(data) if fits else 0
        return fits

    def parents(self) -> list[EntryHash]:
        """MissingSubtrees parents that are not orphans themselves."""
        return [parent for parent in self._waiting if parent not in self._hashes]


class ResponseValidator:
    """The blocks that come in one session."""

    def __init__(self, claims: RequestTable) -> None:
        self._claims = claims
        self._request: BlockReq | None = None
        self._next = b""
        #: Blocks that have come of the answer.
        self._count = 0
        #: Bytes since a block was new.
        self._repeated = 0
        #: What all sessions had brought when the peer said that this one has to wait.
        self._waits_since: int | None = None

    def check(self, request: BlockReq, blocks: Sequence[bytes]) -> None:
        """Some blocks of an answer, in order.  Raises `RemoteProtocolError` for one that was not asked for."""
        if self._request is not request:
            self._request, self._next, self._count = request, request.hash, 0
        for block in blocks:
            if sha224(block) != self._next:
                raise RemoteProtocolError("a block that is not the next one of the content that was asked for")
            self._next = block[:HASH_SIZE]
        self._count += len(blocks)
        if self._count > PART_BLOCKS:
            raise RemoteProtocolError(f"an answer with more than {PART_BLOCKS} blocks")

    def rest(self, request: BlockReq) -> BlockHash | None:
        """What follows an answer that has ended: `None` if it was all, or all that the peer has."""
        goes_on = self._request is request and self._count == PART_BLOCKS and self._next != ZERO_HASH
        return BlockHash(self._next) if goes_on else None

    def waits(self) -> None:
        """The peer serves others first."""
        if self._waits_since is None:
            self._waits_since = self._claims.bytes

    def came(self, block: BlockHash, size: int) -> None:
        """A block has come."""
        self._claims.came(block, size)
        self._repeated += size

    def gained(self) -> None:
        """Something that came was new."""
        self._repeated = 0
        self._waits_since = None

    @property
    def is_late(self) -> bool:
        """Whether others have brought so much meanwhile that it is better to ask again, for what is not here yet."""
        waited = 0 if self._waits_since is None else self._claims.bytes - self._waits_since
        return max(self._repeated, waited) > MAX_REPEATED


#: Encoded entries, and the blocks that followed them.
Batch: TypeAlias = tuple[list[bytes], list[bytes]]


class Receiver:
    """Entries and blocks that were received and are not in the log yet."""

    def __init__(
        self,
        state: LogState,
        counters: SessionCounters,
        limits: Limits,
        claims: RequestTable | None = None,
        peer: RemotePeer | None = None,
    ) -> None:
        """`claims`: what the sessions of this node expect; `None`: there is no other one.  `peer`: who sends it."""
        self._state = state
        self._claims = RequestTable() if claims is None else claims
        self._counters = counters
        self._limits = limits
        self._batches: deque[Batch] = deque()
        #: What somebody else gives to the log at this moment.
        self._offered: Batch | None = None
        #: What has come and may become more.
        self._gathered: Batch = ([], [])
        self._gathered_bytes = 0
        self._orphans = OrphanBuffer(limits.orphan_bytes)
        self._wanted: dict[BlockHash, None] = {}
        self._asked_entries: set[EntryHash] = set()
        self._stream = ResponseValidator(self._claims)
        self._peer = peer or RemotePeer()
        self._pieces = self._claims.parts
        #: The blocks that the peer was asked for, in pieces or not; of these, those of which it is only said that they
        #: are in a chain, and those that the peer did not have.
        self._asked: set[BlockHash] = set()
        self._told: set[BlockHash] = set()
        self._absent: set[BlockHash] = set()
        #: Requests for pieces that are not answered.
        self._outstanding = 0
        self._asked_chains: set[BlockHash] = set()

    @property
    def pending(self) -> bool:
        """Whether something is to be given to the log; no further line may be read before it has it."""
        return bool(self._batches) or self._offered is not None or self._pieces.is_due(self)

    def new_round(self) -> None:
        """Forget what did not come: it will be found to be missing again."""
        self._orphans = OrphanBuffer(self._limits.orphan_bytes)
        self._wanted.clear()
        self._asked_entries.clear()

    def put_entries(self, encoded: Sequence[bytes]) -> None:
        """Take a line of entries."""
        self._counters.entries_received += len(encoded)
        most = self._limits.batch
        for start in range(0, len(encoded), most):
            part = encoded[start : start + most]
            if len(self._gathered[0]) + len(part) > most:
                self.seal()
            self._gathered[0].extend(part)
            self._gathered_bytes += sum(map(len, part))

    @property
    def gathered(self) -> bool:
        """Whether something waits for more, or for `seal`."""
        return bool(self._gathered[0])

    def seal(self) -> None:
        """What was gathered is a batch: nothing more of it has come, or something else comes."""
        if self._gathered[0]:
            self._batches.append(self._gathered)
            self._gathered = ([], [])
            self._gathered_bytes = 0

    def offer(self) -> Batch:
        """The next batch, for `add` of the log, in whichever thread; `added` must follow."""
        assert self._offered is None, "one batch at a time"
        self._offered = self._batches.popleft() if self._batches else ([], self._pieces.give(self))
        return self._offered

    def added(self, result: AddResult) -> None:
        """What became of the batch that was offered.  Raises `RemoteProtocolError`."""
        assert self._offered is not None, "a batch was offered"
        (batch, blocks), self._offered = self._offered, None
        if not batch:
            # They were counted when they came.
            return self._pieces.given(self, len(blocks))
        if result.missing_parents or self._orphans:
            here = self._hold(batch, set(result.missing_parents))
            # The log cannot take the blocks of orphans.  They are held before anything is released, to go with them.
            orphaned = sum(map(self._orphans.hold_block, blocks))
            self._release(here)
            result = _without_strays(result, orphaned)
        self._account(result, (*batch, *blocks))
        self._want(result.missing_blocks)

    def put_blocks(self, blocks: Sequence[bytes], *, request: object = None, streaming: bool = False) -> None:
        """Take a line of blocks, which answers a `request`.  Raises `RemoteProtocolError`.

        `streaming`: the peer sends all that it has, so what is missing after them is not worth asking for; the same is
        true if it was asked for blocks.
        """
        self._counters.blocks_received += len(blocks)
        if isinstance(request, BlockReq):
            streaming = True
            self._stream.check(request, blocks)
            blocks, held, known = self._sort(blocks, request)
            self._came(held + known)
            if held:
                self._gain(len(held), sum(map(len, held)))
        if self._gathered[0] and not isinstance(request, BlockReq):
            # Those of the entries that have just come.
            self._gathered[1].extend(blocks)
            self._gathered_bytes += sum(map(len, blocks))
            if self._gathered_bytes >= BATCH_BYTES:
                self.seal()
            return
        for orphaned, run in groupby(blocks, self._orphans.hold_block):
            offered = list(run)
            result = self._state.add((), offered, peer=self._peer.party)
            # The log cannot take the block of an orphan yet, unless another entry has the same content.
            self._account(_without_strays(result, len(offered)) if orphaned else result, offered)
            if not streaming:
                self._want(result.missing_blocks)
        self._came(blocks)
        if self._made_up:
            # Not before the log has what it can take: the other sessions count on it.
            raise RemoteProtocolError(self._made_up)

    def _came(self, blocks: Sequence[bytes]) -> None:
        for block in blocks:
            hash = BlockHash(sha224(block))
            self._wanted.pop(hash, None)
            self._stream.came(hash, len(block))

    def missing_blocks(self) -> list[ForBlocks]:
        """What to ask for at the start of a round: chains that earlier sessions or gossip left incomplete."""
        return [*self.ask_blocks(self._state.missing_blocks(self._limits.missing_blocks)), *self._ask_pieces()]

    def ask_blocks(self, hashes: Sequence[BlockHash]) -> list[BlockReq]:
        """Requests for those of these blocks that were not asked for before."""
        requests = []
        for hash in hashes:
            if self._may_ask(hash):
                self._asked.add(hash)
                self._claims.take(hash, self)
                requests.append(BlockReq(hash))
        return requests

    def answered(self, request: object) -> list[ForBlocks]:
        """What to ask for next, when the answer to a request has ended."""
        if not isinstance(request, ForBlocks):
            return self._wanted_blocks()
        wishes: list[ForBlocks] = []
        if isinstance(request, BlockReq):
            self._answer_ended(request)
            following = self._stream.rest(request)
            if following is not None and not self._goes_on(request, following):
                wishes += self.ask_blocks([following])
        return wishes + self._ask_pieces()

    def _wanted_blocks(self) -> list[ForBlocks]:
        """Requests for the rest of the contents that arrived in part."""
        wanted = [hash for hash in self._wanted if self._state.block(hash) is None]
        self._wanted.clear()
        return [*self.ask_blocks(wanted)]

    def wanted_parents(self) -> list[EntryReq]:
        """Requests for missing parents, to be sent when no other answer can bring them any more."""
        missing = [hash for hash in self._orphans.parents() if hash not in self._asked_entries]
        self._asked_entries.update(missing)
        return [EntryReq(tuple(missing[i : i + MAX_HASHES])) for i in range(0, len(missing), MAX_HASHES)]

    def _want(self, hashes: Sequence[BlockHash]) -> None:
        for hash in hashes:
            if len(self._wanted) < self._limits.asked:
                self._wanted[hash] = None

    def turn(self, done: bool) -> bool:
        """Whether it is this session's turn to ask for entries; `done`: it has them."""
        if done:
            self._claims.has_answer(self)
        elif self._claims.may_ask(self):
            self._claims.asks(self)
            return True
        return False

    def comes_elsewhere(self, hash: BlockHash) -> bool:
        """Whether another session is bringing a block, which the peer of this one wants."""
        comes = self._claims.held_by_other(hash, self)
        if comes:
            self._claims.crowd()
        return comes

    def waits(self) -> None:
        """The peer serves others first: what it should bring may be asked for elsewhere."""
        self._claims.waits(self)
        self._stream.waits()

    def superfluous(self, current: object) -> bool:
        """Whether others have brought much of the answer to a request."""
        if not isinstance(current, BlockReq) or not self._stream.is_late:
            return False
        return self._state.block(current.hash) is not None

    def moved(self) -> None:
        """Something has come from the peer."""
        self._claims.moved(self)

    def tick(self, now: float) -> str:
        """Tell the time, in seconds.  Returns what the peer has made up, as others have shown; '': nothing."""
        self._claims.tick(now)
        return self._made_up

    def close(self) -> None:
        """The session is over."""
        self._claims.ended(self)

    def _account(self, result: AddResult, offered: Sequence[bytes]) -> None:
        for hash in result.missing_blocks:
            self._claims.take(hash, self)
        # A content that moved on is a gain, even to a log that counts nothing but entries.
        gained = result.accepted or int(bool(result.missing_blocks))
        if gained:
            self._gain(gained, sum(map(len, offered)))
        # Members may have been upgraded before this node: that is nobody's fault.
        self._counters.rejected += len(result.rejected) - result.unsupported
        self._counters.ungranted += result.ungranted
        if result.rejected:
            self._counters.refusal = result.rejected[-1]
        if self._counters.rejected > self._limits.rejected:
            raise RemoteProtocolError(
                f"{self._counters.rejected} entries or blocks were refused, the last because: {result.rejected[-1]}"
            )

    def _gain(self, count: int, size: int) -> None:
        self._counters.accepted += count
        self._counters.accepted_bytes += size
        self._claims.gained(self, count, size)
        self._stream.gained()

    def _hold(self, batch: list[bytes], missing: set[EntryHash]) -> list[EntryHash]:
        """Keep what has to wait; returns the entries of this batch that need not."""
        here = []
        for data in batch:
            try:
                entry = Entry.decode(data)
            except InvalidEntry:
                continue  # counted as rejected
            if entry.parent in missing:
                self._orphans.hold(entry, data)
            else:
                here.append(entry.hash)
        return here

    def _release(self, here: list[EntryHash]) -> None:
        """Offer again what waited for one of these entries."""
        for hash in here:
            for orphan, content in self._orphans.release(hash):
                self._batches.append(([orphan], content))

    # A content that comes in pieces, from several peers

    def _may_ask(self, hash: BlockHash) -> bool:
        """Whether the peer may be asked for a block that was found to be missing: nothing is asked for twice."""
        if hash in self._asked or len(self._asked) >= self._limits.asked or self._pieces.tracks(hash):
            return False
        return not self._claims.held_by_other(hash, self)

    def _ask_pieces(self) -> list[ForBlocks]:
        """What to ask for next."""
        while (head := self._pieces.head) is not None and (block := self._state.block(head)) is not None:
            self._pieces.put(head, block)  # it has come by another way
        if head is not None and not self._state.awaits(head) and self._state.block(head) is None:
            self._pieces.stop()
        requests: list[ForBlocks] = []
        tail = self._pieces.tail
        if tail is not None and tail not in self._asked_chains:
            self._asked_chains.add(tail)
            requests.append(ChainReq(tail))
        while len(self._asked) < self._limits.asked:
            hash = self._claims.take_part(self, self._asked, self._peer.address)
            if hash is None:
                break
            self._asked.add(hash)
            self._told.add(hash)
            self._outstanding += 1
            requests.append(BlockReq(hash))
        if not self._outstanding:
            self._pieces.leave(self)
        return requests

    def _goes_on(self, request: BlockReq, following: BlockHash) -> bool:
        """Whether the content, of which this follows what was asked for, comes in parts from now on."""
        # Whoever brings parts may have got by now what was not there before: it may be passing on what arrives.
        self._asked -= self._absent
        self._absent.clear()
        if request.hash in self._told or self._state.block(following) is not None:
            return True
        if not self._state.awaits(following):
            # The content is longer than its entry allows, or counts for nothing any more.
            return True
        return self._pieces.tracks(following) or self._pieces.begin(following, self)

    def _answer_ended(self, request: BlockReq) -> None:
        """What was asked for has come, or the peer does not have it."""
        self._pieces.let_go(self, request.hash)
        self._outstanding -= request.hash in self._told
        if self._state.block(request.hash) is None and not self._pieces.holds(request.hash):
            self._absent.add(request.hash)

    def _sort(self, blocks: Sequence[bytes], request: BlockReq) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """Some blocks of an answer: those that the log can take, those that are held until it can, those in vain."""
        ready: list[bytes] = []
        held: list[bytes] = []
        known: list[bytes] = []
        for block in blocks:
            hash = BlockHash(sha224(block))
            if self._pieces.tracks(hash):
                (ready if self._pieces.put(hash, block) else held).append(block)
            elif self._pieces.holds(hash) or request.hash in self._told:
                # Others have brought it, or it is of a chain that somebody made up.
                known.append(block)
            else:
                ready.append(block)
        return ready, held, known

    def learn(self, request: object, hashes: Sequence[BlockHash]) -> None:
        """Take what the peer says of a chain.  Raises `RemoteProtocolError`."""
        if not isinstance(request, ChainReq):
            raise RemoteProtocolError("CHAIN answers no CHAIN_REQ")
        self._pieces.learn(request.hash, hashes, self)

    @property
    def _made_up(self) -> str:
        """What the peer has told of a chain and turned out to be wrong; '': nothing."""
        return "a list of blocks that is not the one of their chain" if self._pieces.is_liar(self) else ""


def _without_strays(result: AddResult, most: int) -> AddResult:
    """Without so many refusals of blocks that no entry had asked for: the others count, whatever came with them."""
    return replace(result, rejected=result.rejected[: len(result.rejected) - min(result.strays, most)])
