"""News over sessions that stay open: what is pushed, and what is left to be fetched (docs/sync-protocol.md, section 5).

Whatever enters the log, written here or learned from anybody, is passed on at once, so that it floods the graph of all
standing sessions.  Entries go with their contents, as soon as these are complete.  A budget keeps bursts and large
contents out of the flood: of these only the root hash is told, and each node fetches them once.
"""

from __future__ import annotations

import asyncio
from collections import deque

from basefs.gossip.outgoing import TokenBucket
from basefs.log.hashes import EntryHash
from basefs.replica.replica import Applied, Replica
from basefs.sync.net.service import SyncService
from basefs.sync.session.push import QueuedPush
from basefs.sync.session.responder import size_of
from basefs.sync.wire.limits import INLINE_BLOCKS

#: Bytes of entries and blocks that a node pushes at once after a while of silence, half as many a second in the long
#: run.  A file of 7 KiB cost each of 8 nodes 10.0 kB when it was pushed and 11.6 kB when each fetched it: a push
#: compares nothing, and the sessions are a tree.  To fetch takes six round trips or more, and on a bad network a new
#: connection.  More at once would be in the way of other news; more a second would send twice, in a storm or after a
#: cut, what is fetched as well.
PUSH_BYTES = 16 * 1024
#: Entries, and bytes of them and their contents, that are looked at without a pause: some milliseconds.
PUSH_ENTRIES = 64
LOOKED_BYTES = 256 * 1024
#: Seconds between two root hashes because of bursts, and seconds of silence after which peers for whom news is kept
#: back are told the root hash.  By then it has come to them on another way, if that is not broken.
HINT_SECONDS = 0.25


class Pusher:
    """Passes on what is new to this node's log.  All methods are called in the event loop's thread."""

    def __init__(self, replica: Replica, sync: SyncService, loop: asyncio.AbstractEventLoop) -> None:
        self._replica = replica
        self._sync = sync
        self._loop = loop
        self._news: list[EntryHash] = []
        #: Whether blocks have come, and entries whose contents' lists had not.
        self._blocks = False
        self._lack_lists: deque[EntryHash] = deque(maxlen=PUSH_ENTRIES)
        self._flushing: asyncio.TimerHandle | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._hinting: asyncio.TimerHandle | None = None
        self._hint_by = 0.0
        self._told_at = loop.time() - HINT_SECONDS
        self._budget = TokenBucket(PUSH_BYTES / 2, PUSH_BYTES, loop.time())

    def stop(self) -> None:
        """Pass on what was gathered, and be quiet from now on."""
        for handle in (self._flushing, self._telling, self._hinting):
            if handle is not None:
                handle.cancel()
        while self._news:
            self._flush()
        if self._flushing is not None:
            self._flushing.cancel()

    def gather(self, applied: Applied) -> None:
        """Take in what a call of `Replica.apply` did."""
        self._news += [entry.hash for entry in applied.entries]
        self._news += applied.completed
        self._blocks |= bool(applied.new_blocks)
        if (self._news or self._blocks) and self._flushing is None:
            # Meanwhile the same may come from another peer, who then need not be told.
            self._flushing = self._loop.call_later(0.002, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        if not self._sync.standing:
            self._news.clear()
            return
        if self._blocks:
            self._blocks = False
            self._news[:0] = self._lack_lists
            self._lack_lists.clear()
            self._sync.blocks_came()
        at_once: list[bytes] = []
        later: list[QueuedPush] = []
        # Nothing overtakes what it builds on.
        waits = self._sync.neighbours.waits
        now = self._loop.time()
        for encoded, size in self._take():
            if size > INLINE_BLOCKS:
                self._tell_later()
            elif waits or later or self._budget.take(now, size):
                later.append(QueuedPush(encoded, size, now))
            else:
                at_once.append(encoded)
        if at_once:
            self._sync.neighbours.push(at_once)
        if later:
            self._sync.neighbours.push_later(later)
        if at_once or later:
            self._hint_later()
        if self._news:
            self._flushing = self._loop.call_later(0, self._flush)

    def _take(self) -> list[tuple[bytes, int]]:
        """Some of the news, encoded, with the bytes of each and its content; not what is still arriving: it is news
        again when blocks have come."""
        found = []
        looked = taken = 0
        for hash in self._news[:PUSH_ENTRIES]:
            if looked > LOOKED_BYTES:
                break
            taken += 1
            encoded = self._replica.entry(hash)
            size = None if encoded is None else size_of(self._replica, encoded, INLINE_BLOCKS)
            if encoded is not None and size is not None:
                looked += size
                found.append((encoded, size))
            elif encoded is not None:
                self._lack_lists.append(hash)
        del self._news[:taken]
        return found

    def _tell_later(self) -> None:
        if self._telling is None:
            self._telling = self._loop.call_at(max(self._told_at + HINT_SECONDS, self._loop.time()), self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._told_at = self._loop.time()
        self._sync.neighbours.tell_root()

    def _hint_later(self) -> None:
        """Where news is kept back, the root hash follows when no more news comes."""
        now = self._loop.time()
        if self._hinting is None:
            self._hint_by = now + 1.0
        else:
            self._hinting.cancel()
        self._hinting = self._loop.call_at(min(now + HINT_SECONDS, self._hint_by), self._hint)

    def _hint(self) -> None:
        self._hinting = None
        self._sync.neighbours.tell_lazy()
