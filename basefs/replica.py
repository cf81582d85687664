"""The replica: log, view and Merkle state of one filesystem behind one lock (paper, section 4; design, section 1).

Invariants

1. `apply` is the one way into the log, for entries written here, received, or read again after a restart (where there
   is nothing to read: derived state is in the log file, and the view is resolved when somebody looks).
2. An entry is committed to the log before the view shows it.
3. The lock is held for one batch at the most; nobody waits for the network or for fsync while holding it, and no
   content of more than some kilobytes is encoded, decoded or compared under it.
4. Subscribers are called without the lock, in the thread that applied.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from basefs.errors import (
    BaseFSError,
    InvalidEntry,
    IsADirectory,
    NotADirectory,
    NotFound,
    ReadOnly,
    StoreError,
)
from basefs.log.blocks import Block
from basefs.log.cache import ContentCache
from basefs.log.content import BytesContent, Content
from basefs.log.contents import Contents
from basefs.log.entries import Entry
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, Fingerprint
from basefs.log.intake import Intake, Newcomer
from basefs.log.keys import SigningKey
from basefs.log.orphans import Orphans
from basefs.log.placement import Placed
from basefs.log.preparations import Preparations
from basefs.log.store import Store
from basefs.sync.interface import AddResult, Listing
from basefs.view.author import Author, Draft
from basefs.view.changes import Change
from basefs.view.history import Survey
from basefs.view.names import Names, display
from basefs.view.node import Node
from basefs.view.permissions import Grant
from basefs.view.resolution import Resolver
from basefs.view.states import Kind, Owner
from basefs.view.tree import Tree

log = logging.getLogger(__name__)

LOG_FILE = "log.db"
CACHE_FILE = "cache.db"


@dataclass(frozen=True, slots=True)
class Applied:
    """What a call of `apply` did.

    Attributes:
        entries: those accepted now, parents first.
        blocks: those that local entries name, without those of contents that are too large to be held here.
        large: whether there are such contents.
        completed: write entries whose content can be read since now, though they came earlier.
        new_blocks: how many blocks from other nodes were stored.
        local: whether this node signed them.
        missing_parents: parents to ask for.
        missing_blocks: the first missing block of each chain that the call left incomplete.
        rejected: why entries or blocks were refused, one reason each.
        changes: what became of the live paths that anybody has looked at, or with `observe` of all, in an order that
            can be performed on a plain directory tree.
    """

    entries: tuple[Entry, ...]
    blocks: tuple[Block, ...]
    completed: tuple[EntryHash, ...]
    local: bool
    large: bool = False
    new_blocks: int = 0
    missing_parents: tuple[EntryHash, ...] = ()
    missing_blocks: tuple[BlockHash, ...] = ()
    rejected: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Attributes:
    """What `stat` tells of a live path.

    Attributes:
        kind: file, directory or symbolic link.
        mode: permission bits.
        owner: names of owner and group, or `None` for whoever mounts.
        size: bytes.
        mtime: UNIX seconds.
        links: number of live names.
        writable: whether a key of this node may write there.
        entry: hash of the entry that it comes from.
        origin: the entry that began this file; all names of a file share it.
        content: the write entry that holds a file's content, `None` for anything else.
    """

    kind: Kind
    mode: int
    owner: Owner | None
    size: int
    mtime: int
    links: int
    writable: bool
    entry: EntryHash
    origin: EntryHash | None
    content: EntryHash | None


@dataclass(slots=True)
class _View:
    """The live tree and who writes on it; there is none before the root entry has arrived."""

    tree: Tree
    author: Author


class _Unprepared(Exception):
    """A series of drafts must be made again: not all contents are prepared."""


class Replica:
    """One filesystem on this node.  Thread-safe."""

    def __init__(
        self,
        directory: Path,
        keys: Sequence[SigningKey] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the log in a directory.  Raises `StoreError`, or `DamagedLog` without a readable root entry."""
        self._lock = threading.RLock()
        #: Who writes to the log holds it, and takes it before the lock: blocks of large contents are stored under it
        #: alone, so that nobody who reads waits for the disk.
        self._write_lock = threading.RLock()
        self._sync_lock = threading.Lock()
        self._clock = clock
        self._store = Store(directory / LOG_FILE)
        self._contents = Contents(self._store, ContentCache(directory / CACHE_FILE), self._lock)
        self._orphans = Orphans()
        self._subscribers: list[Callable[[Applied], None]] = []
        self._newcomer = Newcomer()
        self._live: _View | None = None
        self._observed = False
        self.keys = list(keys)
        self.directory = directory
        if self._store.entry_count():
            self._open_view()

    @classmethod
    def create(cls, directory: Path, identity: bytes | None, keys: Sequence[SigningKey] = ()) -> Replica:
        """An empty log of the filesystem whose root entry has this hash (`None`: of whichever comes first).

        The entries come by `apply`.  Raises `StoreError` if there is a log already.
        """
        store = Store(directory / LOG_FILE, create=True)
        if identity is not None:
            with store.transaction():
                store.database.set_meta("identity", identity)
        store.close()
        return cls(directory, keys)

    def _open_view(self) -> None:
        tree = Tree(self._store, Resolver(self._store, self._contents), observing=self._observed)
        self._live = _View(tree, Author(self._store, self._contents, tree, self.keys, self._clock))

    @property
    def _view(self) -> _View:
        if self._live is None:
            raise NotFound("nothing of this filesystem has arrived yet: fetch it with 'basefs get'")
        return self._live

    def close(self) -> None:
        """Make everything durable and release the files."""
        with self._lock:
            self._store.database.sync()
            self._contents.close()
            self._store.close()

    # -- writing ------------------------------------------------------------------------------------------------------

    def subscribe(self, callback: Callable[[Applied], None]) -> None:
        """Have `callback` called after each change."""
        self._subscribers.append(callback)

    def observe(self) -> None:
        """Have `Applied.changes` tell the changes of all paths from now on, not just of those that were looked at.

        Costs memory for every live path, and the time to resolve them.  Paths that are there already are not told.
        """
        with self._lock:
            self._observed = True
            if self._live is not None:
                self._live.tree.observe()

    def commit(
        self,
        make: Callable[[Author], Draft | Iterable[Draft]],
        *,
        contents: Iterable[tuple[Names, Content]] = (),
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
        self._publish(applied)
        for write, content in kept.items():
            self._contents.keep(write, content)
        return applied

    def _writer(self, preparations: Preparations) -> Author:
        if self._store.database.damaged:
            raise ReadOnly(f"the log in {self.directory} is damaged and takes no writes: see 'basefs check'")
        preparations.begin()
        self._view.author.preparations = preparations
        return self._view.author

    def _foresee(self, contents: Sequence[tuple[Names, Content]], preparations: Preparations) -> None:
        while contents:
            with self._lock:
                author = self._writer(preparations)
                for names, content in contents:
                    author.foresee(names, content)
            if preparations.complete:
                return
            preparations.work(self._store_blocks)

    def _try(
        self, make: Callable[[Author], Draft | Iterable[Draft]], preparations: Preparations
    ) -> tuple[Applied, dict[EntryHash, Content]] | None:
        """One attempt to draft and apply; `None` where something must be prepared first."""
        with self._write_lock, self._lock:
            try:
                made = make(self._writer(preparations))
                if isinstance(made, Draft):
                    if not preparations.complete:
                        return None
                    applied = self._apply(made.entries, made.blocks, local=True, large=preparations.large)
                    return applied, made.contents
                return self._write_series(made, preparations)
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
                self._view.tree.rebuild()
                self._view.tree.settle()
            raise
        accepted = {placed.entry.hash for placed in batch.accepted}
        completed = tuple(hash for hash in batch.completed if hash not in accepted)
        self._show((), completed, now=int(batch.now))
        return self._result(batch, completed, blocks, local=True, large=preparations.large), kept

    def _store_blocks(self, blocks: Sequence[Block]) -> None:
        """Store some blocks of a content whose entry comes later."""
        with self._write_lock:
            if not self._store.chains.store_aside(blocks):
                # Another node writes the same content, and its entry waits for these.
                with self._lock:
                    applied = self._apply((), blocks, local=True, large=True)
                self._publish(replace(applied, blocks=()))
        self._checkpoint()

    def _checkpoint(self) -> None:
        with self._sync_lock:
            self._store.database.checkpoint()

    def apply(self, entries: Sequence[Entry], blocks: Sequence[Block], *, peer: str = "") -> Applied:
        """Take in entries and blocks from another node.  Raises `StoreError` only: bad input is in the result."""
        with self._write_lock, self._lock:
            applied = self._apply(entries, blocks, peer=peer)
        self._publish(applied)
        return applied

    def _publish(self, applied: Applied) -> None:
        if applied.entries or applied.completed or applied.missing_parents or applied.missing_blocks:
            for callback in self._subscribers:
                callback(applied)

    def _apply(
        self,
        entries: Sequence[Entry],
        blocks: Sequence[Block],
        *,
        peer: str = "",
        local: bool = False,
        large: bool = False,
    ) -> Applied:
        batch = Intake(self._store, self._orphans, self._newcomer, now=self._clock(), local=local)
        with self._store.transaction():
            if local:
                # Blocks first: a chain that is complete when its entry comes never waits.
                batch.add_own_blocks(blocks)
            batch.add_entries(entries, peer)
            if not local:
                batch.add_blocks(blocks)
        accepted = {placed.entry.hash for placed in batch.accepted}
        completed = tuple(hash for hash in batch.completed if hash not in accepted)
        self._show(batch.accepted, completed, now=int(batch.now))
        return self._result(batch, completed, blocks, local=local, large=large)

    def _result(
        self, batch: Intake, completed: tuple[EntryHash, ...], blocks: Sequence[Block], *, local: bool, large: bool
    ) -> Applied:
        return Applied(
            entries=tuple(placed.entry for placed in batch.accepted),
            blocks=tuple(blocks) if local else (),
            completed=completed,
            local=local,
            large=large,
            new_blocks=batch.new_blocks,
            missing_parents=tuple(parent for parent in batch.missing_parents if parent not in self._store),
            missing_blocks=tuple(
                missing for first in batch.chains if (missing := self._store.chains.missing_block(first)) is not None
            ),
            rejected=tuple(batch.rejected),
            changes=() if self._live is None else self._live.tree.settle(),
        )

    def _show(self, accepted: Sequence[Placed], completed: Sequence[EntryHash], *, now: int) -> None:
        """Let the view take in what the log has."""
        try:
            self._update_view(accepted, completed, now=now)
        except Exception:
            # The entries are in the log and must be told to the others, whatever the view makes of them.
            log.exception("a bug in the view: it is built again from the log")
            self._view.tree.rebuild()

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

    # -- reading the tree ---------------------------------------------------------------------------------------------

    def attributes(self, names: Names) -> Attributes:
        """What is at a path.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            return self._attributes(names, self._view.author.node(names))

    def _attributes(self, names: Names, node: Node) -> Attributes:
        state = node.state
        links = 1
        mtime = state.mtime
        if node.is_directory:
            links = 2
            mtime = max(mtime, node.touched)
        elif state.link is not None or self._store.has_links(node.path):
            links = len(self._view.author.names_of(names, node))
        writable = self._view.author.may_write(node.authority) and not self._store.database.damaged
        return Attributes(
            state.kind,
            state.mode,
            state.owner,
            state.size,
            mtime,
            links,
            writable,
            node.outcome.tips[0].hash,
            state.origin,
            state.content,
        )

    def names_in(self, names: Names) -> dict[bytes, Kind]:
        """The names in a directory.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            return {name: child.state.kind for name, child in self._view.tree.children(self._directory(names)).items()}

    def entries_in(self, names: Names) -> list[tuple[bytes, Kind, EntryHash | None]]:
        """The names in a directory, with kind and the entry that began each.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            children = self._view.tree.children(self._directory(names))
            return [(name, child.state.kind, child.state.origin) for name, child in children.items()]

    def names_of(self, names: Names) -> tuple[Names, ...]:
        """All live names of a file.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            author = self._view.author
            return tuple(other for other, _ in author.names_of(names, author.node(names)))

    def _directory(self, names: Names) -> Node:
        node = self._view.author.node(names)
        if not node.is_directory:
            raise NotADirectory(f"{display(names)} is not a directory")
        return node

    def open(self, names: Names) -> Content:
        """The content of a file as it is now, whatever happens to its path later; to be read without the lock.

        A large one is unpacked when it is first read, and must be closed.  Raises `NotFound`, `IsADirectory`,
        `StoreError`; reading it raises `StoreError`.
        """
        with self._lock:
            node = self._view.author.node(names)
            if node.is_directory:
                raise IsADirectory(f"{display(names)} is a directory")
            state = node.state
        return BytesContent(state.target) if state.content is None else self._contents.open(state.content)

    def read(self, names: Names) -> bytes:
        """All of the content of a file, in memory.  Raises as `open`."""
        content = self.open(names)
        try:
            return content.whole()
        finally:
            content.close()

    def read_link(self, names: Names) -> bytes:
        """The target of a symbolic link.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            return self._view.author.node(names).state.target

    def check_create(self, names: Names) -> None:
        """Raise what creating this path would raise."""
        with self._lock:
            self._view.author.check_create(names)

    def live_paths(self) -> list[tuple[Names, Kind]]:
        """Every live path, directories before what they hold."""
        with self._lock:
            return [(names, node.state.kind) for names, node in self._view.tree.walk()]

    def grants(self, names: Names) -> list[Grant]:
        """The grants in force that hang on a path; none where nothing is."""
        with self._lock:
            node = self._view.tree.find(names)
            if node is None:
                return []
            here = {placed.entry.hash for placed in self._store.entries_at(node.path)}
            return [grant for grant in node.authority.grants if grant.entry.hash in here]

    def is_root_key(self, fingerprint: Fingerprint) -> bool:
        """Whether this key signed the root entry, so that it is valid for ever."""
        with self._lock:
            root = self._store.get(EntryHash(self.identity))
            return root is not None and root.entry.fingerprint == fingerprint

    def granted_paths(self) -> list[Names]:
        """The paths on which any key was ever granted, live or not."""
        with self._lock:
            return sorted({self._store.paths.names(path) for path in self._store.granted.paths()})

    def survey(self, names: Names) -> Survey:
        """Every entry of a path, live or not, and what it is worth.  Raises `NotFound` where nothing ever was."""
        with self._lock:
            survey = self._view.tree.survey(names)
            if survey is None:
                raise NotFound(f"nothing was ever at {display(names)}")
            return survey

    def contested_paths(self, names: Names) -> list[Names]:
        """The live paths at and below a path where a branch lost.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            self._view.author.node(names)
            walk = self._view.tree.walk()
            return [path for path, node in walk if path[: len(names)] == names and node.outcome.contested]

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
                raise NotFound(f"there is no entry {entry.hex()[:12]}: 'basefs log' lists those of a path")
            source = self._contents.source(entry)
        return BytesContent(b"") if source is None else self._contents.open(source)

    def find_entries(self, prefix: str) -> list[EntryHash]:
        """The entries whose hash begins with these hexadecimal digits."""
        with self._lock:
            return self._store.find(prefix)

    def signer_of(self, entry: EntryHash) -> Fingerprint:
        """The key that signed an entry.  Raises `NotFound` for an unknown one."""
        with self._lock:
            placed = self._store.get(entry)
            if placed is None:
                raise NotFound(f"there is no entry {entry.hex()[:12]}: 'basefs log' lists those of a path")
            return placed.entry.fingerprint

    def key_names(self) -> dict[Fingerprint, str]:
        """The names of the keys that were ever granted; the latest one where there are several."""
        with self._lock:
            return self._store.key_names()

    def check_view(self) -> list[Names]:
        """The paths where the live view differs from a rebuild: none, or a bug."""
        with self._lock:
            return self._view.tree.check()

    @property
    def damaged(self) -> int:
        """Rows found damaged since the log was opened."""
        return len(self._store.database.damaged)

    def totals(self) -> dict[str, int]:
        """Sizes, for people: entries, blocks, orphans, bytes on disk."""
        with self._lock:
            return {
                "entries": self._store.entry_count(),
                "blocks": self._store.chains.total(),
                "orphans": len(self._orphans),
                "bytes": sum(file.stat().st_size for file in self.directory.glob(f"{LOG_FILE}*")),
            }

    # -- the interface of the sync protocol (basefs/sync/interface.py) ------------------------------------------------

    @property
    def identity(self) -> bytes:
        """Hash of the root entry; zero in an empty log that takes the first filesystem that comes."""
        with self._lock:
            return self._store.database.meta("identity") or ZERO_HASH

    def root_hash(self) -> bytes:
        """XOR of everything in the Merkle tree."""
        with self._lock:
            return self._store.paths.root_hash()

    def path_hash(self, path: Names) -> bytes:
        """Merkle hash of a path; zero where it is unknown."""
        with self._lock:
            id = self._store.paths.find_names(path)
            return ZERO_HASH if id is None else self._store.paths.row(id).hash

    def listing(self, path: Names) -> Listing | None:
        """What the Merkle tree holds at a path, `None` where it is unknown."""
        with self._lock:
            id = self._store.paths.find_names(path)
            if id is None:
                return None
            receiving, stalled = self._store.chains.waiting_at(id)
            left_out = {*receiving, *(entry for entry, _ in stalled)}
            entries = (placed.entry.hash for placed in self._store.entries_at(id))
            return Listing(
                entries=tuple(hash for hash in entries if hash not in left_out),
                receiving=tuple(receiving),
                stalled=tuple(stalled),
                children=tuple((row.name, row.hash) for row in self._store.paths.below(id)),
            )

    def walk(self, path: Names) -> Iterator[bytes]:
        """The encoded entries of a path and of all below it, parents first; takes the lock for one path at a time."""
        with self._lock:
            start = self._store.paths.find_names(path)
        todo = [] if start is None else [start]
        while todo:
            id = todo.pop()
            with self._lock:
                found = [placed.entry.encode() for placed in self._store.entries_at(id)]
                todo.extend(row.id for row in reversed(self._store.paths.below(id)))
            yield from found

    def entry(self, hash: EntryHash) -> bytes | None:
        """The encoding of an entry, `None` if it is unknown."""
        with self._lock:
            return self._store.raw(hash)

    def block(self, hash: BlockHash) -> bytes | None:
        """The encoding of a block, `None` if it is unknown."""
        with self._lock:
            block = self._store.chains.block(hash)
            return None if block is None else block.encode()

    def add(self, entries: Sequence[bytes], blocks: Sequence[bytes], *, peer: str = "") -> AddResult:
        """`apply` for encoded entries and blocks."""
        decoded: list[Entry] = []
        pieces: list[Block] = []
        rejected: list[str] = []
        for raw in entries:
            try:
                decoded.append(Entry.decode(raw))
            except InvalidEntry as error:
                rejected.append(str(error))
        for raw in blocks:
            try:
                pieces.append(Block.decode(raw))
            except InvalidEntry as error:
                rejected.append(str(error))
        applied = self.apply(decoded, pieces, peer=peer)
        return AddResult(
            accepted=len(applied.entries) + applied.new_blocks,
            missing_parents=applied.missing_parents,
            missing_blocks=applied.missing_blocks,
            rejected=(*rejected, *applied.rejected),
        )

    def missing_blocks(self, limit: int) -> tuple[BlockHash, ...]:
        """The first missing block of each incomplete chain, at most `limit`."""
        with self._lock:
            return tuple(self._store.chains.missing_blocks(limit))
