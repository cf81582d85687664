"""What arrives, on its way into the log: in batches, parents first, and what to ask for next.  No I/O, no clock.

Invariants:
1. The log is given at most `Limits.batch` entries, with the blocks that follow them, in one call: what has come at once
   is one transaction, as far as nothing stands between that needs the log to have it.
2. Lines are taken in the order in which they came: entries are in the log before their blocks are offered, or come
   with them.
3. A block is asked for at most once in a session, unless the peer has brought others since, an entry at most once in a
   round: a peer that does not have it cannot make us repeat ourselves, and the session ends.
4. Memory: `orphan_bytes` of entries, `asked` hashes of blocks twice, one batch and one received line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

from basefs.errors import InvalidEntry, RemoteProtocolError
from basefs.log.blocks import BlockPlace, listed, places
from basefs.log.entries import Entry
from basefs.log.hashes import BlockHash, EntryHash, sha224
from basefs.log.interface import AddResult, LogState
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.result import RemotePeer, SessionCounters
from basefs.sync.wire.limits import MAX_BLOCKS, MAX_HASHES, MAX_REPEATED, Limits
from basefs.sync.wire.messages import BlockReq, EntryReq

#: Missing blocks that are looked up at once.
_PAGE = 8 * MAX_BLOCKS


class OrphanBuffer:
    """Entries that need one which is not in the log yet, by that, with the blocks that followed them on the line."""

    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes
        self._hashes: set[EntryHash] = set()
        self._waiting: dict[EntryHash, list[tuple[Entry, bytes]]] = {}
        self._blocks: dict[BlockHash, bytes] = {}  # of any orphan, since contents may be equal
        self._expected: dict[BlockHash, BlockPlace] = {}  # blocks of the contents of orphans

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def hold(self, entry: Entry, needs: EntryHash, data: bytes) -> None:
        """Keep an entry until one that it needs comes; drops it if there is no room."""
        if entry.encoded is not None:
            self._expect((entry.encoded.place,))
        if entry.hash not in self._hashes and self._take(data):
            self._hashes.add(entry.hash)
            self._waiting.setdefault(needs, []).append((entry, data))

    def _expect(self, places: Iterable[BlockPlace]) -> None:
        # Beyond that, blocks of orphans count as refused.
        if len(self._expected) < 65_536:
            for place in places:
                self._expected.setdefault(place.hash, place)

    def hold_block(self, block: bytes) -> bool:
        """Keep a block if it belongs to an orphan.  Returns whether it does."""
        place = self._expected.get(BlockHash(sha224(block))) if self._expected else None
        if place is None or not place.fits(len(block)):
            return False
        self._expect(listed(place, block))
        if place.hash not in self._blocks and self._take(block):
            self._blocks[place.hash] = block
        return True

    def release(self, needed: EntryHash) -> list[tuple[bytes, list[bytes]]]:
        """The entries that waited for this one, and their blocks; the entries are no longer kept."""
        ready = []
        for entry, data in self._waiting.pop(needed, []):
            self._hashes.discard(entry.hash)
            self._room += len(data)
            encoded = entry.encoded
            found = () if encoded is None else places(encoded.place, self._blocks.get, set())
            hashes = dict.fromkeys(place.hash for place in found if place.hash in self._blocks)
            ready.append((data, [self._blocks[hash] for hash in hashes]))
        return ready

    def _take(self, data: bytes) -> bool:
        fits = len(data) <= self._room
        self._room -= len(data) if fits else 0
        return fits

    def parents(self) -> list[EntryHash]:
        """Missing entries that orphans need and that are not orphans themselves."""
        return [needed for needed in self._waiting if needed not in self._hashes]


class BlockAnswers:
    """The answers to requests for blocks, in one session."""

    def __init__(self, requests: RequestTable) -> None:
        self._requests = requests
        self._request: BlockReq | None = None
        #: Those that may still come of the answer.
        self._left: dict[BlockHash, None] = {}
        #: Bytes since a block was new.
        self._repeated = 0
        #: What all sessions had brought when the peer said that this one has to wait.
        self._waits_since: int | None = None

    def _begin(self, request: BlockReq) -> None:
        if self._request is not request:
            self._request, self._left = request, dict.fromkeys(request.hashes)

    def check(self, request: BlockReq, blocks: Sequence[bytes], *, strict: bool = True) -> None:
        """Some blocks of an answer.

        Raises `RemoteProtocolError` for one that was not asked for, or comes again; if not `strict`, it may be none of
        the answer.
        """
        self._begin(request)
        for block in blocks:
            hash = BlockHash(sha224(block))
            if strict and hash not in self._left:
                raise RemoteProtocolError("a block that was not asked for")
            self._left.pop(hash, None)

    def end(self, request: BlockReq) -> list[BlockHash]:
        """An answer has ended; returns what the peer did not have."""
        self._begin(request)
        self._request = None
        return list(self._left)

    def waits(self) -> None:
        """The peer serves others first."""
        if self._waits_since is None:
            self._waits_since = self._requests.bytes

    def came(self, size: int) -> None:
        """A block has come."""
        self._repeated += size

    def gained(self) -> None:
        """Something that came was new."""
        self._repeated = 0
        self._waits_since = None

    @property
    def is_late(self) -> bool:
        """Whether others have brought so much meanwhile that it is better to ask again, for what is not here yet."""
        waited = 0 if self._waits_since is None else self._requests.bytes - self._waits_since
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
        requests: RequestTable | None = None,
        peer: RemotePeer | None = None,
    ) -> None:
        """`requests`: what the sessions of this node expect; `None`: there is no other one.  `peer`: who sends it."""
        self._state = state
        self._requests = RequestTable() if requests is None else requests
        self._counters = counters
        self._limits = limits
        self._batches: deque[Batch] = deque()
        #: What somebody else gives to the log at this moment.
        self._offered: Batch | None = None
        #: What has come and may become more.
        self._gathered: Batch = ([], [])
        self._gathered_bytes = 0
        self._orphans = OrphanBuffer(limits.orphan_bytes)
        self._asked_entries: set[EntryHash] = set()
        self._answers = BlockAnswers(self._requests)
        self._peer = peer or RemotePeer()
        #: The blocks that the peer was asked for; of these, those that it did not have.
        self._asked: set[BlockHash] = set()
        self._absent: set[BlockHash] = set()
        #: How many it has brought since it was asked for these again.
        self._brought = 0
        #: The number of a missing block: the peer was asked for all from behind this one ...
        self._begun_at = self._requests.resume
        #: ... up to this one.
        self._behind = self._begun_at
        #: The number of the last one that it was asked for.
        self._last = 0

    @property
    def pending(self) -> bool:
        """Whether something is to be given to the log; no further line may be read before it has it."""
        return bool(self._batches) or self._offered is not None

    def new_round(self) -> None:
        """Forget what did not come: it will be found to be missing again."""
        self._orphans = OrphanBuffer(self._limits.orphan_bytes)
        self._behind = self._begun_at
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
        self._offered = self._batches.popleft()
        return self._offered

    def added(self, result: AddResult) -> None:
        """What became of the batch that was offered.  Raises `RemoteProtocolError`."""
        assert self._offered is not None, "a batch was offered"
        (batch, blocks), self._offered = self._offered, None
        if result.missing_parents or self._orphans:
            here = self._hold(batch, set(result.missing_parents))
            # The log cannot take the blocks of orphans.  They are held before anything is released, to go with them.
            orphaned = sum(map(self._orphans.hold_block, blocks))
            self._release(here)
            result = _without_strays(result, orphaned)
        self._account(result, (*batch, *blocks))

    def put_blocks(self, blocks: Sequence[bytes], *, request: object = None, stands: bool = False) -> None:
        """Take a line of blocks, which answers a `request`.  Raises `RemoteProtocolError`.

        `stands`: the session does, so that others may come with news in the middle of an answer.
        """
        self._counters.blocks_received += len(blocks)
        if isinstance(request, BlockReq):
            self._answers.check(request, blocks, strict=not stands)
        if self._gathered[0] and (stands or not isinstance(request, BlockReq)):
            # Those of the entries that have just come.
            self._gathered[1].extend(blocks)
            self._gathered_bytes += sum(map(len, blocks))
            if self._gathered_bytes >= 256 * 1024:
                self.seal()
            return
        for orphaned, run in groupby(blocks, self._orphans.hold_block):
            offered = list(run)
            result = self._state.add((), offered, peer=self._peer.party)
            # The log cannot take the block of an orphan yet, unless another entry has the same content.
            self._account(_without_strays(result, len(offered)) if orphaned else result, offered)
        for block in blocks:
            self._answers.came(len(block))
            self._requests.came(BlockHash(sha224(block)), len(block), self)

    def finished(self, request: BlockReq) -> list[BlockHash]:
        """The answer to a request has ended; returns what did not come."""
        self._requests.answered(self, request.hashes)
        return self._answers.end(request)

    def answered(self, request: object) -> list[BlockReq]:
        """What to ask for next, when the answer to a request has ended."""
        if isinstance(request, BlockReq):
            absent = self.finished(request)
            brought = len(request.hashes) - len(absent)
            self._brought += brought
            # More absent ones are asked for again only once it has brought as many as those are more: they may be on
            # their way to it, or nowhere.
            if brought and self._brought >= len(self._absent) - 8192:
                # The peer may be passing on what arrives there, and has more of it by now.
                self._asked -= self._absent
                self._absent.clear()
                self._behind, self._brought = self._begun_at, 0
            self._absent.update(absent)
        return self.ask_blocks()

    def ask_blocks(self) -> list[BlockReq]:
        """Requests for missing blocks that no other session brings, as many as may be on their way."""
        wanted = []
        while self._requests.may_take(self, self._peer.address) and (hashes := self._choose()):
            self._asked.update(hashes)
            self._requests.take(hashes, self, self._peer.address)
            wanted.append(BlockReq(hashes))
        return wanted

    def _choose(self) -> tuple[BlockHash, ...]:
        """The next blocks to ask for, in the order of the contents: nothing is asked for twice."""
        room = min(MAX_BLOCKS, self._limits.asked - len(self._asked))
        if room <= 0:
            # Perhaps nobody has them: the next session goes on with what is behind.
            self._requests.resume = self._last
            return ()
        free = self._free()
        if not free and self._begun_at:
            self._begun_at = self._behind = 0
            free = self._free()
        if not free:
            return tuple(hash for hash in self._requests.late(self) if hash not in self._asked)[:room]
        chosen = tuple(free)[:room]
        self._last = free[chosen[-1]]
        return chosen

    def _free(self) -> dict[BlockHash, int]:
        """The first of the missing blocks that no session has asked for, and their numbers; more than a request has."""
        free: dict[BlockHash, int] = {}
        behind, passed, looked_at = self._behind, True, 0
        while (
            len(free) <= MAX_BLOCKS and looked_at < 16 * _PAGE and (page := self._state.missing_blocks(_PAGE, behind))
        ):
            for number, hash in page:
                behind = number
                if hash in self._asked:
                    self._behind = number if passed else self._behind
                    continue
                passed = False
                if not self._requests.is_coming(hash):
                    free.setdefault(hash, number)
            if len(page) < _PAGE:
                break
            looked_at += 0 if passed else len(page)
        self._requests.spare = len(free) > MAX_BLOCKS
        return free

    def still_missing(self, request: BlockReq) -> BlockReq | None:
        """What is left of a request of ours that is about to be sent."""
        left = tuple(hash for hash in request.hashes if not self._state.has_block(hash))
        if not left:
            self._requests.answered(self, request.hashes)
        return BlockReq(left) if left else None

    def wanted_parents(self) -> list[EntryReq]:
        """Requests for missing parents, to be sent when no other answer can bring them any more."""
        missing = [hash for hash in self._orphans.parents() if hash not in self._asked_entries]
        self._asked_entries.update(missing)
        return [EntryReq(tuple(missing[i : i + MAX_HASHES])) for i in range(0, len(missing), MAX_HASHES)]

    def turn(self, done: bool) -> bool:
        """Whether it is this session's turn to ask for entries; `done`: it has them."""
        if done:
            self._requests.has_answer(self)
        elif self._requests.may_ask(self):
            self._requests.asks(self)
            return True
        return False

    def is_exchanged(self, root: BlockHash) -> bool:
        """Whether neighbours exchange the blocks of the content with this first block."""
        return root in self._requests.contents

    def comes_elsewhere(self, hash: BlockHash) -> bool:
        """Whether another session is bringing a block, which the peer of this one wants."""
        comes = self._requests.held_by_other(hash, self, self._peer.address)
        if comes:
            self._requests.crowd()
        return comes

    def waits(self) -> None:
        """The peer serves others first: what it should bring may be asked for elsewhere."""
        self._requests.waits(self)
        self._answers.waits()

    def superfluous(self, current: object) -> bool:
        """Whether others have brought much of the answer to a request."""
        if not isinstance(current, BlockReq) or not self._answers.is_late:
            return False
        return all(map(self._state.has_block, current.hashes))

    def close(self) -> None:
        """The session is over."""
        self._requests.ended(self)

    def _account(self, result: AddResult, offered: Sequence[bytes]) -> None:
        if result.accepted:
            self._gain(result.accepted, sum(map(len, offered)))
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
        self._requests.gained(self, count, size)
        self._answers.gained()

    def _hold(self, batch: list[bytes], missing: set[EntryHash]) -> list[EntryHash]:
        """Keep what has to wait; returns the entries of this batch that need not."""
        here = []
        for data in batch:
            try:
                entry = Entry.decode(data)
            except InvalidEntry:
                continue  # counted as rejected
            needs = next((hash for hash in entry.needs if hash in missing), None)
            if needs is not None:
                self._orphans.hold(entry, needs, data)
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
