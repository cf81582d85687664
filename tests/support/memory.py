"""A log in dictionaries: the twin of the replica for tests and simulations without a disk.

Invariants:
1. An entry is known only if its parent is, so `_own` lists are in an order in which they can be accepted.
2. `_sums[path]` is the sum of the values of all entries at or below `path`; receiving entries count as nothing.
3. `_chains` holds exactly the writes that are not complete, `_waiting` the same by first missing block.  A write is
   complete once its blocks reach the end of the chain, or as many bytes as its size allows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from basefs.errors import InvalidEntry
from basefs.log.codecs import chain_limit
from basefs.log.entries import CHILD_ACTIONS, ROOT_NAME, Action, Entry
from basefs.log.hashes import (
    HASH_SIZE,
    SUM_MASK,
    ZERO_HASH,
    BlockHash,
    EntryHash,
    Fingerprint,
    addend,
    sha224,
    stalled_hash,
    sum_hash,
)
from basefs.log.interface import AddResult, Digest, Listing
from basefs.log.keys import verify
from basefs.path import Path
from basefs.sync.wire.limits import MAX_BLOCK_DATA


@dataclass(slots=True)
class _Chain:
    """An incomplete content: last block that came, first that is missing, bytes that it may still have, and whether it
    has stopped arriving.
    """

    last: BlockHash
    missing: BlockHash
    room: int
    stalled: bool = False


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
        self._chains: dict[EntryHash, _Chain] = {}
        self._waiting: dict[BlockHash, list[EntryHash]] = {}

    audit = None

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._entries)

    @property
    def identity(self) -> bytes:
        """See `LogState`."""
        return self._identity

    def root_hash(self) -> bytes:
        """See `LogState`."""
        return self.path_hash(())

    def digest(self) -> Digest:
        """See `LogState`."""
        return Digest(self.root_hash(), len(self._entries))

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
        own = tuple(self._own[path])
        chains = {hash: chain for hash in own if (chain := self._chains.get(hash)) is not None}
        return Listing(
            entries=tuple(hash for hash in own if hash not in chains),
            receiving=tuple(hash for hash, chain in chains.items() if not chain.stalled),
            stalled=tuple((hash, chain.last) for hash, chain in chains.items() if chain.stalled),
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

    def block_behind(self, hash: BlockHash, count: int) -> BlockHash | None:
        """See `LogState`."""
        for _ in range(count):
            block = self._blocks.get(hash)
            if block is None:
                return None
            hash = BlockHash(block[:HASH_SIZE])
        return hash if hash in self._blocks else None

    def missing_blocks(self, limit: int) -> tuple[BlockHash, ...]:
        """See `LogState`."""
        return tuple(self._waiting)[:limit]

    def awaits(self, hash: BlockHash) -> bool:
        """See `LogState`."""
        return hash in self._waiting

    def stall(self) -> None:
        """Contents that are still arriving have stopped: entry and last block enter the tree."""
        for hash, chain in list(self._chains.items()):
            if not chain.stalled:
                chain.stalled = True
                self._put(hash, addend(stalled_hash(hash, chain.last)))

    def add(self, entries: Sequence[bytes], blocks: Sequence[bytes], *, peer: str = "") -> AddResult:
        """See `LogState`; nothing waits here, so the sender does not matter."""
        with self._adding:
            return self._add(entries, blocks)

    def _add(self, entries: Sequence[bytes], blocks: Sequence[bytes]) -> AddResult:
        accepted = 0
        parents: dict[EntryHash, None] = {}
        touched: dict[EntryHash, None] = {}
        rejected: list[str] = []
        strays = 0
        for data in entries:
            try:
                entry = Entry.decode(data)
                if entry.hash in self._entries:
                    continue
                self._add_entry(entry, data)
                accepted += 1
                touched[entry.hash] = None
            except _MissingParent:
                parents[entry.parent] = None
            except InvalidEntry as error:
                rejected.append(str(error))
        for block in blocks:
            try:
                writers = self._add_block(block)
            except InvalidEntry as error:
                rejected.append(str(error))
                strays += isinstance(error, _Stray)
                continue
            accepted += bool(writers)
            touched.update(dict.fromkeys(writers))
        missing = dict.fromkeys(self._chains[hash].missing for hash in touched if hash in self._chains)
        return AddResult(accepted, tuple(parents), tuple(missing), tuple(rejected), strays)

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
        if entry.action is Action.WRITE and entry.content:
            self._chains[entry.hash] = _Chain(BlockHash(ZERO_HASH), BlockHash(entry.content), chain_limit(entry.size))
            self._advance(entry.hash)
        else:
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

    def _add_block(self, block: bytes) -> list[EntryHash]:
        """The writes that a block belongs to; none if it is known.  Raises `InvalidEntry`."""
        hash = BlockHash(sha224(block))
        if hash in self._blocks:
            return []
        writers = self._waiting.get(hash)
        if writers is None:
            raise _Stray(f"block {hash.hex()[:12]} is not the next of any content")
        if not HASH_SIZE < len(block) <= HASH_SIZE + MAX_BLOCK_DATA:
            raise InvalidEntry(f"a block has 1 to {MAX_BLOCK_DATA} bytes of data")
        self._take_room(block)
        self._blocks[hash] = block
        del self._waiting[hash]
        for writer in writers:
            chain = self._chains[writer]
            if chain.stalled:
                self._put(writer, -addend(stalled_hash(writer, chain.last)))
                chain.stalled = False
            self._advance(writer)
        return writers

    def _advance(self, writer: EntryHash) -> None:
        """Follow a content as far as its blocks are known."""
        chain = self._chains[writer]
        while chain.missing != ZERO_HASH and chain.room > 0 and chain.missing in self._blocks:
            block = self._blocks[chain.missing]
            chain.room -= len(block) - HASH_SIZE
            chain.last, chain.missing = chain.missing, BlockHash(block[:HASH_SIZE])
        if chain.missing == ZERO_HASH or chain.room <= 0:
            del self._chains[writer]
            self._put(writer, addend(writer))
        else:
            self._waiting.setdefault(chain.missing, []).append(writer)

    def _put(self, hash: EntryHash, value: int) -> None:
        """Put an entry into the tree with this value; a negative one takes it out."""
        path = self._entries[hash][1]
        for depth in range(len(path) + 1):
            self._sums[path[:depth]] = (self._sums.get(path[:depth], 0) + value) & SUM_MASK

    def _take_room(self, data: bytes) -> None:
        if len(data) > self._room:
            raise InvalidEntry("the log is full")
        self._room -= len(data)
