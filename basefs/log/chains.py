"""Chains: the blocks of contents, and the chains whose end has not arrived (docs/formats.md, section 6).

Invariants

1. A block from elsewhere is stored after the one that names it, so every chain is verified from its start.
2. A write is *complete* once the blocks from its first one on reach the end of the chain, or as many bytes as its size
   allows.  So that follows from the write and the blocks that are here, whatever they came for, and one block beyond
   the limit is the most that a write brings.  A chain that goes on behind it is found too long when it is read.
3. A chain has a row in `chains` exactly while a write that names it is not complete, and that row names the first block
   that is missing.
4. While a chain is *receiving* its writes contribute nothing to the Merkle tree; while it is *stalled*, each one the
   hash of its own and that of the last block that came.
5. A chain that no view shows is *withheld*, and while there is no room for contents all incomplete chains have *no
   room*: each write contributes its hash, as if it were complete, so that nobody compares because of it.
"""

from __future__ import annotations

import enum
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from basefs.errors import InvalidEntry
from basefs.log.blocks import Block
from basefs.log.codecs import chain_limit
from basefs.log.database import Database
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, stalled_hash
from basefs.log.paths import Paths
from basefs.log.placement import Placed
from basefs.log.reaches import Reaches

#: The row of a block.
BLOCK_QUERY = "SELECT data FROM blocks WHERE hash = ?"
#: Not decoded: hashing 200 MB takes half a second.  Damage is found when the content is read.
_STEP_QUERY = "SELECT substr(data, 1, 28), size FROM blocks WHERE hash = ?"
_INSERT = "INSERT OR IGNORE INTO blocks (hash, size, data) VALUES (?, ?, ?)"


class ChainState(enum.IntEnum):
    """The column `stalled`."""

    RECEIVING = 0
    STALLED = 1
    NO_ROOM = 2
    WITHHELD = 3


#: The chains of which the Merkle tree does not tell what is missing.
UNTOLD = f"stalled IN ({ChainState.RECEIVING:d}, {ChainState.NO_ROOM:d})"
#: The chains whose next block is asked for.
WANTED = f"stalled < {ChainState.NO_ROOM:d}"


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A write whose content is not complete.

    Attributes:
        entry: hash of the write.
        state: of its chain.
        changed: UNIX seconds when the last block came, or the write if none did.
        blocks: how many blocks are here.
        held: bytes of content in them; a content is a delta, so the file may have more, or fewer.
    """

    entry: EntryHash
    state: ChainState
    changed: float
    blocks: int
    held: int


class Chains:
    """The tables `blocks`, `chains` and `waiting`.

    Attributes:
        lacks_room: whether there is no room for contents of others.
    """

    def __init__(self, database: Database, paths: Paths) -> None:
        self._database = database
        self._db = database.main
        self._paths = paths
        #: Chain -> the block that it waits for, as in the table: every write that arrives asks.
        self._missing: dict[BlockHash, BlockHash] = {}
        self._incomplete: set[EntryHash] = set()
        self._withheld: set[BlockHash] = set()
        self.lacks_room = False
        #: The blocks that chains wait for, and how many wait for each.
        self._expected: Counter[BlockHash] = Counter()
        self._reaches = Reaches(lambda hash: self._db.execute(_STEP_QUERY, (hash,)).fetchone())

    def load(self) -> None:
        """Load the state in memory."""
        rows = self._db.execute("SELECT first, missing, stalled FROM chains").fetchall()
        self._missing = {BlockHash(first): BlockHash(missing) for first, missing, _ in rows}
        self._withheld = {BlockHash(first) for first, _, stalled in rows if stalled == ChainState.WITHHELD}
        self._incomplete = {EntryHash(entry) for (entry,) in self._db.execute("SELECT entry FROM waiting")}
        self.lacks_room = any(stalled == ChainState.NO_ROOM for _, _, stalled in rows)
        self._expected = Counter(self._missing.values())
        self._reaches.clear()

    def _wait_for(self, first: BlockHash, missing: BlockHash | None) -> None:
        before = self._missing.pop(first, None)
        if before is not None:
            self._expected[before] -= 1
            if not self._expected[before]:
                del self._expected[before]
        if missing is not None:
            self._missing[first] = missing
            self._expected[missing] += 1
        else:
            self._withheld.discard(first)

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

    def is_complete(self, write: EntryHash) -> bool:
        """Whether all blocks of a write of the log are here that its size allows."""
        return write not in self._incomplete

    def insert_block(self, block: Block) -> bool:
        """Append a block, inside a transaction, without a look at waiting chains; returns whether it is new."""
        return self._db.execute(_INSERT, _row_of(block)).rowcount == 1

    def copy_rows(self, rows: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Store hashes, bytes of data and encodings of blocks as they are, inside a transaction, before the entries
        that name them.
        """
        self._db.executemany(_INSERT, rows)

    def store_aside(self, blocks: Sequence[Block]) -> bool:
        """Store some blocks of content made on this node, whose entry comes later, in a transaction of its own.

        Needs no lock, but excludes other writers.  False if a chain waits for one of them: then no block is stored,
        and `append_block` must be used.  Raises `NoSpace`, `StoreError`.
        """
        if any(self.expects(block.hash) for block in blocks):
            return False
        aside = self._database.aside
        with self._database.transaction(aside):
            aside.executemany(_INSERT, map(_row_of, blocks))
        return True

    def open(self, placed: Placed, now: float, complete: bool, needed: bool) -> bool:
        """Record the block that a write waits for; True if it is complete."""
        first, most = BlockHash(placed.entry.content), chain_limit(placed.entry.size)
        if first in self._missing:
            if self._db.execute("SELECT held FROM chains WHERE first = ?", (first,)).fetchone()[0] >= most:
                return True
            # All writes of one chain are in one state, so the older ones are *receiving* again, like the new one.
            if not self.lacks_room and (needed or first not in self._withheld):
                self.set_state(first, ChainState.RECEIVING, now=now)
        elif complete:
            return True
        else:
            reach = self._reaches.of(first, most)
            if reach.missing == ZERO_HASH or reach.held >= most:
                return True
            state = ChainState.RECEIVING
            if not needed:
                state = ChainState.WITHHELD
                self._withheld.add(first)
            elif self.lacks_room:
                state = ChainState.NO_ROOM
            self._db.execute("INSERT INTO chains VALUES (?, ?, ?, ?, ?, ?, ?)", (first, *reach, state, now))
            self._wait_for(first, reach.missing)
        self._db.execute("INSERT INTO waiting VALUES (?, ?, ?)", (first, most, placed.entry.hash))
        self._incomplete.add(placed.entry.hash)
        if self.lacks_room or first in self._withheld:
            self._paths.contribute(placed.path_id, placed.entry.hash)
        return False

    def expects(self, hash: BlockHash) -> bool:
        """Whether some chain waits for exactly this block."""
        return hash in self._expected

    def admits(self, hash: BlockHash) -> bool:
        """Whether a chain that waits for a block may have it."""
        return not self.lacks_room and any(first not in self._withheld for first in self.chains_waiting_for(hash))

    def chains_waiting_for(self, hash: BlockHash) -> list[BlockHash]:
        """The first blocks of the chains that wait for exactly this block."""
        rows = self._db.execute("SELECT first FROM chains WHERE missing = ?", (hash,))
        return [BlockHash(first) for (first,) in rows]

    def append_block(self, block: Block, *, now: float) -> list[EntryHash]:
        """Append an expected block, inside a transaction; returns the write entries that it completed."""
        hash = block.hash
        query = "SELECT first, blocks, held, stalled, (SELECT max(most) FROM waiting w WHERE w.first = c.first)"
        chains = self._db.execute(f"{query} FROM chains c WHERE missing = ?", (hash,)).fetchall()
        self.insert_block(block)
        # What follows may have been here, too.
        behind = self._reaches.of(hash, max(most - held for _, _, held, _, most in chains))
        completed: list[EntryHash] = []
        for first, blocks, held, state, most in chains:
            if state == ChainState.STALLED:
                self.set_state(first, ChainState.RECEIVING, now=now)
            blocks, held = blocks + behind.blocks, held + behind.held
            allowed = most if behind.missing == ZERO_HASH else held
            completed += self._complete(first, allowed, told=state in (ChainState.NO_ROOM, ChainState.WITHHELD))
            if allowed >= most:
                self._db.execute("DELETE FROM chains WHERE first = ?", (first,))
                self._wait_for(first, None)
                continue
            query = "UPDATE chains SET missing = ?, last = ?, blocks = ?, held = ?, changed = ? WHERE first = ?"
            self._db.execute(query, (behind.missing, behind.last, blocks, held, now, first))
            self._wait_for(first, behind.missing)
        return completed

    def _complete(self, first: BlockHash, most: int, *, told: bool) -> list[EntryHash]:
        """Let the writes of a chain wait no longer that may have no more bytes; `told`: they are in the tree."""
        which = "FROM waiting WHERE first = ? AND most <= ?"
        completed = [EntryHash(entry) for (entry,) in self._db.execute(f"SELECT entry {which}", (first, most))]
        if completed:
            self._db.execute(f"DELETE {which}", (first, most))
            self._incomplete.difference_update(completed)
        for entry in () if told else completed:
            self._paths.contribute(self._path_of(entry), entry)
        return completed

    def missing_block(self, first: BlockHash) -> BlockHash | None:
        """The block that one chain waits for and may have, `None` if it is complete or unknown."""
        return None if first in self._withheld or self.lacks_room else self._missing.get(first)

    def overdue(self, older_than: float) -> list[BlockHash]:
        """The chains that are *receiving* and got no block since `older_than` (UNIX seconds)."""
        rows = self._db.execute("SELECT first FROM chains WHERE NOT stalled AND changed < ?", (older_than,))
        return [BlockHash(first) for (first,) in rows]

    def set_lacks_room(self, lacks_room: bool, *, now: float) -> int:
        """Let all chains wait for room, or have them go on, inside a transaction; returns how many."""
        self.lacks_room = lacks_room
        state = ChainState.NO_ROOM if lacks_room else ChainState.RECEIVING
        chains = [first for first in self._missing if first not in self._withheld]
        for first in chains:
            self.set_state(first, state, now=now)
        return len(chains)

    @property
    def without_room(self) -> int:
        """How many chains do not come because there is no room for them."""
        return len(self._missing) - len(self._withheld) if self.lacks_room else 0

    @property
    def any_withheld(self) -> bool:
        """Whether any chain does not come because no view shows it."""
        return bool(self._withheld)

    def is_withheld(self, first: bytes) -> bool:
        """Whether a chain does not come because no view shows it."""
        return first in self._withheld

    def waiting_writes(self) -> dict[int, dict[EntryHash, BlockHash]]:
        """The writes whose chains are incomplete, by the id of their path."""
        found: dict[int, dict[EntryHash, BlockHash]] = {}
        query = "SELECT e.path, w.entry, w.first FROM waiting w JOIN entries e ON e.hash = w.entry"
        for path_id, entry, first in self._db.execute(query):
            found.setdefault(path_id, {})[EntryHash(entry)] = BlockHash(first)
        return found

    def set_needed(self, needed: Mapping[BlockHash, bool], *, now: float) -> int:
        """Note which incomplete chains are needed, inside a transaction; returns how many are now and were not."""
        count = 0
        for first, is_needed in needed.items():
            if first not in self._missing:
                # It is complete now.
                continue
            if is_needed == (first not in self._withheld):
                continue
            state = ChainState.WITHHELD
            if is_needed:
                count += 1
                state = ChainState.NO_ROOM if self.lacks_room else ChainState.RECEIVING
            self.set_state(first, state, now=now)
        return count

    def release(self, missing: BlockHash, *, now: float) -> None:
        """Let the withheld chains that wait for a block have it, inside a transaction."""
        for first in self.chains_waiting_for(missing):
            if first in self._withheld:
                self.set_state(first, ChainState.RECEIVING, now=now)

    def set_state(self, first: BlockHash, state: ChainState, *, now: float) -> None:
        """Give an incomplete chain another state, inside a transaction."""
        self._withheld.discard(first)
        if state is ChainState.WITHHELD:
            self._withheld.add(first)
        last, was = self._db.execute("SELECT last, stalled FROM chains WHERE first = ?", (first,)).fetchone()
        if was != state:
            for (entry,) in self._db.execute("SELECT entry FROM waiting WHERE first = ?", (first,)).fetchall():
                before, after = _contributed(was, entry, last), _contributed(state, entry, last)
                if before is not None:
                    self._paths.withdraw(self._path_of(entry), before)
                if after is not None:
                    self._paths.contribute(self._path_of(entry), after)
        self._db.execute("UPDATE chains SET stalled = ?, changed = ? WHERE first = ?", (state, now, first))

    def incomplete(self) -> list[Incomplete]:
        """The writes whose content is not complete, those that changed last first."""
        rows = self._db.execute(
            "SELECT w.entry, c.stalled, c.changed, c.blocks, c.held FROM waiting w JOIN chains c ON c.first = w.first "
            "ORDER BY c.changed DESC, w.entry"
        ).fetchall()
        return [Incomplete(EntryHash(entry), ChainState(stalled), *rest) for entry, stalled, *rest in rows]

    def _path_of(self, entry: bytes) -> int:
        return int(self._db.execute("SELECT path FROM entries WHERE hash = ?", (entry,)).fetchone()[0])


def _contributed(state: int, entry: bytes, last: bytes) -> bytes | None:
    """What a write contributes to the tree whose chain is in this state."""
    if state == ChainState.RECEIVING:
        return None
    return stalled_hash(entry, last) if state == ChainState.STALLED else entry


def _row_of(block: Block) -> tuple[bytes, int, bytes]:
    return block.hash, len(block.data), block.encode()


def decoded_block(row: tuple[bytes] | None, hash: BlockHash) -> Block | None:
    """The block in a row of `BLOCK_QUERY`, or `None` if there is none or it does not match its hash."""
    try:
        block = None if row is None else Block.decode(row[0])
    except InvalidEntry:
        return None
    return block if block is not None and block.hash == hash else None


def next_of(db: sqlite3.Connection, hash: BlockHash) -> BlockHash | None:
    """The hash of the block behind one, `ZERO_HASH` at the end; `None` if the block is not here."""
    row = db.execute(_STEP_QUERY, (hash,)).fetchone()
    return None if row is None else BlockHash(row[0])
