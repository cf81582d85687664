"""A log in dictionaries: the twin of the replica for tests and simulations without a disk.

Invariants:
1. An entry is known only if its parent is, so `_own` lists are in an order in which they can be accepted.
2. `_sums[path]` is the sum of the values of all entries at or below `path`.
3. `_lacks` holds exactly the writes that are not complete, each with the blocks that are known to be missing, `_wanted`
   the same by block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from basefs.errors import InvalidEntry
from basefs.log.blocks import SYNC_BLOCK_DATA, Block, BlockPlace, places
from basefs.log.entries import CHILD_ACTIONS, ROOT_NAME, Action, Entry
from basefs.log.hashes import SUM_MASK, ZERO_HASH, BlockHash, EntryHash, Fingerprint, addend, sha224, sum_hash
from basefs.log.interface import AddResult, Digest, Listing
from basefs.log.keys import verify
from basefs.path import Path
from basefs.replica.applied import Applied


class _Stray(InvalidEntry):
    """A block of no content that is known."""


class _MissingParent(Exception):
    """The parent of an entry is not known yet."""


class MemoryLog:
    """Implements `LogState`.  Thread-safe."""

    def __init__(
        self,
        identity: bytes = ZERO_HASH,
        keys: Mapping[Fingerprint, bytes] | None = None,
        max_bytes: int = 1 << 30,
    ) -> None:
        """An empty log.

        `identity`: hash of the only root entry that is accepted; zero: the first that comes.  `keys`: fingerprint ->
        public key of all who may write; None: signatures are not verified.  `max_bytes`: of entries and blocks; what
        would exceed it is refused.
        """
        self._adding = threading.Lock()
        self._identity = identity
        self._keys = keys
        self._room = max_bytes
        self._entries: dict[EntryHash, tuple[bytes, Path]] = {}
        self._actions: dict[EntryHash, Action] = {}
        self._blocks: dict[BlockHash, bytes] = {}
        self._own: dict[Path, list[EntryHash]] = {}
        self._children: dict[Path, set[bytes]] = {}
        self._sums: dict[Path, int] = {}
        self._lacks: dict[EntryHash, set[BlockHash]] = {}
        #: The number of a missing block, and where which writes have it.
        self._wanted: dict[BlockHash, tuple[int, dict[EntryHash, BlockPlace]]] = {}
        self._number = 0
        #: What the call of `add` that runs has brought.
        self._new: list[Entry] = []
        self._completed: list[EntryHash] = []
        self._subscribers: list[Callable[[Applied], None]] = []

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._entries)

    def hashes(self) -> list[EntryHash]:
        """The entries, in the order in which they came."""
        return list(self._entries)

    @property
    def blocks(self) -> int:
        """How many blocks it holds."""
        return len(self._blocks)

    @property
    def identity(self) -> bytes:
        """See `LogState`."""
        return self._identity

    def root_hash(self) -> bytes:
        """See `LogState`."""
        return self.path_hash(())

    def digest(self) -> Digest:
        """See `LogState`."""
        # In one step: another thread may be adding.
        lacks = list(self._lacks)
        return Digest(self.root_hash(), len(self._entries), 0, len(lacks), sum_hash(sum(map(addend, lacks)) & SUM_MASK))

    def path_hash(self, path: Path) -> bytes:
        """See `LogState`."""
        return sum_hash(self._sums.get(path, 0))

    def child_hashes(self, path: Path, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """See `LogState`."""
        known = self._children.get(path, set())
        return {name: self.path_hash((*path, name)) for name in names if name in known}

    def listing(self, path: Path) -> Listing | None:
        """See `LogState`."""
        if path not in self._own:
            return None
        return Listing(
            entries=tuple(self._own[path]),
            children=tuple((name, self.path_hash((*path, name))) for name in sorted(self._children.get(path, ()))),
        )

    def walk(self, path: Path) -> Iterator[bytes]:
        """See `LogState`."""
        todo = [path]
        while todo:
            here = todo.pop()
            # Lists only grow at their end; an index stays valid while they do.
            own = self._own.get(here, [])
            for index in range(len(own)):
                yield self._entries[own[index]][0]
            todo += [(*here, name) for name in sorted(self._children.get(here, ()), reverse=True)]

    def entry(self, hash: EntryHash) -> bytes | None:
        """See `LogState`."""
        found = self._entries.get(hash)
        return found[0] if found else None

    def block(self, hash: BlockHash) -> bytes | None:
        """See `LogState`."""
        return self._blocks.get(hash)

    def has_block(self, hash: BlockHash) -> bool:
        """See `LogState`."""
        return hash in self._blocks

    def wants_block(self, hash: BlockHash) -> bool:
        """See `LogState`."""
        return hash in self._wanted

    def missing_blocks(self, limit: int, behind: int = 0) -> list[tuple[int, BlockHash]]:
        """See `LogState`."""
        found = ((number, hash) for hash, (number, _) in self._wanted.items() if number > behind)
        return [each for each, _ in zip(found, range(limit), strict=False)]

    def is_complete(self, write: EntryHash) -> bool:
        """Whether all blocks of a write are here."""
        return write not in self._lacks

    def subscribe(self, callback: Callable[[Applied], None]) -> None:
        """See `Replica`."""
        self._subscribers.append(callback)

    def unsubscribe(self) -> None:
        """Nobody is told of changes any more."""
        self._subscribers.clear()

    def add(self, entries: Sequence[bytes], blocks: Sequence[bytes], *, peer: str = "") -> AddResult:
        """See `LogState`; nothing waits here, so the sender does not matter."""
        with self._adding:
            result = self._add(entries, blocks)
        self._tell((), local=False)
        return result

    def commit(self, entry: Entry, blocks: Sequence[Block] = ()) -> AddResult:
        """Add what this node has written."""
        with self._adding:
            result = self._add([entry.encode()], [block.data for block in blocks])
        self._tell(tuple(blocks), local=True)
        return result

    def _tell(self, blocks: tuple[Block, ...], *, local: bool) -> None:
        new, completed = tuple(self._new), tuple(self._completed)
        self._new, self._completed = [], []
        if new or completed:
            known = {entry.hash for entry in new}
            applied = Applied(new, blocks, tuple(hash for hash in completed if hash not in known), local)
            for callback in self._subscribers:
                callback(applied)

    def _add(self, entries: Sequence[bytes], blocks: Sequence[bytes]) -> AddResult:
        accepted = 0
        parents: dict[EntryHash, None] = {}
        rejected: list[str] = []
        strays = 0
        for data in entries:
            try:
                entry = Entry.decode(data)
                if entry.hash in self._entries:
                    continue
                self._add_entry(entry, data)
                self._new.append(entry)
                accepted += 1
            except _MissingParent:
                parents[entry.parent] = None
            except InvalidEntry as error:
                rejected.append(str(error))
        for block in blocks:
            try:
                accepted += self._add_block(block)
            except InvalidEntry as error:
                rejected.append(str(error))
                strays += isinstance(error, _Stray)
        return AddResult(accepted, tuple(parents), bool(accepted and self._lacks), tuple(rejected), strays)

    def _add_entry(self, entry: Entry, data: bytes) -> None:
        """Raises `InvalidEntry` or `_MissingParent`."""
        path = self._place(entry)
        if self._keys is not None:
            public = self._keys.get(entry.fingerprint)
            if public is None:
                raise InvalidEntry(f"key {entry.fingerprint.hex()[:12]} is not granted")
            verify(entry, public)
        self._take_room(data)
        if path == ():
            self._identity = self._identity if self._own else entry.hash
        self._entries[entry.hash] = data, path
        self._actions[entry.hash] = entry.action
        if entry.encoded is not None:
            self._lacks[entry.hash] = set()
            self._want(entry.hash, entry.encoded.place)
        self._put(entry.hash, addend(entry.hash))
        # Listed last: another thread finds all that it asks for then.
        self._own.setdefault(path, []).append(entry.hash)
        if path:
            self._children.setdefault(path[:-1], set()).add(path[-1])

    def _place(self, entry: Entry) -> Path:
        """The path of a new entry.  Raises `InvalidEntry` or `_MissingParent`."""
        if entry.is_root:
            if self._identity not in (ZERO_HASH, entry.hash):
                raise InvalidEntry("the root entry of another filesystem")
            return ()
        if entry.parent not in self._entries:
            raise _MissingParent
        path = self._entries[entry.parent][1]
        if self._actions[entry.parent] is Action.MKDIR and entry.action in CHILD_ACTIONS:
            if entry.name == ROOT_NAME:
                raise InvalidEntry("only the root is named '/'")
            return (*path, entry.name)
        if entry.action.is_state and entry.name != (path[-1] if path else ROOT_NAME):
            raise InvalidEntry("a successor carries the name of its path")
        return path

    def _add_block(self, block: bytes) -> bool:
        """Returns whether a block is new.  Raises `InvalidEntry`."""
        hash = BlockHash(sha224(block))
        if hash in self._blocks:
            return False
        if hash not in self._wanted:
            raise _Stray(f"block {hash.hex()[:12]} is of no content")
        if not 0 < len(block) <= SYNC_BLOCK_DATA:
            raise InvalidEntry(f"a block has 1 to {SYNC_BLOCK_DATA} bytes")
        self._take_room(block)
        self._blocks[hash] = block
        _, writers = self._wanted.pop(hash)
        for writer, place in writers.items():
            # What does not fit is missing for ever.
            if place.fits(len(block)):
                self._want(writer, place)
                self._lacks[writer].discard(hash)
                self._check(writer)
        return True

    def _want(self, writer: EntryHash, place: BlockPlace) -> None:
        """Note what is missing of a content from a place on."""
        for each in places(place, self._blocks.get):
            block = self._blocks.get(each.hash)
            if block is None or not each.fits(len(block)):
                self._lacks[writer].add(each.hash)
            if block is None:
                self._number += 1
                self._wanted.setdefault(each.hash, (self._number, {}))[1][writer] = each
        self._check(writer)

    def _check(self, writer: EntryHash) -> None:
        if not self._lacks.get(writer, True):
            del self._lacks[writer]
            self._completed.append(writer)

    def _put(self, hash: EntryHash, value: int) -> None:
        """Put an entry into the tree with this value."""
        path = self._entries[hash][1]
        for depth in range(len(path) + 1):
            self._sums[path[:depth]] = (self._sums.get(path[:depth], 0) + value) & SUM_MASK

    def _take_room(self, data: bytes) -> None:
        if len(data) > self._room:
            raise InvalidEntry("the log is full")
        self._room -= len(data)
