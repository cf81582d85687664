"""News over the sessions that stay open: what is pushed, and what is left to be fetched (design, section 7).

Whatever enters the log, written here or learned from anybody, is passed on at once, so that it floods the graph of all
standing sessions.  Entries go with their contents, as soon as these are complete.  A budget keeps bursts and large
contents out of the flood: of these only the root hash is told, and each node fetches them once.
"""

from __future__ import annotations

import asyncio

from basefs.log.blocks import Block
from basefs.log.entries import Action, Entry
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash
from basefs.replica import Applied, Replica
from basefs.sync.service import SyncService

#: Bytes of entries and blocks that a node pushes in `PUSH_SECONDS`, and at once after a while of silence.  A push may
#: reach a node from several sides (a file of 8 KiB cost each of 6 nodes 33 KB), so what is more costs less when each
#: node fetches it once, a tenth of a second later.
PUSH_BYTES = 4 * 1024
PUSH_SECONDS = 0.5
#: Entries of one flush; a longer list is told from its length alone to be a burst.
PUSH_ENTRIES = 64
#: Seconds for which news is gathered before it is passed on: meanwhile the same may come from another peer, who then
#: need not be told.
FORWARD_SECONDS = 0.002
#: Seconds between two root hashes told because of bursts.
TELL_SECONDS = 0.25


class Pusher:
    """Passes on what is new to this node's log.  All methods are called in the event loop's thread."""

    def __init__(self, replica: Replica, sync: SyncService, loop: asyncio.AbstractEventLoop) -> None:
        self._replica = replica
        self._sync = sync
        self._loop = loop
        self._news: list[EntryHash] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._told_at = loop.time() - TELL_SECONDS
        self._budget = float(PUSH_BYTES)
        self._filled_at = loop.time()

    def stop(self) -> None:
        """Pass on what was gathered, and be quiet from now on."""
        for handle in (self._flushing, self._telling):
            if handle is not None:
                handle.cancel()
        if self._news:
            self._flush()

    def gather(self, applied: Applied) -> None:
        """Take in what a call of `Replica.apply` did."""
        self._news += [entry.hash for entry in applied.entries]
        self._news += applied.completed
        if self._news and self._flushing is None:
            self._flushing = self._loop.call_later(FORWARD_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        news, self._news = self._news, []
        if not self._sync.standing:
            return
        self._fill()
        pushed: list[bytes] = []
        burst = len(news) > PUSH_ENTRIES
        for hash in news if not burst else ():
            encoded = self._replica.entry(hash)
            size = None if encoded is None else self._size(encoded)
            if encoded is None or size is None:
                continue  # its content has not arrived: it is news again when it has
            if size > self._budget:
                burst = True
                continue
            self._budget -= size
            pushed.append(encoded)
        if pushed:
            self._sync.push(pushed)
        if burst and self._telling is None:
            self._telling = self._loop.call_at(max(self._told_at + TELL_SECONDS, self._loop.time()), self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._told_at = self._loop.time()
        self._sync.tell_root()

    def _fill(self) -> None:
        now = self._loop.time()
        self._budget = min(PUSH_BYTES, self._budget + (now - self._filled_at) * PUSH_BYTES / PUSH_SECONDS)
        self._filled_at = now

    def _size(self, encoded: bytes) -> int | None:
        """Bytes of an entry and its content, or of a part of it that exceeds the budget; `None` if it is incomplete."""
        entry = Entry.decode(encoded)
        size = len(encoded)
        hash = entry.content if entry.action is Action.WRITE and entry.content else ZERO_HASH
        while hash != ZERO_HASH and size <= self._budget:
            raw = self._replica.block(BlockHash(hash))
            if raw is None:
                return None
            block = Block.decode(raw)
            size += len(raw)
            hash = block.next
        return size
