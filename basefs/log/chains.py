"""Chains: the blocks of contents, and the chains whose end has not arrived (docs/formats.md, section 6).

Invariants

1. A block from elsewhere is stored after the one that names it, so every chain is verified from its start.
2. A write is *complete* once the blocks from its first one on reach the end of the chain, or as many bytes as its size
   allows.  So that follows from the write and the blocks that are here, whatever they came for, and one block beyond
   the limit is the most that a write brings.  A chain that goes on behind it is found too long when it is read.
3. A write has a row in `waiting` exactly while it is not complete.  That names a row in `chains`, which has the first
   block that is missing.  All chains that wait for one block behind the same last one, in the same state, share a row:
   entries may name each block of a chain as a first one, and a block that arrives must not move each of them.  Where
   two rows become one, the smaller one joins the larger, so a write is moved log n times at the most.
4. While a chain is *receiving* its writes contribute nothing to the Merkle tree; while it is *stalled*, each one the
   hash of its own and that of the last block that came.
5. A chain that no view shows is *withheld*, and while there is no room for contents all incomplete chains have *no
   room*: each write contributes its hash, as if it were complete, so that nobody compares because of it.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from basefs.errors import InvalidEntry
from basefs.log.blocks import Block
from basefs.log.codecs import chain_limit
from basefs.log.database import Database
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, stalled_hash
from basefs.log.paths import Paths
from basefs.log.placement import Placed
from basefs.log.reaches import Reaches, Run

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


@dataclass(slots=True)
class _Tail:
    """One row of `chains`: the chains that wait for one block behind the same last one, in the same state.

    Attributes:
        id: of the row.
        missing, last, blocks, held, state: as in the row.
        firsts: the first blocks of these chains.
        writes: how many writes name them.
    """

    id: int
    missing: BlockHash
    last: BlockHash
    blocks: int
    held: int
    state: int
    firsts: set[BlockHash] = field(default_factory=set)
    writes: int = 0


class Chains:
    """The tables `blocks`, `chains` and `waiting`.

    Attributes:
        lacks_room: whether there is no room for contents of others.
    """

    def __init__(self, database: Database, paths: Paths) -> None:
        self._database = database
        self._db = database.main
        self._paths = paths
        self._incomplete: set[EntryHash] = set()
        #: The rows of `chains`, as every write and block that arrives asks for them: by the first block of a chain, and
        #: by the missing block, then by the last one and the state.
        self._tails: dict[BlockHash, _Tail] = {}
        self._expected: dict[BlockHash, dict[tuple[BlockHash, int], _Tail]] = {}
        self._withheld = 0
        self.lacks_room = False
        self._reaches = Reaches(lambda hash: self._db.execute(_STEP_QUERY, (hash,)).fetchone())

    def load(self) -> None:
        """Load the state in memory."""
        self._tails.clear()
        self._expected.clear()
        self._withheld = 0
        rows = self._db.execute("SELECT id, missing, last, blocks, held, stalled FROM chains")
        tails = {row[0]: _Tail(*row) for row in rows}
        for tail in tails.values():
            self._index(tail)
        query = "SELECT first, chain, count(*) FROM waiting GROUP BY first, chain"
        for first, id, writes in self._db.execute(query):
            # A row that is missing is damage.
            if id in tails:
                self._join(tails[id], BlockHash(first), writes)
        self._incomplete = {EntryHash(entry) for (entry,) in self._db.execute("SELECT entry FROM waiting")}
        self.lacks_room = any(tail.state == ChainState.NO_ROOM for tail in tails.values())
        self._reaches.clear()

    def _index(self, tail: _Tail) -> None:
        self._expected.setdefault(tail.missing, {})[tail.last, tail.state] = tail

    def _drop(self, tail: _Tail) -> None:
        beside = self._expected[tail.missing]
        del beside[tail.last, tail.state]
        if not beside:
            del self._expected[tail.missing]

    def _join(self, tail: _Tail, first: BlockHash, writes: int) -> None:
        """Note writes that name a chain, which waits in a row."""
        if first not in self._tails:
            self._withheld += tail.state == ChainState.WITHHELD
            self._tails[first] = tail
            tail.firsts.add(first)
        tail.writes += writes

    def _leave(self, tail: _Tail, first: BlockHash) -> None:
        """Note that a chain waits in a row no longer."""
        self._withheld -= tail.state == ChainState.WITHHELD
        del self._tails[first]
        tail.firsts.discard(first)

    def _tail_for(self, missing: BlockHash, last: BlockHash, blocks: int, held: int, state: int, now: float) -> _Tail:
        """The row of chains that wait for a block; a new one counts so many blocks and bytes."""
        tail = self._expected.get(missing, {}).get((last, state))
        if tail is None:
            insert = "INSERT INTO chains (missing, last, blocks, held, stalled, changed) VALUES (?, ?, ?, ?, ?, ?)"
            id = self._db.execute(insert, (missing, last, blocks, held, state, now)).lastrowid
            assert id is not None
            tail = _Tail(id, missing, last, blocks, held, state)
            self._index(tail)
        else:
            self._db.execute("UPDATE chains SET changed = ? WHERE id = ?", (now, tail.id))
        return tail

    def _shift(self, source: _Tail, target: _Tail, where: str, value: object) -> int:
        """Have writes that wait in one row wait in another one; returns how many."""
        blocks, held = target.blocks - source.blocks, target.held - source.held
        update = f"UPDATE waiting SET chain = ?, blocks = blocks + ?, held = held + ?, due = due + ? WHERE {where} = ?"
        count = self._db.execute(update, (target.id, blocks, held, held, value)).rowcount
        source.writes -= count
        return count

    def _advance(self, tail: _Tail, reach: Run, state: int, now: float) -> None:
        """Blocks came that a row has waited for; it may become one with another row."""
        self._drop(tail)
        tail.missing, tail.last, tail.state = reach.missing, reach.last, state
        tail.blocks, tail.held = tail.blocks + reach.blocks, tail.held + reach.held
        other = self._expected.get(tail.missing, {}).get((tail.last, state))
        if other is not None:
            if other.writes > tail.writes:
                tail, other = other, tail
            else:
                self._drop(other)
            self._db.execute("DELETE FROM chains WHERE id = ?", (other.id,))
            tail.writes += self._shift(other, tail, "chain", other.id)
            tail.firsts |= other.firsts
            self._tails.update(dict.fromkeys(other.firsts, tail))
        self._index(tail)
        update = "UPDATE chains SET missing = ?, last = ?, blocks = ?, held = ?, stalled = ?, changed = ? WHERE id = ?"
        self._db.execute(update, (tail.missing, tail.last, tail.blocks, tail.held, tail.state, now, tail.id))

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
        if first in self._tails:
            if self._start_of(first)[1] + most <= self._tails[first].held:
                return True
            # All writes of one chain are in one state, so the older ones are *receiving* again, like the new one.
            if not self.lacks_room and (needed or not self.is_withheld(first)):
                self.set_state(first, ChainState.RECEIVING, now=now)
            tail = self._tails[first]
            blocks, held = self._start_of(first)
        elif complete:
            return True
        else:
            reach = self._reaches.of(first, most)
            if reach.missing == ZERO_HASH or reach.held >= most:
                return True
            state = ChainState.RECEIVING
            if not needed:
                state = ChainState.WITHHELD
            elif self.lacks_room:
                state = ChainState.NO_ROOM
            tail = self._tail_for(*reach, state, now)
            blocks, held = tail.blocks - reach.blocks, tail.held - reach.held
        entry = placed.entry.hash
        self._db.execute(
            "INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?)", (entry, first, tail.id, blocks, held, held + most)
        )
        self._join(tail, first, 1)
        self._incomplete.add(entry)
        if tail.state >= ChainState.NO_ROOM:
            self._paths.contribute(placed.path_id, entry)
        return False

    def _start_of(self, first: BlockHash) -> tuple[int, int]:
        """The blocks and bytes that the row of a chain counts before its first block."""
        found: tuple[int, int] = self._db.execute(
            "SELECT blocks, held FROM waiting WHERE first = ? LIMIT 1", (first,)
        ).fetchone()
        return found

    def expects(self, hash: BlockHash) -> bool:
        """Whether some chain waits for exactly this block."""
        return hash in self._expected

    def admits(self, hash: BlockHash) -> bool:
        """Whether a chain that waits for a block may have it."""
        tails = self._expected.get(hash, {}).values()
        return not self.lacks_room and any(tail.state != ChainState.WITHHELD for tail in tails)

    def append_block(self, block: Block, *, now: float) -> list[EntryHash]:
        """Append an expected block, inside a transaction; returns the write entries that it completed."""
        hash = block.hash
        tails = list(self._expected[hash].values())
        most = max(self._most_of(tail) for tail in tails)
        self.insert_block(block)
        # What follows may have been here, too.
        behind = self._reaches.of(hash, most)
        completed: list[EntryHash] = []
        for tail in tails:
            if tail.state == ChainState.STALLED:
                self._recount(tail.state, ChainState.RECEIVING, tail.last, "chain", tail.id)
            completed += self._complete(tail, behind)
            if tail.writes:
                state = ChainState.RECEIVING if tail.state == ChainState.STALLED else tail.state
                self._advance(tail, behind, state, now)
            else:
                self._drop(tail)
                self._db.execute("DELETE FROM chains WHERE id = ?", (tail.id,))
        return completed

    def _most_of(self, tail: _Tail) -> int:
        """The most bytes that any write of a row still needs."""
        (due,) = self._db.execute("SELECT max(due) FROM waiting WHERE chain = ?", (tail.id,)).fetchone()
        return int(due) - tail.held

    def _complete(self, tail: _Tail, behind: Run) -> list[EntryHash]:
        """Let the writes of a row wait no longer that need no more than these blocks, or may have no more bytes."""
        which, values = "FROM waiting WHERE chain = ?", [tail.id]
        if behind.missing != ZERO_HASH:
            which, values = f"{which} AND due <= ?", [tail.id, tail.held + behind.held]
        rows = self._db.execute(f"SELECT entry, first {which}", values).fetchall()
        if not rows:
            return []
        self._db.execute(f"DELETE {which}", values)
        tail.writes -= len(rows)
        for first in {BlockHash(first) for _, first in rows}:
            if (
                not tail.writes
                or self._db.execute("SELECT 1 FROM waiting WHERE first = ?", (first,)).fetchone() is None
            ):
                self._leave(tail, first)
        completed = [EntryHash(entry) for entry, _ in rows]
        self._incomplete.difference_update(completed)
        if tail.state < ChainState.NO_ROOM:
            for entry in completed:
                self._paths.contribute(self._path_of(entry), entry)
        return completed

    def missing_block(self, first: BlockHash) -> BlockHash | None:
        """The block that one chain waits for and may have, `None` if it is complete or unknown."""
        tail = self._tails.get(first)
        return None if tail is None or tail.state == ChainState.WITHHELD or self.lacks_room else tail.missing

    def overdue(self, older_than: float) -> list[BlockHash]:
        """The chains that are *receiving* and got no block since `older_than` (UNIX seconds)."""
        rows = self._db.execute("SELECT missing, last FROM chains WHERE NOT stalled AND changed < ?", (older_than,))
        tails = [self._expected[missing][last, ChainState.RECEIVING] for missing, last in rows]
        return [first for tail in tails for first in tail.firsts]

    def set_lacks_room(self, lacks_room: bool, *, now: float) -> int:
        """Let all chains wait for room, or have them go on, inside a transaction; returns how many."""
        self.lacks_room = lacks_room
        state = ChainState.NO_ROOM if lacks_room else ChainState.RECEIVING
        chains = [first for first, tail in self._tails.items() if tail.state != ChainState.WITHHELD]
        for first in chains:
            self.set_state(first, state, now=now)
        return len(chains)

    @property
    def without_room(self) -> int:
        """How many chains do not come because there is no room for them."""
        return len(self._tails) - self._withheld if self.lacks_room else 0

    @property
    def any_withheld(self) -> bool:
        """Whether any chain does not come because no view shows it."""
        return self._withheld > 0

    def is_withheld(self, first: BlockHash) -> bool:
        """Whether a chain does not come because no view shows it."""
        tail = self._tails.get(first)
        return tail is not None and tail.state == ChainState.WITHHELD

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
            if first not in self._tails:
                # It is complete now.
                continue
            if is_needed != self.is_withheld(first):
                continue
            state = ChainState.WITHHELD
            if is_needed:
                count += 1
                state = ChainState.NO_ROOM if self.lacks_room else ChainState.RECEIVING
            self.set_state(first, state, now=now)
        return count

    def release(self, missing: BlockHash, *, now: float) -> None:
        """Let the withheld chains that wait for a block have it, inside a transaction."""
        for tail in list(self._expected.get(missing, {}).values()):
            if tail.state == ChainState.WITHHELD:
                for first in list(tail.firsts):
                    self.set_state(first, ChainState.RECEIVING, now=now)

    def set_state(self, first: BlockHash, state: ChainState, *, now: float) -> None:
        """Give an incomplete chain another state, inside a transaction."""
        tail = self._tails[first]
        if tail.state == state:
            self._db.execute("UPDATE chains SET changed = ? WHERE id = ?", (now, tail.id))
            return
        self._recount(tail.state, state, tail.last, "first", first)
        other = self._tail_for(tail.missing, tail.last, tail.blocks, tail.held, state, now)
        self._leave(tail, first)
        self._join(other, first, self._shift(tail, other, "first", first))
        if not tail.writes:
            self._drop(tail)
            self._db.execute("DELETE FROM chains WHERE id = ?", (tail.id,))

    def _recount(self, before: int, after: int, last: BlockHash, where: str, value: object) -> None:
        """Have writes that wait contribute to the tree what they do in another state."""
        for (entry,) in self._db.execute(f"SELECT entry FROM waiting WHERE {where} = ?", (value,)).fetchall():
            old, new = _contributed(before, entry, last), _contributed(after, entry, last)
            if old is not None:
                self._paths.withdraw(self._path_of(entry), old)
            if new is not None:
                self._paths.contribute(self._path_of(entry), new)

    def incomplete(self) -> list[Incomplete]:
        """The writes whose content is not complete, those that changed last first."""
        rows = self._db.execute(
            "SELECT w.entry, c.stalled, c.changed, c.blocks - w.blocks, c.held - w.held "
            "FROM waiting w JOIN chains c ON c.id = w.chain ORDER BY c.changed DESC, w.entry"
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
