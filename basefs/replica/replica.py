"""The replica: log, view and Merkle state of one filesystem (paper, section 4; docs/architecture.md).

One writer, many readers.  Invariants

1. `apply` is the one way into the log, for entries written here, received, or read again after a restart (where there
   is nothing to read: derived state is in the log file, and the view is resolved when somebody looks).
2. An entry is committed to the log before the view shows it.
3. The lock is held for one transaction at the most.  A batch of remote entries is split after `LONG_HOLD` if another
   thread waits; blocks without an entry are never split, so the caller bounds their number.  While it holds the lock,
   no thread waits for the network or for fsync, or verifies a signature whose key was known before, and no content of
   more than some kilobytes is encoded, decoded or compared.
4. Commits are numbered.  Subscribers are called without the lock, in the order of the numbers, by any thread.
5. The view is read under the lock, for one path at the most except where everything is listed.  What is never changed
   once it is committed is read from snapshots of the log (`basefs/log/snapshots.py`), without the lock.
"""

from __future__ import annotations

import contextlib
import logging
import pathlib
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from basefs.errors import (
    BaseFSError,
    InvalidEntry,
    IsADirectory,
    NoSpace,
    NotADirectory,
    NotFound,
    ReadOnly,
    StoreError,
    UnsupportedEntry,
)
from basefs.log.blocks import Block
from basefs.log.cache import ContentCache
from basefs.log.content import BytesContent, Content
from basefs.log.contents import Contents
from basefs.log.encoder import Encoder, NotEncoded
from basefs.log.entries import Entry, hash_of, signer_of
from basefs.log.guard import Guard
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, Fingerprint, sha224
from basefs.log.intake import Delivery, Intake, Newcomer
from basefs.log.interface import AddResult, Digest, Listing
from basefs.log.keys import SigningKey, is_signed_by
from basefs.log.missing import Incomplete
from basefs.log.orphans import Orphans
from basefs.log.placement import Placed
from basefs.log.reserve import NO_LIMITS, DiskLimits
from basefs.log.room import Room
from basefs.log.schema import CACHE_FILE, LOG_FILE
from basefs.log.snapshots import SnapshotReader
from basefs.log.store import Store
from basefs.log.treerows import TreeRows
from basefs.path import Path, display
from basefs.replica.applied import Applied
from basefs.replica.feed import CommitFeed
from basefs.replica.viewhash import ViewHash
from basefs.view.attributes import Attributes
from basefs.view.author import Author
from basefs.view.changes import Change, removed_contents
from basefs.view.draft import Draft
from basefs.view.history import Survey, survey
from basefs.view.keynames import key_names
from basefs.view.members import NOBODY, MemberGrants, Members, members
from basefs.view.needs import Needs, QuickLook
from basefs.view.permissions import Grant
from basefs.view.resolution import Resolver
from basefs.view.signer import Signer
from basefs.view.states import Kind, State
from basefs.view.tree import Glance, Node, Tree
from basefs.view.walk import Outcome

__all__ = ["CACHE_FILE", "LOG_FILE", "Applied", "Attributes", "Replica"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds after which a batch of remote entries lets waiting threads go first.  Readers wait for that and for one
#: transaction's end; a shorter time makes more transactions, each of which writes pages anew.
LONG_HOLD = 0.005
#: Paths that are looked at before other threads get the lock, some 3 ms.
_PORTION = 32


class Replica:
    """One filesystem on this node.  Thread-safe.

    Attributes:
        keys: the private keys of this node.
        directory: where log and cache are.
        room: whether its disk takes more.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        keys: Sequence[SigningKey] = (),
        *,
        clock: Callable[[], float] = time.time,
        limits: DiskLimits = NO_LIMITS,
        steady: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
        room: Room | None = None,
    ) -> None:
        """Open the log in a directory, with limits for what other nodes send.

        `clock`: UNIX seconds.  Work is put off by `steady`, seconds of any steady clock, and `spent`, seconds that the
        thread has worked.  `room`: whether its disk takes more; `None`: as the system says.

        Raises `StoreError`, or `DamagedLog` without a readable root entry.
        """
        self.keys = list(keys)
        self.directory = directory
        self.room = room or Room(directory, min_free=limits.min_free)
        self._clock = clock
        self._steady = steady
        self._signer = Signer(self.keys, clock)
        self._store = Store(directory / LOG_FILE)
        self._store.set_limits(limits, self.room.free)
        #: Every writer holds it, and takes it before the lock: blocks of large contents are stored under it alone, so
        #: that no reader waits for the disk.
        self._write_lock = Guard(self._store.database.translate)
        self._lock = Guard(self._store.database.translate)
        self._sync_lock = threading.Lock()
        cache = ContentCache(directory / CACHE_FILE)
        self._contents = Contents(self._store, cache, self._lock)
        self._snapshots = SnapshotReader(self._store.database, cache)
        self._orphans = Orphans()
        self._newcomer = Newcomer()
        self._feed = CommitFeed()
        #: Number of the last commit.
        self._commits = 0
        self._identity: bytes | None = None
        #: There is none before the root entry has arrived.
        self._live: Tree | None = None
        self._observed = False
        self._quick_look = QuickLook(steady, spent)
        #: How many contents have become complete since the log was opened: a directory may show because of one.
        self._completed = 0
        #: The numbers of entries and of these when the needs were looked at, and when they are looked at next,
        #: monotonic seconds.
        self._reviewed = 0, 0
        self._next_review = 0.0
        self._view_hash = ViewHash(self._shown_state, self._peek)
        try:
            with self._lock:
                if self._store.entry_count():
                    self._open_view()
        except BaseException:
            self.close()
            raise

    def _open_view(self) -> None:
        self._live = Tree(self._store, Resolver(self._store, self._contents), observing=self._observed)

    @property
    def _tree(self) -> Tree:
        if self._live is None:
            raise NotFound("nothing of this filesystem has arrived yet: fetch it with 'basefs get'")
        return self._live

    def _author(self, encoder: Encoder | None = None, key: SigningKey | None = None) -> Author:
        if encoder is None:
            encoder = Encoder(self._contents, self._store_blocks)
        signer = self._signer if key is None else Signer([key], self._clock, "the key that was given may not write")
        return Author(self._store, self._contents, self._tree, signer, encoder)

    @classmethod
    def create(
        cls,
        directory: pathlib.Path,
        identity: bytes | None,
        keys: Sequence[SigningKey] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> Replica:
        """An empty log of the filesystem whose root entry has this hash (`None`: of whichever comes first).

        The entries come by `apply`.  Raises `StoreError` if there is a log already.
        """
        with contextlib.closing(Store(directory / LOG_FILE, create=True)) as store:
            if identity is not None:
                with store.transaction():
                    store.database.set_meta("identity", identity)
        return cls(directory, keys, clock=clock)

    def close(self) -> None:
        """Make everything durable and release the files."""
        with self._sync_lock, self._write_lock, self._lock, contextlib.ExitStack() as stack:
            stack.callback(self._store.close)
            stack.callback(self._contents.close)
            stack.callback(self._store.database.sync)
            stack.callback(self._snapshots.close)

    # -- writing ------------------------------------------------------------------------------------------------------

    def subscribe(self, callback: Callable[[Applied], None]) -> None:
        """Have `callback` called after each change."""
        self._feed.subscribe(callback)

    def observe(self) -> None:
        """Have `Applied.changes` hold the changes of all paths from now on, not just of those that were looked at.

        Costs memory for every live path, and the time to resolve them.  Paths that are there already are no changes.
        """
        for _ in self.observed():
            pass

    def observed(self) -> Iterator[list[tuple[Path, State, Entry]]]:
        """`observe`, and what is there: live paths with their states and the entries that they end with.

        A directory at a time, before what is in it, and without the lock in between.  So what changes meanwhile may be
        missing, or be as it was before; but its change is delivered after this was called, and the last one counts.
        """
        with self._lock:
            self._observed = True
            if self._live is None:
                return
            tree = self._live
            portion = tree.begin_observing()
        todo: list[Path] = []
        while True:
            yield [(path, node.state, node.outcome.tips[0]) for path, node in portion]
            todo.extend(path for path, node in reversed(portion) if node.is_directory)
            if not todo:
                return
            self._lock.let_others()
            with self._lock:
                portion = tree.listed(todo.pop())

    def commit(
        self,
        make: Callable[[Author], Draft | Iterable[Draft]],
        *,
        contents: Iterable[tuple[Content, EntryHash | None]] = (),
        rows: Callable[[TreeRows], None] | None = None,
        key: SigningKey | None = None,
    ) -> Applied:
        """Write: `make` drafts entries on the current view, and they are applied at once.

        `make` may also be a generator of drafts: each is in the view before the next one is asked for, and all of them
        reach the log together or not at all.

        `contents` says beforehand what will be written, and behind which entry, so that it is encoded before the lock
        is taken.  For what it leaves out `make` is called again; so it must do nothing but draft
        (`basefs/log/encoder.py`).

        `rows` is called when a series is drafted, to change the worktree's index in the same transaction.  `key` signs,
        instead of this node's.

        Raises what `make` raises, `ReadOnly` on a damaged log, `NoSpace`, `StoreError`.
        """
        encoder = Encoder(self._contents, self._store_blocks)
        for content, tip in contents:
            encoder.prepare(content, self._source(tip))
        while True:
            try:
                with self._write_lock, self._lock:
                    applied, kept = self._draft(make, self._writable(encoder, key), rows)
                    self._put(applied)
                break
            except NotEncoded as missing:
                encoder.prepare(missing.content, missing.base)
        self._feed.deliver()
        # A thread that publishes much calls again at once.
        self._let_others()
        for write, content in kept.items():
            self._contents.keep(write, content)
        return applied

    def _writable(self, encoder: Encoder, key: SigningKey | None) -> Author:
        if self._store.database.damaged:
            raise ReadOnly(f"the log in {self.directory} is damaged and takes no writes: see 'basefs check'")
        return self._author(encoder, key)

    def _draft(
        self,
        make: Callable[[Author], Draft | Iterable[Draft]],
        author: Author,
        rows: Callable[[TreeRows], None] | None,
    ) -> tuple[Applied, dict[EntryHash, Content]]:
        """Draft and apply, in one transaction; also what the writes among it hold."""
        made = make(author)
        if isinstance(made, Draft) and rows is None:
            return self._write(made), made.contents
        batch = Intake(self._store, self._orphans, self._newcomer, now=self._clock(), local=True)
        whole = Draft()
        shown = 0
        try:
            with self._store.transaction():
                for draft in [made] if isinstance(made, Draft) else made:
                    batch.add_own_blocks(draft.blocks)
                    batch.add_entries(draft.entries, "")
                    whole.blocks += draft.blocks
                    whole.contents |= draft.contents
                    whole.large |= draft.large
                    # The next draft builds on this one; nobody else sees the view before the transaction ends.
                    self._show(batch.accepted[shown:], (), now=int(batch.now * 10**9))
                    shown = len(batch.accepted)
                if rows is not None:
                    rows(self._store.tree)
        except BaseException:
            if shown:
                self._undo_view()
            raise
        return self._taken(batch, whole, shown=shown), whole.contents

    def _undo_view(self) -> None:
        """Show again what was there before a transaction that has failed."""
        try:
            self._tree.undo()
        except (BaseFSError, sqlite3.Error):
            # What was there before cannot be read now; the next look at it raises that.
            self._forget_view()

    def _store_blocks(self, blocks: Sequence[Block]) -> None:
        """Store some blocks of a content whose entry comes later."""
        with self._write_lock:
            if not self._store.blocks.store_aside(blocks):
                # Another node writes the same content, and its entry waits for these.
                with self._lock:
                    self._put(replace(self._write(Draft(blocks=list(blocks), large=True)), blocks=()))
        self._feed.deliver()
        self.write_back()

    def write_back(self) -> None:
        """Give back the room of SQLite's WAL if it has grown.  Raises `StoreError`."""
        with self._sync_lock:
            self._store.database.checkpoint()

    def plan(self, make: Callable[[Author], T], key: SigningKey | None = None) -> T:
        """What `make` finds out on the current view, by supposing entries if need be.  The log stays as it is.

        `key` signs what is supposed, instead of this node's.
        """
        with self._write_lock, self._lock:
            return make(self._author(key=key))

    def apply(self, entries: Sequence[Entry], blocks: Sequence[Block], *, peer: str = "") -> Applied:
        """Take in entries and blocks from another node.  Raises `StoreError` only: bad input is in the result."""
        known, seen = self._known([entry.hash for entry in entries])
        return self._apply(Delivery.of((entry for entry in entries if entry.hash not in known), blocks, peer, seen))

    def _known(self, hashes: Sequence[EntryHash]) -> tuple[set[EntryHash], int]:
        """Those of these entries that are in the log, and the number of its last one at the same moment."""
        with self._lock:
            return self._store.known(hashes), self._store.entry_count()

    def _apply(self, delivery: Delivery, *, everything: bool = False) -> Applied:
        # Nobody waits for signatures: they take as long as all the rest.
        delivery.verify(*self._publics(delivery.entries))
        parts: list[Applied] = []
        while not parts or delivery.entries:
            with self._write_lock, self._lock:
                enough = partial(self._has_held_long, self._steady())
                now = self._clock()
                self._store.review()
                if self._store.reserve.is_short and delivery.entries:
                    raise NoSpace("min_free is reached: this node takes nothing of other nodes")
                needs = None if everything else self._is_soon_needed
                batch = Intake(self._store, self._orphans, self._newcomer, now=now, local=False, needs=needs)
                with self._store.transaction():
                    batch.add(delivery, enough)
                parts.append(self._taken(batch))
                self._put(parts[-1])
            self._feed.deliver()
            self._let_others()
        if len(parts) == 1:
            return parts[0]
        with self._lock:
            # What the first ones lacked may have come with the last.
            return Applied.all_of(parts, self._store)

    def _let_others(self) -> None:
        """Wait until the threads that wait for the log have got it."""
        self._write_lock.let_others()
        self._lock.let_others()

    def _put(self, applied: Applied) -> None:
        """Let readers without the lock see what a transaction has changed, and put it into the feed."""
        self._snapshots.remember(applied.entries)
        if applied.entries or applied.completed or applied.missing_parents or applied.lacks_blocks:
            self._contents.cache.drop(removed_contents(applied.changes))
            self._feed.put(applied)

    def _publics(self, entries: Collection[Entry]) -> tuple[dict[EntryHash, bytes], Entry | None]:
        """The key that each of these entries names, of those whose key was granted anywhere.

        Recoveries bring theirs along, and need the root entry, which is returned if it is here.
        """
        recoveries = {entry.hash: entry.content for entry in entries if entry.extensions.recovery is not None}
        with self._lock:
            key = self._store.granted.key
            keys = {fingerprint: key(fingerprint) for fingerprint in {entry.fingerprint for entry in entries}}
            root = self._store.root() if recoveries else None
        publics = {
            entry.hash: public
            for entry in entries
            if (public := keys[entry.fingerprint]) is not None and entry.hash not in recoveries
        }
        return (publics if root is None else publics | recoveries), root

    def _has_held_long(self, since: float) -> bool:
        """Whether both locks have been held for long since a time, monotonic seconds, and a thread waits for one."""
        return self._steady() - since > LONG_HOLD and (self._lock.is_wanted or self._write_lock.is_wanted)

    def _write(self, draft: Draft) -> Applied:
        batch = Intake(self._store, self._orphans, self._newcomer, now=self._clock(), local=True)
        with self._store.transaction():
            # Blocks first: a write whose blocks are here when it comes never waits.
            batch.add_own_blocks(draft.blocks)
            batch.add_entries(draft.entries, "")
        return self._taken(batch, draft)

    def _taken(self, batch: Intake, draft: Draft | None = None, *, shown: int = 0) -> Applied:
        """What a transaction did that was committed now, and of which the view has seen the first `shown` entries."""
        accepted = {placed.entry.hash for placed in batch.accepted}
        completed = tuple(hash for hash in batch.completed if hash not in accepted)
        changes = self._see(batch.accepted, shown, completed, now=int(batch.now * 10**9))
        self._commits += 1
        self._completed += len(completed)
        return Applied(
            commit=self._commits,
            last=self._store.committed[1],
            entries=tuple(placed.entry for placed in batch.accepted),
            blocks=() if draft is None else tuple(draft.blocks),
            completed=completed,
            local=draft is not None,
            large=draft is not None and draft.large,
            new_blocks=batch.new_blocks,
            # The others came in the same transaction.  The log is not asked: it must not fail after the commit.
            missing_parents=tuple(parent for parent in batch.missing_parents if parent not in accepted),
            lacks_blocks=batch.lacks_blocks
            and bool(self._store.blocks.wanted_count)
            and not self._store.blocks.lacks_room,
            rejected=tuple(batch.rejected),
            ungranted=batch.ungranted,
            changes=changes,
        )

    def _see(
        self, accepted: Sequence[Placed], shown: int, completed: Sequence[EntryHash], *, now: int
    ) -> tuple[Change, ...]:
        """What a committed transaction has changed in the view, which has seen its first `shown` entries before.

        Where the log cannot be read the view is dropped and has no changes: the entries are in the log and must reach
        the peers, and the next look at the view raises the error.
        """
        try:
            self._show(accepted[shown:], completed, now=now)
            if self._live is None:
                return ()
            return self._live.settle()
        except (BaseFSError, sqlite3.Error) as error:
            reason = self._store.database.translate(error) if isinstance(error, sqlite3.Error) else error
            log.error("cannot update the view ahead of reads: %s", reason)
            self._forget_view()
            return ()

    def _forget_view(self) -> None:
        if self._live is not None:
            self._live.forget()

    def _show(self, accepted: Sequence[Placed], completed: Sequence[EntryHash], *, now: int) -> None:
        """Let the view take in what the log has."""
        try:
            self._update_view(accepted, completed, now=now)
        except (StoreError, sqlite3.Error):
            # The log cannot be read, so nothing can be built from it now.
            raise
        except Exception:
            # The entries are in the log and must reach the peers, whatever the view makes of them.
            log.exception("view failed, which is a bug: rebuilding it from the log")
            self._tree.rebuild()

    def _update_view(self, accepted: Sequence[Placed], completed: Sequence[EntryHash], *, now: int) -> None:
        if self._live is None:
            if accepted:
                self._open_view()
            return
        writes = [write for hash in completed if (write := self._store.get(hash)) is not None]
        self._live.update(accepted, writes, now=now)

    @property
    def is_durable(self) -> bool:
        """Whether everything committed is synced, or another thread syncs it."""
        return not self._store.database.unsynced

    def sync_to_disk(self) -> None:
        """Make everything committed survive a power cut.  Raises `StoreError`."""
        # A sync under way may cover this caller's commit, so the caller waits for it.
        with self._sync_lock:
            with self._lock:
                if not self._store.database.take_unsynced():
                    return
            try:
                self._store.database.sync()
            except BaseException:
                self._store.database.mark_unsynced()
                raise

    def look_again(self, seconds: float) -> int:
        """How many contents should be asked for again: no block came for that long, or there is room or need again."""
        with self._write_lock, self._lock:
            again = self._store.review() + self._store.blocks.stopped(self._clock(), seconds)
        return again + self.review_needs()

    def _is_soon_needed(self, write: Placed) -> bool:
        """Whether a content should come at once, by a quick look at its key; `review_needs` looks again."""
        return self._live is None or self._quick_look.is_needed(self._store, self._live, write)

    def _shown_state(self) -> bytes:
        """The root hash, or where contents are missing another one: what is shown follows from it, if it is known."""
        if not self._knows_needs():
            return ZERO_HASH
        with self._lock:
            # Both of one commit: of two, it would say that contents are shown which are not.
            root, lacks = self._store.committed.root, self._store.committed.lacks
        return root if lacks == ZERO_HASH else sha224(root + lacks)

    def _knows_needs(self) -> bool:
        """Whether it is known which contents are needed, of the log as it is now."""
        return not self._store.blocks.withheld or self._reviewed == self._needs_version

    @property
    def _needs_version(self) -> tuple[int, int]:
        return self._store.committed[1], self._completed

    def review_needs(self, *, at_once: bool = False) -> int:
        """Find out anew which of the contents that are not here are needed, if entries have come since.

        A review takes a tenth of the time at the most, unless `at_once`.  Returns how many should be asked for again.
        """
        started = self._steady()
        if started < self._next_review and not at_once:
            return 0
        with self._lock:
            seen = self._needs_version
            if self._live is None or seen == self._reviewed:
                return 0
            waiting = self._store.blocks.waiting_writes()
            # What comes meanwhile causes another review.
            needs = Needs(self._store, self._contents, self._tree)
        found = dict.fromkeys((write for writes in waiting.values() for write in writes), False)
        while waiting:
            self._let_others()
            with self._lock:
                since = self._steady()
                while waiting and self._steady() - since < LONG_HOLD:
                    path_id, writes = waiting.popitem()
                    found.update(dict.fromkeys(needs.of(path_id, writes), True))
        count = 0
        if found:
            count = self._set_needed(found)
        self._reviewed = seen
        self._next_review = started + 10 * (self._steady() - started)
        return count

    def _set_needed(self, needed: Mapping[EntryHash, bool]) -> int:
        with self._write_lock, self._lock:
            batch = Intake(self._store, self._orphans, self._newcomer, now=self._clock(), local=False)
            with self._store.transaction():
                wanted, completed = self._store.blocks.set_needed(needed)
                # They may have come while nothing needed them, and from a node that is gone now.
                batch.take_held(wanted)
            batch.completed += completed
            self._put(self._taken(batch))
        self._feed.deliver()
        return len(wanted)

    def limit_reached(self) -> str:
        """The setting because of which the contents of other nodes wait, empty if they come."""
        with self._lock:
            return self._store.reserve.reached()

    def add(
        self, entries: Sequence[bytes], blocks: Sequence[bytes], *, peer: str = "", everything: bool = False
    ) -> AddResult:
        """`apply` for encoded entries and blocks; `everything`: also contents that no view shows."""
        decoded: list[Entry] = []
        pieces: list[Block] = []
        rejected: list[str] = []
        later: list[bytes] = []
        # Before they are decoded, which costs more: a peer that sends known entries again and again should cost little.
        hashes = [hash_of(raw) for raw in entries]
        known, seen = self._known(hashes)
        for raw, hash in zip(entries, hashes, strict=True):
            if hash in known:
                continue
            try:
                decoded.append(Entry.decode(raw, hash))
            except InvalidEntry as error:
                rejected.append(str(error))
                if isinstance(error, UnsupportedEntry):
                    later.append(raw)
        for raw in blocks:
            try:
                pieces.append(Block.decode(raw))
            except InvalidEntry as error:
                rejected.append(str(error))
        applied = self._apply(Delivery.of(decoded, pieces, peer, seen), everything=everything)
        keys = list(map(self._key_of, later))
        return AddResult(
            accepted=len(applied.entries) + applied.new_blocks,
            missing_parents=applied.missing_parents,
            lacks_blocks=applied.lacks_blocks,
            rejected=(*rejected, *applied.rejected),
            ungranted=applied.ungranted + keys.count(None),
            unsupported=sum(key is not None and is_signed_by(key, raw) for key, raw in zip(keys, later, strict=True)),
        )

    def _key_of(self, encoded: bytes) -> bytes | None:
        """The raw public key that has signed an encoded entry, as it says; `None` if no grant here names it."""
        with self._lock:
            return self._store.granted.key(signer_of(encoded))

    def totals(self) -> dict[str, int]:
        """Sizes, for people: entries, blocks, orphans, bytes on disk."""
        with self._lock:
            return {
                "entries": self._store.entry_count(),
                "blocks": self._store.blocks.total(),
                "orphans": len(self._orphans),
                "bytes": sum(file.stat().st_size for file in self.directory.glob(f"{LOG_FILE}*")),
            }

    # -- reading the tree ---------------------------------------------------------------------------------------------

    def attributes(self, path: Path) -> Attributes:
        """What is at a path.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            node = self._tree.node(path)
            writable = self._signer.may_write(node.authority) and not self._store.database.damaged
            return Attributes.of(node, writable=writable)

    def names_in(self, path: Path) -> dict[bytes, Kind]:
        """The names in a directory.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            return {name: child.state.kind for name, child in self._tree.children(self._directory(path)).items()}

    def _directory(self, path: Path) -> Node:
        node = self._tree.node(path)
        if not node.is_directory:
            raise NotADirectory(f"{display(path)} is not a directory")
        return node

    def open(self, path: Path) -> Content:
        """The content of a file as it is now, whatever happens to its path later; to be read without the lock.

        A large one is unpacked when it is first read, and must be closed.  Raises `NotFound`, `IsADirectory`,
        `StoreError`; reading it raises `StoreError`.
        """
        with self._lock:
            node = self._tree.node(path)
            if node.is_directory:
                raise IsADirectory(f"{display(path)} is a directory")
            state = node.state
        return BytesContent(state.target) if state.content is None else self._contents.open(state.content)

    def read(self, path: Path) -> bytes:
        """All of the content of a file, in memory.  Raises as `open`."""
        content = self.open(path)
        try:
            return content.whole()
        finally:
            content.close()

    def read_link(self, path: Path) -> bytes:
        """The target of a symbolic link.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            return self._tree.node(path).state.target

    def live_paths(self) -> list[tuple[Path, Kind]]:
        """Every live path, directories before what they hold."""
        with self._lock:
            return [(path, node.state.kind) for path, node in self._tree.walk()]

    def grants(self, path: Path) -> list[Grant]:
        """The grants and admits in force that hang on a path; none where nothing is."""
        with self._lock:
            node = self._tree.find(path)
            if node is None:
                return []
            here = self._store.key_hashes_at(node.path_id)
            return [grant for grant in node.authority.in_force if grant.entry.hash in here]

    def members(self) -> frozenset[bytes]:
        """The raw public keys of those who may read the filesystem; none before the root entry has arrived.

        An expired invitation is none of them, by the clock of this node.
        """
        return self.membership().keys

    def membership(self) -> Members:
        """The members, and those that are invitations."""
        with self._lock:
            if self._live is None:
                return NOBODY
            granted = MemberGrants.look(self._store, self._live)
        # Without the lock: there may be any number of grants.
        return members(granted, self._clock())

    def root_keys(self) -> frozenset[bytes]:
        """The raw public keys that are valid at `/`."""
        with self._lock:
            node = None if self._live is None else self._live.find(())
            found = () if node is None else (self._store.granted.key(key) for key in node.authority.depths)
            return frozenset(key for key in found if key is not None)

    @property
    def is_open(self) -> bool:
        """Whether anybody may read the filesystem, as its root entry says; `False` before that has arrived."""
        with self._lock:
            root = self._store.get(EntryHash(self.identity))
            return root is not None and root.entry.extensions.is_open

    def is_root_key(self, fingerprint: Fingerprint) -> bool:
        """Whether this is the root key, which is valid everywhere and cannot be revoked."""
        with self._lock:
            return self._live is not None and fingerprint in self._live.resolver.root_authority().depths

    def survey(self, path: Path) -> Survey:
        """Every entry of a path, live or not, and what it is worth.  Raises `NotFound` where nothing ever was."""
        return self.examine(path, lambda found: found)

    def examine(self, path: Path, look: Callable[[Survey], T]) -> T:
        """What `look` makes of a path's survey under the lock, which its revisions need.  Raises `NotFound`."""
        with self._lock:
            found = survey(self._store, self._tree, path)
            if found is None:
                raise NotFound(f"the log has nothing at {display(path)}")
            return look(found)

    def forked_paths(self) -> list[Path]:
        """The paths where something can have lost, live or not; takes no lock."""
        return self._snapshots.forked_paths()

    def competing_paths(self, entries: Iterable[EntryHash]) -> list[Path]:
        """The paths of those of these entries beside which there is another one; takes no lock."""
        return self._snapshots.competing(entries)

    def paths_of(self, entries: Iterable[EntryHash]) -> list[Path]:
        """The paths of those of these entries that are here, each once; takes no lock."""
        return self._snapshots.paths_of(entries)

    def content_at(self, entry: EntryHash) -> bytes:
        """What the content of a path was at an entry, empty where it was no file.

        Raises `NotFound` for an unknown entry, `IncompleteContent`, `DamagedLog`.
        """
        content = self.open_at(entry)
        try:
            return content.whole()
        finally:
            content.close()

    def open_at(self, entry: EntryHash) -> Content:
        """`content_at` as a content that is read in pieces; it must be closed."""
        with self._lock:
            if entry not in self._store:
                raise NotFound(f"there is no entry {entry.hex()[:12]}: 'basefs log' lists the entries of a path")
            source = self._contents.lineages.source(entry)
        return BytesContent(b"") if source is None else self._contents.open(source)

    def open_write(self, write: EntryHash) -> Content:
        """The content of a write entry that the view shows; a small one is read without the lock.

        Raises as `open_at`.
        """
        content = self._snapshots.open_small(write)
        return self._contents.open(write) if content is None else BytesContent(content)

    def find_entries(self, prefix: str) -> list[EntryHash]:
        """The entries whose hash begins with these hexadecimal digits."""
        with self._lock:
            return self._store.find(prefix)

    def _source(self, tip: EntryHash | None) -> EntryHash | None:
        """The write whose content a path has at an entry."""
        if tip is None:
            return None
        with self._lock:
            try:
                return self._contents.lineages.source(tip)
            except StoreError:
                return None

    def rows(self, read: Callable[[TreeRows], T]) -> T:
        """What `read` finds in the worktree's index."""
        with self._lock:
            return read(self._store.tree)

    def keep_rows(self, write: Callable[[TreeRows], None]) -> None:
        """Change the worktree's index, in one transaction.  Raises `StoreError`."""
        with self._write_lock, self._lock, self._store.transaction():
            write(self._store.tree)

    def outcomes(self, paths: Sequence[Path]) -> dict[Path, Outcome | None]:
        """What the view shows at paths, `None` for nothing; keeps nothing of it in memory.

        Each is as of some moment during the call.
        """
        found: dict[Path, Outcome | None] = {}
        todo = sorted(paths)
        for start in range(0, len(todo), _PORTION):
            portion = todo[start : start + _PORTION]
            with self._lock:
                if self._live is None:
                    return dict.fromkeys(paths)
                glance = Glance(self._live)
                for path, node in glance.find_all(portion).items():
                    found[path] = None if node is None else node.outcome
            self._lock.let_others()
        return found

    def write_at(self, entry: EntryHash) -> EntryHash | None:
        """The write whose content a path has at an entry; `None` where it is no file, or that is not known."""
        return self._source(entry)

    def names_ever(self, path: Path) -> list[bytes]:
        """The names that entries ever gave to something in a directory."""
        with self._lock:
            path_id = self._store.paths.id_of(path)
            return [] if path_id is None else [name for name, _ in self._store.paths.children(path_id)]

    def arrived(self, behind: int, completed: Collection[EntryHash]) -> dict[Path, bool]:
        """The paths that the view may show otherwise because of the entries behind a number and of completed writes.

        `True`: also all below it, because keys were granted or revoked there that have signed something.  What a
        directory's kind says of the paths below is left to the caller, as is what a path says of the directories above.
        """
        with self._lock:
            store = self._store
            found = store.arrived(behind)
            todo = [write.path_id for hash in completed if (write := store.get(hash)) is not None]
            looked = set[int]()
            while todo:
                path_id = todo.pop()
                if path_id not in looked:
                    looked.add(path_id)
                    found.setdefault(path_id, False)
                    # A link shows the content that it names once that is complete.
                    todo += [link.path_id for link in store.links_to(path_id)]
            return {store.paths.path_of(path_id): deep for path_id, deep in found.items()}

    def may_write(self, path: Path) -> bool:
        """Whether a key of this node may write at a path, or where nothing is, in the nearest directory above."""
        with self._lock:
            damaged = bool(self._store.database.damaged)
            return not damaged and self._signer.may_write(Glance(self._tree).nearest(path).authority)

    def granted_paths(self) -> list[Path]:
        """The paths on which a key was ever granted."""
        with self._lock:
            return [self._store.paths.path_of(path_id) for path_id in self._store.granted.paths()]

    @property
    def entry_count(self) -> int:
        """The number of the last entry; takes no lock."""
        return self._store.committed[1]

    def places(self, entries: Iterable[EntryHash]) -> list[tuple[Path, Placed]]:
        """Where entries stand that are in the log."""
        with self._lock:
            placed = (self._store.get(hash) for hash in entries)
            return [(self._store.paths.path_of(one.path_id), one) for one in placed if one is not None]

    def state_after(self, entry: EntryHash) -> State | None:
        """What the path of an entry was after it; `None` where that is not known."""
        with self._lock:
            placed = self._store.get(entry)
            if placed is None:
                return None
            found = survey(self._store, self._tree, self._store.paths.path_of(placed.path_id))
            return None if found is None else found.states.get(entry)

    def key_names(self) -> dict[Fingerprint, str]:
        """The names of keys, for people (`basefs/view/keynames.py`)."""
        with self._lock:
            return key_names(self._store, self._tree)

    def _peek(self, node: Node | None) -> tuple[Node, list[tuple[bytes, Node]]]:
        """A directory and what is in it, `None` being the root; valid as long as the log does not change."""
        with self._lock:
            node = node or self._tree.root
            portions = self._tree.peek(node)
        children: list[tuple[bytes, Node]] = []
        while True:
            self._lock.let_others()
            with self._lock:
                portion = next(portions, None)
            if portion is None:
                return node, children
            children += portion

    def check_view(self) -> list[Path]:
        """The paths where the live view differs from a rebuild: none, or a bug."""
        with self._lock:
            return self._tree.check()

    def view_hash(self, wanted: bytes | None = None) -> tuple[bytes, bytes]:
        """A hash of the log, and one of all that it shows: `ZERO_HASH` where the former is not the one that is wanted.

        The latter is also `ZERO_HASH` while the log changes, or while it is not known which contents are needed.
        """
        return self._view_hash.of(wanted)

    @property
    def damaged(self) -> int:
        """Rows found damaged since the log was opened."""
        return len(self._store.database.damaged)

    # -- the interface of the sync protocol (basefs/log/interface.py) -------------------------------------------------

    @property
    def name(self) -> str:
        """What the filesystem is called on this node, as its directory."""
        return self.directory.name

    @property
    def identity(self) -> bytes:
        """Hash of the root entry; zero in an empty log that takes the first filesystem that comes."""
        if self._identity is None:
            # What it is once, it stays.
            self._identity = self._snapshots.identity()
        return self._identity or ZERO_HASH

    def root_hash(self) -> bytes:
        """The Merkle hash of everything."""
        return self._store.committed[0]

    def digest(self) -> Digest:
        """See `LogState`.  A content counts as missing until it is known whether it is needed."""
        digest = self._store.committed
        withheld = 0 if self._knows_needs() else self._store.blocks.withheld
        return digest._replace(missing=digest.missing + withheld, lacks=ZERO_HASH) if withheld else digest

    def lacking(self) -> int:
        """How many contents are needed and not here, as far as is known."""
        return self._store.committed.missing

    def path_hash(self, path: Path) -> bytes:
        """Merkle hash of a path; zero where it is unknown."""
        return self._snapshots.path_hash(path)

    def child_hashes(self, path: Path, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """The Merkle hashes of those of these names in a path that are known."""
        return self._snapshots.child_hashes(path, names)

    def listing(self, path: Path) -> Listing | None:
        """What the Merkle tree holds at a path, `None` where it is unknown."""
        return self._snapshots.listing(path)

    def walk(self, path: Path) -> Iterator[bytes]:
        """The encoded entries of a path and of all below it, parents first; looks at one path at a time."""
        return self._snapshots.walk(path)

    def entry(self, hash: EntryHash) -> bytes | None:
        """The encoding of an entry, `None` if it is unknown."""
        return self._snapshots.entry(hash)

    def block(self, hash: BlockHash) -> bytes | None:
        """The encoding of a block, `None` if it is unknown."""
        return self._snapshots.block(hash)

    def has_block(self, hash: BlockHash) -> bool:
        """Whether a block is here."""
        return self._snapshots.has_block(hash)

    def wants_block(self, hash: BlockHash) -> bool:
        """Whether a block is one of the `missing_blocks`."""
        if self._store.blocks.lacks_room or not self._store.blocks.wanted_count:
            return False
        return self._snapshots.wants_block(hash)

    def missing_blocks(self, limit: int, behind: int = 0) -> list[tuple[int, BlockHash]]:
        """See `LogState`."""
        if self._store.blocks.lacks_room or not self._store.blocks.wanted_count:
            return []
        return self._snapshots.missing_blocks(limit, behind)

    # -- for people ---------------------------------------------------------------------------------------------------

    def wait(self) -> float:
        """Take the lock and let it go again; the seconds for which somebody else had it."""
        start = time.monotonic()
        with self._lock:
            return time.monotonic() - start

    def awaited(self) -> list[tuple[Path, Entry, bool]]:
        """The writes whose contents are needed and not here, by path; and whether they are newer than what it shows."""
        with self._lock:
            placed = map(self._store.get, self._store.blocks.wanted())
            found = [
                (self._store.paths.path_of(one.path_id), one.entry, self._tree.is_newest(one))
                for one in placed
                if one is not None
            ]
        return sorted(found, key=lambda each: (each[0], each[1].made, each[1].hash))

    def incomplete(self) -> list[tuple[Path, Entry, Incomplete]]:
        """The writes whose content is not complete, with their paths; those that changed last first."""
        with self._lock:
            found = []
            for incomplete in self._store.blocks.incomplete(self._clock()):
                placed = self._store.get(incomplete.entry)
                if placed is not None:
                    found.append((self._store.paths.path_of(placed.path_id), placed.entry, incomplete))
            return found
