"""Chains: the blocks of contents, and the chains whose end has not arrived (docs/formats.md, section 6).

Invariants

1. A block from elsewhere is stored after the one that names it, so every chain is verified from its start.
2. A chain has a row in `chains` exactly while a write names it and a block is missing, and that row names the first
   block that is.
3. While a chain is *receiving* its writes contribute nothing to the Merkle tree; while it is *stalled*, each one its
   hash XOR the hash of the last block that came.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from basefs.errors import InvalidEntry
from basefs.log.blocks import Block
from basefs.log.database import Database
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, xor
from basefs.log.paths import Paths
from basefs.log.placement import Placed

#: The row of a block.
BLOCK_QUERY = "SELECT data FROM blocks WHERE hash = ?"


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A write whose content is not complete.

    Attributes:
        entry: hash of the write.
        stalled: whether no block has come for a while.
        changed: UNIX seconds when the last block came, or the write if none did.
        blocks: how many blocks are here.
        held: bytes of content in them; a content is a delta, so the file may have more, or fewer.
    """

    entry: EntryHash
    stalled: bool
    changed: float
    blocks: int
    held: int


class Chains:
    """The tables `blocks`, `chains` and `waiting`."""

    def __init__(self, database: Database, paths: Paths) -> None:
        self._database = database
        self._db = database.main
        self._paths = paths
        #: Chain -> the block that it waits for, as in the table: every write that arrives asks.
        self._missing: dict[BlockHash, BlockHash] = {}
        #: The blocks that chains wait for, and how many wait for each.
        self._expected: Counter[BlockHash] = Counter()

    def load(self) -> None:
        """Load the state in memory."""
        rows = self._db.execute("SELECT first, missing FROM chains")
        self._missing = {BlockHash(first): BlockHash(missing) for first, missing in rows}
        self._expected = Counter(self._missing.values())

    def _wait_for(self, first: BlockHash, missing: BlockHash | None) -> None:
        before = self._missing.pop(first, None)
        if before is not None:
            self._expected[before] -= 1
            if not self._expected[before]:
                del self._expected[before]
        if missing is not None:
            self._missing[first] = missing
            self._expected[missing] += 1

    def total(self) -> int:
        """Number of blocks."""
        return int(self._db.execute("SELECT max(seq) FROM blocks").fetchone()[0] or 0)

    def block(self, hash: BlockHash) -> Block | None:
        """A block, or `None` if it is unknown or damaged."""
        row = self._db.execute(BLOCK_QUERY, (hash,)).fetchone()
        block = decoded_block(row, hash)
        if row is not None and block is None:
            self._database.report_damage("block", hash)
        return block

    def is_complete(self, first: bytes) -> bool:
        """Whether all blocks of a chain are here; the empty content always is."""
        return first not in self._missing

    def insert_block(self, block: Block) -> bool:
        """Append a block, inside a transaction, without a look at waiting chains; returns whether it is new."""
        query = "INSERT OR IGNORE INTO blocks (hash, data) VALUES (?, ?)"
        return self._db.execute(query, (block.hash, block.encode())).rowcount == 1

    def copy_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Store hashes and encodings of blocks as they are, inside a transaction, before the entries that name them."""
        self._db.executemany("INSERT OR IGNORE INTO blocks (hash, data) VALUES (?, ?)", rows)

    def store_aside(self, blocks: Sequence[Block]) -> bool:
        """Store some blocks of content made on this node, whose entry comes later, in a transaction of its own.

        Needs no lock, but excludes other writers.  False if a chain waits for one of them: then no block is stored,
        and `append_block` must be used.  Raises `NoSpace`, `StoreError`.
        """
        if any(self.expects(block.hash) for block in blocks):
            return False
        aside = self._database.aside
        with self._database.transaction(aside):
            rows = [(block.hash, block.encode()) for block in blocks]
            aside.executemany("INSERT OR IGNORE INTO blocks (hash, data) VALUES (?, ?)", rows)
        return True

    def open(self, placed: Placed, now: float, complete: bool) -> bool:
        """Record the block that a write waits for; True if all its blocks are here."""
        first = BlockHash(placed.entry.content)
        if first in self._missing:
            # All writes of one chain are in one state, so the older ones are *receiving* again, like the new one.
            self.set_stalled(first, stalled=False, now=now)
        elif complete:
            return True
        else:
            missing, last = self._follow(first, BlockHash(ZERO_HASH))
            if missing == ZERO_HASH:
                return True
            self._db.execute("INSERT INTO chains VALUES (?, ?, ?, 0, ?)", (first, missing, last, now))
            self._wait_for(first, missing)
        self._db.execute("INSERT INTO waiting VALUES (?, ?)", (first, placed.entry.hash))
        return False

    def _follow(self, hash: BlockHash, last: BlockHash) -> tuple[BlockHash, BlockHash]:
        """Walk a chain from `hash`: (first hash that is not here, last block that is)."""
        while hash != ZERO_HASH:
            following = next_of(self._db, hash)
            if following is None:
                break
            hash, last = following, hash
        return hash, last

    def expects(self, hash: BlockHash) -> bool:
        """Whether some chain waits for exactly this block."""
        return hash in self._expected

    def chains_waiting_for(self, hash: BlockHash) -> list[BlockHash]:
        """The first blocks of the chains that wait for exactly this block."""
        rows = self._db.execute("SELECT first FROM chains WHERE missing = ?", (hash,))
        return [BlockHash(first) for (first,) in rows]

    def append_block(self, block: Block, *, now: float) -> list[EntryHash]:
        """Append an expected block, inside a transaction; returns the write entries whose content it completed."""
        hash = block.hash
        chains = self._db.execute("SELECT first FROM chains WHERE missing = ?", (hash,)).fetchall()
        self.insert_block(block)
        missing, last = self._follow(block.next, hash)
        completed: list[EntryHash] = []
        for (first,) in chains:
            self.set_stalled(first, stalled=False, now=now)
            if missing != ZERO_HASH:
                self._db.execute("UPDATE chains SET missing = ?, last = ? WHERE first = ?", (missing, last, first))
                self._wait_for(first, missing)
                continue
            for (entry,) in self._db.execute("SELECT entry FROM waiting WHERE first = ?", (first,)).fetchall():
                self._paths.contribute(self._path_of(entry), entry)
                completed.append(EntryHash(entry))
            self._db.execute("DELETE FROM waiting WHERE first = ?", (first,))
            self._db.execute("DELETE FROM chains WHERE first = ?", (first,))
            self._wait_for(first, None)
        return completed

    def missing_block(self, first: BlockHash) -> BlockHash | None:
        """The block that one chain waits for, `None` if it is complete or unknown."""
        return self._missing.get(first)

    def overdue(self, older_than: float) -> list[BlockHash]:
        """The chains that are *receiving* and got no block since `older_than` (UNIX seconds)."""
        rows = self._db.execute("SELECT first FROM chains WHERE NOT stalled AND changed < ?", (older_than,))
        return [BlockHash(first) for (first,) in rows]

    def set_stalled(self, first: BlockHash, *, stalled: bool, now: float) -> None:
        """Make a chain *stalled* or *receiving*, inside a transaction."""
        last, was = self._db.execute("SELECT last, stalled FROM chains WHERE first = ?", (first,)).fetchone()
        if bool(was) != stalled:
            for (entry,) in self._db.execute("SELECT entry FROM waiting WHERE first = ?", (first,)).fetchall():
                self._paths.contribute(self._path_of(entry), xor(entry, last))
        self._db.execute("UPDATE chains SET stalled = ?, changed = ? WHERE first = ?", (stalled, now, first))

    def incomplete(self) -> list[Incomplete]:
        """The writes whose content is not complete, those that changed last first."""
        rows = self._db.execute(
            "SELECT w.entry, c.first, c.stalled, c.changed FROM waiting w JOIN chains c ON c.first = w.first "
            "ORDER BY c.changed DESC, w.entry"
        ).fetchall()
        return [
            Incomplete(EntryHash(entry), bool(stalled), changed, *self._count(BlockHash(first)))
            for entry, first, stalled, changed in rows
        ]

    def _count(self, hash: bytes) -> tuple[int, int]:
        """How many blocks of a chain are here without a gap, and their bytes of data."""
        count = size = 0
        query = "SELECT substr(data, 1, 28), length(data) - 28 FROM blocks WHERE hash = ?"
        while hash != ZERO_HASH and (row := self._db.execute(query, (hash,)).fetchone()) is not None:
            hash = row[0]
            count += 1
            size += row[1]
        return count, size

    def _path_of(self, entry: bytes) -> int:
        return int(self._db.execute("SELECT path FROM entries WHERE hash = ?", (entry,)).fetchone()[0])


def decoded_block(row: tuple[bytes] | None, hash: BlockHash) -> Block | None:
    """The block in a row of `BLOCK_QUERY`, or `None` if there is none or it does not match its hash."""
    try:
        block = None if row is None else Block.decode(row[0])
    except InvalidEntry:
        return None
    return block if block is not None and block.hash == hash else None


def next_of(db: sqlite3.Connection, hash: BlockHash) -> BlockHash | None:
    """The hash of the block behind one, `ZERO_HASH` at the end; `None` if the block is not here."""
    # Not decoded: hashing 200 MB takes half a second.  Damage is found when the content is read.
    row = db.execute("SELECT substr(data, 1, 28) FROM blocks WHERE hash = ?", (hash,)).fetchone()
    return None if row is None else BlockHash(row[0])
