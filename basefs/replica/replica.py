"""The replica: log, view and Merkle state of one filesystem behind one lock (paper, section 4; docs/architecture.md).

Invariants

1. `apply` is the one way into the log, for entries written here, received, or read again after a restart (where there
   is nothing to read: derived state is in the log file, and the view is resolved when somebody looks).
2. An entry is committed to the log before the view shows it.
3. The lock is held for one transaction at the most.  One of entries that others have sent ends soon after `LONG_HOLD`
   if somebody waits; blocks that came without their entry are never divided, so who hands them in decides how long
   they take.  Nobody verifies, or waits for the network or for fsync, while holding it, and no content of more
   than some kilobytes is encoded, decoded or compared under it.
4. Subscribers are called without the lock, in the order in which the log grew, whichever thread applied.
"""

from __future__ import annotations

import logging
import pathlib
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from basefs.errors import BaseFSError, InvalidEntry, ReadOnly, StoreError
from basefs.log.blocks import Block
from basefs.log.content import Content
from basefs.log.entries import Action, Entry, hash_of
from basefs.log.guard import Guard
from basefs.log.hashes import EntryHash
from basefs.log.intake import Delivery, Intake, Newcomer
from basefs.log.interface import AddResult
from basefs.log.keys import SigningKey
from basefs.log.orphans import Orphans
from basefs.log.placement import Placed
from basefs.log.preparations import Preparations
from basefs.log.store import Store
from basefs.path import Path
from basefs.replica.applied import Applied
from basefs.replica.feed import Publisher
from basefs.replica.queries import CACHE_FILE, LOG_FILE, Queries
from basefs.view.appearance import Attributes
from basefs.view.author import Author
from basefs.view.changes import Change
from basefs.view.draft import Draft
from basefs.view.states import State

__all__ = ["CACHE_FILE", "LOG_FILE", "Applied", "Attributes", "Replica"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds after which a delivery of another node lets those go first who wait for the log.  Readers wait for that and
#: for one transaction's end; a shorter time makes more transactions, each of which writes pages anew.
LONG_HOLD = 0.005


class _Unprepared(Exception):
    """A series of drafts must be made again: not all contents are prepared."""


class Replica(Queries):
    """One filesystem on this node.  Thread-safe."""

    def __init__(
        self,
        directory: pathlib.Path,
        keys: Sequence[SigningKey] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the log in a directory.  Raises `StoreError`, or `DamagedLog` without a readable root entry."""
        super().__init__(directory, keys, clock=clock)
        #: Who writes to the log holds it, and takes it before the lock: blocks of large contents are stored under it
        #: alone, so that nobody who reads waits for the disk.
        self._write_lock = Guard(self._store.database.translate)
        self._sync_lock = threading.Lock()
        self._orphans = Orphans()
        self._publisher: Publisher[Applied] = Publisher()
        self._newcomer = Newcomer()

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
        store = Store(directory / LOG_FILE, create=True)
        if identity is not None:
            with store.transaction():
                store.database.set_meta("identity", identity)
        store.close()
        return cls(directory, keys, clock=clock)

    def close(self) -> None:
        """Make everything durable and release the files."""
        # The last one for who reads what is committed: no connection is closed in the middle of a statement.
        with self._sync_lock, self._write_lock, self._lock, self._committed.lock, self._told.lock:
            self._store.database.sync()
            self._contents.close()
            self._store.close()

    # -- writing ------------------------------------------------------------------------------------------------------

    def subscribe(self, callback: Callable[[Applied], None]) -> None:
        """Have `callback` called after each change."""
        self._publisher.subscribe(callback)

    def observe(self) -> None:
        """Have `Applied.changes` tell the changes of all paths from now on, not just of those that were looked at.

        Costs memory for every live path, and the time to resolve them.  Paths that are there already are not told.
        """
        for _ in self.observed():
            pass

    def observed(self) -> Iterator[list[tuple[Path, State, EntryHash]]]:
        """`observe`, and what is there: live paths with their states and the entries that they end with.

        A directory at a time, before what is in it, and without the lock in between.  So what changes meanwhile may be
        missing, or be as it was before; but then its change is told after this was called, and the last one counts.
        """
        with self._lock:
            self._observed = True
            if self._live is None:
                return
            tree = self._live.tree
            portion = tree.begin_observing()
        todo: list[Path] = []
        while True:
            yield [(path, node.state, node.outcome.tips[0].hash) for path, node in portion]
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
        contents: Iterable[tuple[Path, Content]] = (),
    ) -> Applied:
        """Write: `make` drafts entries on the current view, and they are applied at once.

        `make` may also be a generator of drafts: each is in the view before the next one is asked for, and all of them
        reach the log together or not at all.

        `make` is called again, on what the view is then, for as long as contents must be prepared, which happens
        without the lock; so it must do nothing but draft.  It ends, see `basefs/log/preparations.py`.  `contents` says
        beforehand what will be written where, so that a series need not be begun in vain; being wrong costs time only.

        Raises what `make` raises, `ReadOnly` on a damaged log, `NoSpace`, `StoreError`.
        """
        preparations = Preparations(self._contents)
        try:
            self._foresee(list(contents), preparations)
            while (written := self._try(make, preparations)) is None:
                preparations.work(self._store_blocks)
        finally:
            preparations.close()
        applied, kept = written
        self._publisher.deliver()
        # Who publishes much calls again at once.
        self._let_others()
        for write, content in kept.items():
            self._contents.keep(write, content)
        return applied

    def _writer(self, preparations: Preparations) -> Author:
        if self._store.database.damaged:
            raise ReadOnly(f"the log in {self.directory} is damaged and takes no writes: see 'basefs check'")
        self._view.author.preparations = preparations
        return self._view.author

    def _foresee(self, contents: Sequence[tuple[Path, Content]], preparations: Preparations) -> None:
        while contents:
            preparations.begin()
            for path, content in contents:
                with self._lock:
                    self._writer(preparations).foresee(path, content)
                # Each may take 2 ms, and others have a file to open or a peer to answer.
                self._lock.let_others()
            if preparations.complete:
                return
            preparations.work(self._store_blocks)

    def _try(
        self, make: Callable[[Author], Draft | Iterable[Draft]], preparations: Preparations
    ) -> tuple[Applied, dict[EntryHash, Content]] | None:
        """One attempt to draft and apply; `None` where something must be prepared first."""
        with self._write_lock, self._lock:
            preparations.begin()
            try:
                made = make(self._writer(preparations))
                if isinstance(made, Draft):
                    if not preparations.complete:
                        return None
                    applied = self._write(made.entries, made.blocks, large=preparations.large)
                    kept = made.contents
                else:
                    applied, kept = self._write_series(made, preparations)
                self._put(applied)
                return applied, kept
            except _Unprepared:
                return None
            except BaseFSError:
                if preparations.complete:
                    raise
                # It was drafting on what is not there.
                return None

    def _write_series(
        self, drafts: Iterable[Draft], preparations: Preparations
    ) -> tuple[Applied, dict[EntryHash, Content]]:
        """Apply drafts that build on each other, in one transaction; nobody else sees the view before it ends."""
        batch = Intake(self._store, self._orphans, self._newcomer, now=self._clock(), local=True)
        blocks: list[Block] = []
        kept: dict[EntryHash, Content] = {}
        shown = 0
        try:
            with self._store.transaction():
                for draft in drafts:
                    batch.add_own_blocks(draft.blocks)
                    batch.add_entries(draft.entries, "")
                    blocks.extend(draft.blocks)
                    kept.update(draft.contents)
                    self._show(batch.accepted[shown:], (), now=int(batch.now))
                    shown = len(batch.accepted)
                if not preparations.complete:
                    raise _Unprepared
        except BaseException:
            if shown:
                # The view shows entries that the log does not have; for those who look at it, nothing has changed.
                try:
                    self._view.tree.undo()
                    self._view.appearance.forget(self._view.tree.disturbed)
                except (BaseFSError, sqlite3.Error):
                    # What was there before cannot be read now; who looks meets that.
                    self._forget_view()
            raise
        return self._taken(batch, blocks, shown=shown, local=True, large=preparations.large), kept

    def _store_blocks(self, blocks: Sequence[Block]) -> None:
        """Store some blocks of a content whose entry comes later."""
        with self._write_lock:
            if not self._store.chains.store_aside(blocks):
                # Another node writes the same content, and its entry waits for these.
                with self._lock:
                    self._put(replace(self._write((), blocks, large=True), blocks=()))
        self._publisher.deliver()
        self._checkpoint()

    def _checkpoint(self) -> None:
        with self._sync_lock:
            self._store.database.checkpoint()

    def is_told(self, path: Path) -> bool:
        """Whether all subscribers have heard of what the view shows at a path."""
        return not any(change.path == path for applied in self._publisher.untold() for change in applied.changes)

    def plan(self, make: Callable[[Author], T]) -> T:
        """What `make` finds out on the current view, by supposing entries if need be.  The log stays as it is."""
        with self._write_lock, self._lock:
            return make(self._view.author)

    def apply(self, entries: Sequence[Entry], blocks: Sequence[Block], *, peer: str = "") -> Applied:
        """Take in entries and blocks from another node.  Raises `StoreError` only: bad input is in the result."""
        known, seen = self._known([entry.hash for entry in entries])
        return self._apply(Delivery.of((entry for entry in entries if entry.hash not in known), blocks, peer, seen))

    def _known(self, hashes: Sequence[EntryHash]) -> tuple[set[EntryHash], int]:
        """Those of these entries that are in the log, and the number of its last one at the same moment."""
        with self._lock:
            return self._store.known(hashes), self._store.entry_count()

    def _apply(self, delivery: Delivery) -> Applied:
        # Nobody waits for signatures: they take as long as all the rest.
        delivery.verify(self._publics(delivery.entries))
        parts: list[Applied] = []
        while not parts or delivery.entries:
            with self._write_lock, self._lock:
                enough = partial(self._has_held_long, time.monotonic())
                batch = Intake(self._store, self._orphans, self._newcomer, now=self._clock(), local=False)
                with self._store.transaction():
                    batch.add(delivery, enough)
                parts.append(self._taken(batch))
                self._put(parts[-1])
            self._publisher.deliver()
            self._let_others()
        if len(parts) == 1:
            return parts[0]
        with self._lock:
            # What the first ones lacked may have come with the last.
            return Applied.all_of(parts, self._store)

    def _let_others(self) -> None:
        """Until those who wait for the log have got it."""
        self._write_lock.let_others()
        self._lock.let_others()

    def _put(self, applied: Applied) -> None:
        """Show what a transaction has changed to those who look without the lock, and have it told.

        Whoever sees what is new can know that not everybody has heard of it (`is_told`), and nobody hears of it before
        it can be seen.
        """
        self._told.remember(applied.entries)
        is_news = bool(applied.entries or applied.completed or applied.missing_parents or applied.missing_blocks)
        if is_news:
            self._publisher.prepare(applied)
        if self._live is not None:
            if any(entry.action is Action.LINK for entry in applied.entries):
                # A link counts for all names of its file, also where nobody has looked.
                self._live.appearance.forget(None)
            else:
                self._live.appearance.renew(self._live.tree.disturbed)
        if is_news:
            self._publisher.put(applied)

    def _publics(self, entries: Collection[Entry]) -> dict[EntryHash, bytes]:
        """The key that each of these entries names, of those whose key was granted anywhere."""
        with self._lock:
            only_key = self._store.granted.only_key
            keys = {fingerprint: only_key(fingerprint) for fingerprint in {entry.fingerprint for entry in entries}}
        return {entry.hash: public for entry in entries if (public := keys[entry.fingerprint]) is not None}

    def _has_held_long(self, since: float) -> bool:
        """Whether somebody waits for who holds both locks since that time, monotonic seconds, and that is long."""
        return time.monotonic() - since > LONG_HOLD and (self._lock.is_wanted or self._write_lock.is_wanted)

    def _write(self, entries: Sequence[Entry], blocks: Sequence[Block], *, large: bool) -> Applied:
        batch = Intake(self._store, self._orphans, self._newcomer, now=self._clock(), local=True)
        with self._store.transaction():
            # Blocks first: a chain that is complete when its entry comes never waits.
            batch.add_own_blocks(blocks)
            batch.add_entries(entries, "")
        return self._taken(batch, blocks, local=True, large=large)

    def _taken(
        self,
        batch: Intake,
        blocks: Sequence[Block] = (),
        *,
        shown: int = 0,
        local: bool = False,
        large: bool = False,
    ) -> Applied:
        """What a transaction did that was committed now, and of which the view has seen the first `shown` entries."""
        accepted = {placed.entry.hash for placed in batch.accepted}
        completed = tuple(hash for hash in batch.completed if hash not in accepted)
        changes = self._see(batch.accepted, shown, completed, now=int(batch.now))
        return Applied(
            entries=tuple(placed.entry for placed in batch.accepted),
            blocks=tuple(blocks) if local else (),
            completed=completed,
            local=local,
            large=large,
            new_blocks=batch.new_blocks,
            # The others came in the same transaction.  The log is not asked: it must not fail after the commit.
            missing_parents=tuple(parent for parent in batch.missing_parents if parent not in accepted),
            missing_blocks=tuple(
                missing for first in batch.chains if (missing := self._store.chains.missing_block(first)) is not None
            ),
            rejected=tuple(batch.rejected),
            ungranted=batch.ungranted,
            changes=changes,
        )

    def _see(
        self, accepted: Sequence[Placed], shown: int, completed: Sequence[EntryHash], *, now: int
    ) -> tuple[Change, ...]:
        """What a committed transaction has changed in the view, which has seen its first `shown` entries before.

        Where the log cannot be read the view forgets what it knows, and tells no changes: the entries are in the log
        and must be told to the others, and who looks at the view meets the error.
        """
        try:
            self._show(accepted[shown:], completed, now=now)
            if self._live is None:
                return ()
            return self._live.tree.settle()
        except (BaseFSError, sqlite3.Error) as error:
            reason = self._store.database.translate(error) if isinstance(error, sqlite3.Error) else error
            log.error("what has changed cannot be shown before it is asked for: %s", reason)
            self._forget_view()
            return ()

    def _forget_view(self) -> None:
        if self._live is not None:
            self._live.tree.forget()
            self._live.appearance.forget(None)

    def _show(self, accepted: Sequence[Placed], completed: Sequence[EntryHash], *, now: int) -> None:
        """Let the view take in what the log has."""
        try:
            self._update_view(accepted, completed, now=now)
        except (StoreError, sqlite3.Error):
            # The log cannot be read, so nothing can be built from it now.
            raise
        except Exception:
            # The entries are in the log and must be told to the others, whatever the view makes of them.
            log.exception("a bug in the view: it is built again from the log")
            self._view.tree.rebuild()
            self._view.appearance.forget(None)

    def _update_view(self, accepted: Sequence[Placed], completed: Sequence[EntryHash], *, now: int) -> None:
        if self._live is None:
            if accepted:
                self._open_view()
            return
        for placed in accepted:
            self._live.tree.update(placed, now=now, is_new=True)
        for hash in completed:
            write = self._store.get(hash)
            if write is not None:
                self._live.tree.update(write, now=now, is_new=False)

    @property
    def is_durable(self) -> bool:
        """Whether everything committed is synced, or another thread syncs it."""
        return not self._store.database.unsynced

    def sync_to_disk(self) -> None:
        """Make everything committed survive a power cut.  Raises `StoreError`."""
        # Whoever finds another one syncing waits for it: what it took up may hold this caller's commit.
        with self._sync_lock:
            with self._lock:
                if not self._store.database.take_unsynced():
                    return
            try:
                self._store.database.sync()
            except StoreError:
                self._store.database.mark_unsynced()
                raise
            self._store.database.checkpoint()

    def stall(self, seconds: float) -> int:
        """Chains without a block for that long become *stalled* (paper, section 3.2.2); returns how many."""
        with self._write_lock, self._lock:
            return self._store.stall(older_than=self._clock() - seconds)

    def add(self, entries: Sequence[bytes], blocks: Sequence[bytes], *, peer: str = "") -> AddResult:
        """`apply` for encoded entries and blocks."""
        decoded: list[Entry] = []
        pieces: list[Block] = []
        rejected: list[str] = []
        # Before they are decoded, which costs more: who sends what is here again and again should cost little.
        hashes = [hash_of(raw) for raw in entries]
        known, seen = self._known(hashes)
        for raw, hash in zip(entries, hashes, strict=True):
            if hash in known:
                continue
            try:
                decoded.append(Entry.decode(raw))
            except InvalidEntry as error:
                rejected.append(str(error))
        for raw in blocks:
            try:
                pieces.append(Block.decode(raw))
            except InvalidEntry as error:
                rejected.append(str(error))
        applied = self._apply(Delivery.of(decoded, pieces, peer, seen))
        return AddResult(
            accepted=len(applied.entries) + applied.new_blocks,
            missing_parents=applied.missing_parents,
            missing_blocks=applied.missing_blocks,
            rejected=(*rejected, *applied.rejected),
            ungranted=applied.ungranted,
        )

    def totals(self) -> dict[str, int]:
        """Sizes, for people: entries, blocks, orphans, bytes on disk."""
        with self._lock:
            return {
                "entries": self._store.entry_count(),
                "blocks": self._store.chains.total(),
                "orphans": len(self._orphans),
                "bytes": sum(file.stat().st_size for file in self.directory.glob(f"{LOG_FILE}*")),
            }
