"""Queries: what a replica tells of its log and its view, to the filesystem, the commands and the sync protocol.

Every method takes the lock for itself and holds it for one path at the most, but for those that list everything.  What
the sync protocol asks needs no lock: it is answered from what is committed (`basefs/log/told.py`).
"""

from __future__ import annotations

import pathlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from basefs.errors import IsADirectory, NotADirectory, NotFound, StoreError
from basefs.log.cache import ContentCache
from basefs.log.chains import Incomplete
from basefs.log.committed import Committed
from basefs.log.content import BytesContent, Content
from basefs.log.contents import Contents
from basefs.log.entries import Entry
from basefs.log.guard import Guard
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, Fingerprint
from basefs.log.interface import Digest, Listing
from basefs.log.keys import SigningKey
from basefs.log.placement import Placed
from basefs.log.store import Store
from basefs.log.told import Told
from basefs.path import Path, display
from basefs.view.appearance import Appearance, Attributes
from basefs.view.author import Author
from basefs.view.history import Survey, survey
from basefs.view.permissions import Grant
from basefs.view.resolution import Resolver
from basefs.view.seen import Version
from basefs.view.states import Kind, State
from basefs.view.tree import Node, Tree

LOG_FILE = "log.db"
CACHE_FILE = "cache.db"


@dataclass(slots=True)
class _View:
    """The live tree, who writes on it, and what it looks like; there is none before the root entry has arrived."""

    tree: Tree
    author: Author
    appearance: Appearance


class Queries:
    """The reading half of `Replica`.  Thread-safe.

    Attributes:
        keys: the private keys of this node.
        directory: where log and cache are.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        keys: Sequence[SigningKey] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the log in a directory.  Raises `StoreError`, or `DamagedLog` without a readable root entry."""
        self._clock = clock
        self._store = Store(directory / LOG_FILE)
        self._lock = Guard(self._store.database.translate)
        cache = ContentCache(directory / CACHE_FILE)
        self._contents = Contents(self._store, cache, self._lock)
        committed = Committed(self._store.database)
        self._committed = Contents(committed, cache, committed.lock)
        self._told = Told(self._store.database)
        self._identity: bytes | None = None
        self._live: _View | None = None
        self._observed = False
        self.keys = list(keys)
        self.directory = directory
        with self._lock:
            if self._store.entry_count():
                self._open_view()

    def _open_view(self) -> None:
        tree = Tree(self._store, Resolver(self._store, self._contents), observing=self._observed)
        author = Author(self._store, self._contents, tree, self.keys, self._clock)
        self._live = _View(tree, author, Appearance(self._store, tree, author))

    @property
    def _view(self) -> _View:
        if self._live is None:
            raise NotFound("nothing of this filesystem has arrived yet: fetch it with 'basefs get'")
        return self._live

    # -- reading the tree ---------------------------------------------------------------------------------------------

    def attributes(self, path: Path) -> Attributes:
        """What is at a path.  Raises `NotFound`, `NotADirectory`."""
        remembered = None if self._live is None else self._live.appearance.remembered(path)
        if remembered is not None and not self._store.database.damaged:
            return remembered
        with self._lock:
            return self._view.appearance.attributes(path)

    def names_in(self, path: Path) -> dict[bytes, Kind]:
        """The names in a directory.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            return {name: child.state.kind for name, child in self._view.tree.children(self._directory(path)).items()}

    def entries_in(self, path: Path) -> list[tuple[bytes, Kind, EntryHash | None]]:
        """The names in a directory, with kind and the entry that began each.  Raises `NotFound`, `NotADirectory`."""
        with self._lock:
            children = self._view.tree.children(self._directory(path))
            return [(name, child.state.kind, child.state.origin) for name, child in children.items()]

    def names_of(self, path: Path) -> tuple[Path, ...]:
        """All live names of a file.  Raises `NotFound`, `NotADirectory`."""
        if self._live is not None and self._live.appearance.remembered(path) is not None:
            # What has links is not remembered.
            return (path,)
        with self._lock:
            return self._view.appearance.names_of(path)

    def continues(self, origin: EntryHash) -> EntryHash | None:
        """The file that was made into the file of this origin (`Writer.continues`)."""
        with self._lock:
            return self._view.author.continues(origin)

    def _directory(self, path: Path) -> Node:
        node = self._view.author.node(path)
        if not node.is_directory:
            raise NotADirectory(f"{display(path)} is not a directory")
        return node

    def open(self, path: Path) -> Content:
        """The content of a file as it is now, whatever happens to its path later; to be read without the lock.

        A large one is unpacked when it is first read, and must be closed.  Raises `NotFound`, `IsADirectory`,
        `StoreError`; reading it raises `StoreError`.
        """
        with self._lock:
            node = self._view.author.node(path)
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
            return self._view.author.node(path).state.target

    def check_create(self, path: Path) -> None:
        """Raise what creating this path would raise."""
        with self._lock:
            self._view.author.check_create(path)

    def live_paths(self) -> list[tuple[Path, Kind]]:
        """Every live path, directories before what they hold."""
        with self._lock:
            return [(path, node.state.kind) for path, node in self._view.tree.walk()]

    def grants(self, path: Path) -> list[Grant]:
        """The grants in force that hang on a path; none where nothing is."""
        with self._lock:
            node = self._view.tree.find(path)
            if node is None:
                return []
            here = {placed.entry.hash for placed in self._store.entries_at(node.path_id)}
            return [grant for grant in node.authority.grants if grant.entry.hash in here]

    def is_root_key(self, fingerprint: Fingerprint) -> bool:
        """Whether this key signed the root entry, so that it is valid for ever."""
        with self._lock:
            root = self._store.get(EntryHash(self.identity))
            return root is not None and root.entry.fingerprint == fingerprint

    def granted_paths(self) -> list[Path]:
        """The paths on which any key was ever granted, live or not."""
        with self._lock:
            return sorted({self._store.paths.path_of(path) for path in self._store.granted.paths()})

    def survey(self, path: Path) -> Survey:
        """Every entry of a path, live or not, and what it is worth.  Raises `NotFound` where nothing ever was."""
        with self._lock:
            found = survey(self._store, self._view.tree, path)
            if found is None:
                raise NotFound(f"nothing was ever at {display(path)}")
            return found

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
            source = self._contents.lineages.source(entry)
        return BytesContent(b"") if source is None else self._contents.open(source)

    def open_write(self, write: EntryHash) -> Content:
        """The content of a write entry that the view shows; a small one is read without the lock.

        Raises as `open_at`.
        """
        try:
            content = self._committed.open_small(write)
        except (StoreError, sqlite3.Error):
            # Damaged, or the view shows what a transaction under way has made: the log tells.
            content = None
        return self._contents.open(write) if content is None else content

    def find_entries(self, prefix: str) -> list[EntryHash]:
        """The entries whose hash begins with these hexadecimal digits."""
        with self._lock:
            return self._store.find(prefix)

    def places(self, entries: Iterable[Entry]) -> list[tuple[Path, Placed]]:
        """Where entries stand that are in the log."""
        with self._lock:
            placed = (self._store.get(entry.hash) for entry in entries)
            return [(self._store.paths.path_of(one.path_id), one) for one in placed if one is not None]

    def state_after(self, entry: EntryHash) -> State | None:
        """What the path of an entry was after it; `None` where that is not known."""
        with self._lock:
            placed = self._store.get(entry)
            if placed is None:
                return None
            found = survey(self._store, self._view.tree, self._store.paths.path_of(placed.path_id))
            return None if found is None else found.states.get(entry)

    def is_version(self, path: Path, version: Version) -> bool:
        """Whether entries that are in the log told once what this path was."""
        with self._lock:
            placed = [self._store.get(hash) for hash in version]
            return None not in placed and all(
                self._store.paths.path_of(one.path_id) == path for one in placed[:1] if one
            )

    def is_own_since(self, path: Path, version: Version) -> bool:
        """Whether a path is another version now, and a key of this node has signed that."""
        with self._lock:
            node = self._view.tree.find(path)
            own = {key.fingerprint for key in self.keys}
            since = [] if node is None else [tip for tip in node.outcome.tips if tip.hash not in version]
            return bool(since) and all(tip.fingerprint in own for tip in since)

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

    def check_view(self) -> list[Path]:
        """The paths where the live view, or what is remembered of it, differs from a rebuild: none, or a bug."""
        with self._lock:
            return [*self._view.tree.check(), *self._view.appearance.check()]

    @property
    def damaged(self) -> int:
        """Rows found damaged since the log was opened."""
        return len(self._store.database.damaged)

    # -- the interface of the sync protocol (basefs/log/interface.py) ------------------------------------------------

    @property
    def identity(self) -> bytes:
        """Hash of the root entry; zero in an empty log that takes the first filesystem that comes."""
        if self._identity is None:
            # What it is once, it stays.
            self._identity = self._told.identity()
        return self._identity or ZERO_HASH

    def root_hash(self) -> bytes:
        """XOR of everything in the Merkle tree."""
        return self._store.committed[0]

    def digest(self) -> Digest:
        """The Merkle hash of everything and the number of entries, at one moment."""
        return Digest(*self._store.committed)

    def path_hash(self, path: Path) -> bytes:
        """Merkle hash of a path; zero where it is unknown."""
        paths = self._told.paths
        with self._told.moment():
            id = paths.id_of(path)
            return ZERO_HASH if id is None else paths.row(id).hash

    def child_hashes(self, path: Path, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """The Merkle hashes of those of these names in a path that are known."""
        paths = self._told.paths
        with self._told.moment():
            id = paths.id_of(path)
            rows = [] if id is None else [paths.find(id, name) for name in names]
        return {row.name: row.hash for row in rows if row is not None}

    def listing(self, path: Path) -> Listing | None:
        """What the Merkle tree holds at a path, `None` where it is unknown."""
        told = self._told
        with told.moment():
            id = told.paths.id_of(path)
            if id is None:
                return None
            entries = told.entries_at(id)
            receiving, stalled = told.waiting_at(id)
            children = told.paths.children(id)
        left_out = {*receiving, *(entry for entry, _ in stalled)}
        return Listing(
            entries=tuple(hash for hash in entries if hash not in left_out),
            receiving=tuple(receiving),
            stalled=tuple(stalled),
            children=tuple(children),
        )

    def walk(self, path: Path) -> Iterator[bytes]:
        """The encoded entries of a path and of all below it, parents first; looks at one path at a time."""
        told = self._told
        with told.moment():
            start = told.paths.id_of(path)
        todo = [] if start is None else [start]
        while todo:
            id = todo.pop()
            with told.moment():
                found = told.entries_at(id)
                todo.extend(row.id for row in reversed(told.paths.below(id)))
            yield from found.values()

    def entry(self, hash: EntryHash) -> bytes | None:
        """The encoding of an entry, `None` if it is unknown."""
        return self._told.entry(hash)

    def block(self, hash: BlockHash) -> bytes | None:
        """The encoding of a block, `None` if it is unknown."""
        return self._told.block(hash)

    def block_behind(self, hash: BlockHash, count: int) -> BlockHash | None:
        """The block so many places behind one in its chain; `None` if it is not here, or the chain ends before."""
        return self._told.block_behind(hash, count)

    def missing_blocks(self, limit: int) -> tuple[BlockHash, ...]:
        """The first missing block of each incomplete chain, at most `limit`."""
        return tuple(self._told.missing_blocks(limit))

    # -- for people ---------------------------------------------------------------------------------------------------

    def wait(self) -> float:
        """Take the lock and let it go again; the seconds for which somebody else had it."""
        start = time.monotonic()
        with self._lock:
            return time.monotonic() - start

    def incomplete(self) -> list[tuple[Path, Entry, Incomplete]]:
        """The writes whose content is not complete, with their paths; those that changed last first."""
        with self._lock:
            found = []
            for incomplete in self._store.chains.incomplete():
                placed = self._store.get(incomplete.entry)
                if placed is not None:
                    found.append((self._store.paths.path_of(placed.path_id), placed.entry, incomplete))
            return found
