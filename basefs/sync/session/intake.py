"""What arrives, on its way into the log: in slices, parents first, and what to ask for next.

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
from basefs.log.entries import Entry
from basefs.log.hashes import BlockHash, EntryHash, sha224
from basefs.log.interface import AddResult, LogState
from basefs.sync.session.claims import Claims
from basefs.sync.session.orphans import Orphans
from basefs.sync.session.peer import Peer
from basefs.sync.session.result import Counters
from basefs.sync.session.share import Share
from basefs.sync.session.stream import Stream
from basefs.sync.wire.limits import BATCH_BYTES, MAX_HASHES, Limits
from basefs.sync.wire.messages import BlockReq, EntryReq, ForBlocks

#: Encoded entries, and the blocks that followed them.
Batch: TypeAlias = tuple[list[bytes], list[bytes]]


class Intake:
    """Entries and blocks that were received and are not in the log yet.

    Attributes:
        share: what this session brings of a content that comes in parts.
    """

    def __init__(
        self,
        state: LogState,
        counters: Counters,
        limits: Limits,
        claims: Claims | None = None,
        peer: Peer | None = None,
    ) -> None:
        """`claims`: what the sessions of this node expect; `None`: there is no other one.  `peer`: who sends it."""
        self._state = state
        self._claims = Claims() if claims is None else claims
        self._counters = counters
        self._limits = limits
        self._batches: deque[Batch] = deque()
        #: What somebody else gives to the log at this moment.
        self._offered: Batch | None = None
        #: What has come and may become more.
        self._gathered: Batch = ([], [])
        self._gathered_bytes = 0
        self._orphans = Orphans(limits.orphan_bytes)
        self._wanted: dict[BlockHash, None] = {}
        self._asked_entries: set[EntryHash] = set()
        self._stream = Stream(self._claims)
        self.share = Share(state, self._claims, self, limits, peer or Peer())

    @property
    def pending(self) -> bool:
        """Whether `step` has something to do; no further line may be read before it has done it."""
        return bool(self._batches) or self._offered is not None or self._claims.parts.is_due(self)

    def new_round(self) -> None:
        """Forget what did not come: it will be found to be missing again."""
        self._orphans = Orphans(self._limits.orphan_bytes)
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

    def step(self) -> int:
        """Offer one batch to the log; returns how many entries and blocks it was.  Raises `RemoteProtocolError`."""
        batch = self.offer()
        self.added(self._state.add(*batch))
        return sum(map(len, batch))

    def offer(self) -> Batch:
        """The next batch, for `add` of the log, in whichever thread; `added` must follow."""
        self._offered = self._batches.popleft() if self._batches else ([], self._claims.parts.give(self))
        return self._offered

    def added(self, result: AddResult) -> None:
        """What became of the batch that was offered.  Raises `RemoteProtocolError`."""
        assert self._offered is not None, "a batch was offered"
        (batch, blocks), self._offered = self._offered, None
        if not batch:
            # They were counted when they came.
            return self._claims.parts.given(self, len(blocks))
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
            blocks, held, known = self.share.sort(blocks, request)
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
            result = self._state.add((), offered)
            # The log cannot take the block of an orphan yet, unless another entry has the same content.
            self._account(_without_strays(result, len(offered)) if orphaned else result, offered)
            if not streaming:
                self._want(result.missing_blocks)
        self._came(blocks)
        if self.share.made_up:
            # Not before the log has what it can take: the other sessions count on it.
            raise RemoteProtocolError(self.share.made_up)

    def _came(self, blocks: Sequence[bytes]) -> None:
        for block in blocks:
            hash = BlockHash(sha224(block))
            self._wanted.pop(hash, None)
            self._stream.came(hash, len(block))

    def missing_blocks(self) -> list[ForBlocks]:
        """What to ask for at the start of a round: chains that earlier sessions or gossip left incomplete."""
        return [*self.ask_blocks(self._state.missing_blocks(self._limits.missing_blocks)), *self.share.ask()]

    def ask_blocks(self, hashes: Sequence[BlockHash]) -> list[BlockReq]:
        """Requests for those of these blocks that were not asked for before."""
        requests = []
        for hash in hashes:
            if self.share.may_ask(hash):
                self.share.asked.add(hash)
                self._claims.take(hash, self)
                requests.append(BlockReq(hash))
        return requests

    def answered(self, request: ForBlocks) -> list[ForBlocks]:
        """What to ask for next, when an answer has ended that could have brought blocks, or told of them."""
        wishes: list[ForBlocks] = []
        if isinstance(request, BlockReq):
            self.share.let_go(request)
            following = self._stream.rest(request)
            if following is not None and not self.share.goes_on(request, following):
                wishes += self.ask_blocks([following])
        return wishes + self.share.ask()

    def wanted_blocks(self) -> list[BlockReq]:
        """Requests for the rest of the contents that arrived in part, to be sent when an answer has ended."""
        wanted = [hash for hash in self._wanted if self._state.block(hash) is None]
        self._wanted.clear()
        return self.ask_blocks(wanted)

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
        return self.share.made_up

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
        self._counters.rejected += len(result.rejected)
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


def _without_strays(result: AddResult, most: int) -> AddResult:
    """Without so many refusals of blocks that no entry had asked for: the others count, whatever came with them."""
    return replace(result, rejected=result.rejected[: len(result.rejected) - min(result.strays, most)])
