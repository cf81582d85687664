"""News over sessions that stay open: what is pushed, and what is left to be fetched (docs/sync-protocol.md, section 5).

Whatever enters the log, written here or learned from anybody, is passed on at once, so that it floods the graph of all
standing sessions.  Entries go with their contents, as soon as these are complete.  A budget keeps bursts and large
contents out of the flood: of these only the root hash is told, and each node fetches them once.
"""

from __future__ import annotations

import asyncio

from basefs.log.hashes import ZERO_HASH, EntryHash
from basefs.replica import Applied, Replica
from basefs.sync.parcels import chain, content_of, next_block
from basefs.sync.service import SyncService

#: Bytes of entries and blocks that a node pushes at once after a while of silence, and a second in the long run.  A
#: file of 7 KiB cost each of 8 nodes 10.0 kB when it was pushed and 11.6 kB when each fetched it: a push compares
#: nothing, and the sessions are a tree.  To fetch takes six round trips or more, and on a bad network a new connection.
#: More at once would be in the way of other news; more a second would send twice, in a storm or after a cut, what is
#: fetched as well.
PUSH_BYTES = 16 * 1024
PUSH_RATE = 8 * 1024
#: Bytes that hardly any entry is below: with less than this left of them nothing more is looked at.
_LEAST = 160
#: Entries of one flush; a longer list is told from its length alone to be a burst.
PUSH_ENTRIES = 64
#: Seconds for which news is gathered before it is passed on: meanwhile the same may come from another peer, who then
#: need not be told.
FORWARD_SECONDS = 0.002
#: Seconds of silence after which peers for whom news is kept back are told the root hash, and the most that they wait
#: for it.  By then it has come to them on another way, if that is not broken.
HINT_SECONDS = 0.25
HINT_AT_LATEST = 1.0
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
        self._hinting: asyncio.TimerHandle | None = None
        self._hint_by = 0.0
        self._told_at = loop.time() - TELL_SECONDS
        self._budget = float(PUSH_BYTES)
        self._filled_at = loop.time()

    def stop(self) -> None:
        """Pass on what was gathered, and be quiet from now on."""
        for handle in (self._flushing, self._telling, self._hinting):
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
            if self._budget < _LEAST:
                burst = True
                break
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
            self._sync.kept.push(pushed)
            self._hint_later()
        if burst and self._telling is None:
            self._telling = self._loop.call_at(max(self._told_at + TELL_SECONDS, self._loop.time()), self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._told_at = self._loop.time()
        self._sync.kept.tell_root()

    def _hint_later(self) -> None:
        """Where news is kept back, the root hash follows when no more news comes."""
        now = self._loop.time()
        if self._hinting is None:
            self._hint_by = now + HINT_AT_LATEST
        else:
            self._hinting.cancel()
        self._hinting = self._loop.call_at(min(now + HINT_SECONDS, self._hint_by), self._hint)

    def _hint(self) -> None:
        self._hinting = None
        self._sync.kept.tell_lazy()

    def _fill(self) -> None:
        now = self._loop.time()
        self._budget = min(PUSH_BYTES, self._budget + (now - self._filled_at) * PUSH_RATE)
        self._filled_at = now

    def _size(self, encoded: bytes) -> int | None:
        """Bytes of an entry and its content, or of a part of it that exceeds the budget; `None` if it is incomplete."""
        size, last = len(encoded), content_of(encoded)
        for block in chain(self._replica, last):
            size += len(block)
            last = next_block(block)
            if size > self._budget:
                return size
        return size if last == ZERO_HASH else None
