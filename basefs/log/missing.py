"""The blocks of a log, and which of them are missing (docs/formats.md, section 5).

Invariants

1. A write is *complete* once all blocks of its manifest are here, each of the size that follows from the length in the
   entry.  So that follows from the write and the set of blocks, whatever they came for.
2. A write has a row in `waiting` exactly while it is not complete.  It is *wanted*; or *withheld*, because no view
   shows it; or *spoiled*: a block that its manifest names has another size, so that it can never be complete.
3. `missing` has the blocks below wanted writes that are not whole: a row for each list or write and each block that it
   names, in the order of the content.  A part is whole when it is here, a list when all that it names is whole.  Writes
   that name the same list share the rows below it, so that a write costs no more than what came for it.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from basefs.log.blocks import LISTED, LISTING, Block, BlockPlace, BlockRole, Encoded, length_below, listed
from basefs.log.database import Database
from basefs.log.hashes import HASH_SIZE, SUM_MASK, BlockHash, EntryHash, addend, sha224, sum_hash
from basefs.log.placement import Placed
from basefs.log.remembered import Remembered

#: The row of a block.
BLOCK_QUERY = "SELECT data FROM blocks WHERE hash = ?"
_INSERT = "INSERT OR IGNORE INTO blocks (hash, size, data) VALUES (?, ?, ?)"
#: Before the hash of a write in the column `above`.
_WRITE = b"w"
#: Lists of which it is remembered that they are whole, or what they lack; about 200 bytes each.
_REMEMBERED = 50_000


class WriteState(enum.IntEnum):
    """The column `state` of a write that is not complete."""

    WANTED = 0
    WITHHELD = 1
    SPOILED = 2


class ContentProgress(enum.Enum):
    """What becomes of a content that is not complete."""

    RECEIVING = "receiving"
    STALLED = "stalled"
    NO_ROOM = "no room"
    WITHHELD = "withheld"
    SPOILED = "spoiled"


#: Seconds without a block of a content after which that counts as stalled.
STALLED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A write whose content is not complete.

    Attributes:
        entry: hash of the write.
        progress: what becomes of it.
        changed: UNIX seconds when the last block came, or the write if none did.
        blocks: how many parts are here.
        held: bytes in them; a content is encoded, so the file may have more, or fewer.
    """

    entry: EntryHash
    progress: ContentProgress
    changed: float
    blocks: int
    held: int


class _Coverage(NamedTuple):
    """What is known of a block and all below it.

    Attributes:
        gap: a block that is missing; `None` if all are here.
        length: bytes of encoded content, if none is missing; 0 where blocks have another size than they must.
    """

    gap: BlockHash | None
    length: int = 0


class _Arrived(NamedTuple):
    """What has come of a block and all below it: when the last part of a list did, how many parts, bytes in them."""

    changed: float
    blocks: int
    held: int


class BlockStore:
    """The tables `blocks`, `waiting` and `missing`.

    Attributes:
        lacks_room: whether there is no room for contents of others.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._db = database.main
        self._states: dict[EntryHash, WriteState] = {}
        self._wanted_count = 0
        self._withheld = 0
        self.lacks_room = False
        self._coverages: Remembered[tuple[BlockHash, BlockRole], _Coverage] = Remembered(_REMEMBERED)
        #: When the last block came that a list or a write names, and that any wants, UNIX seconds.
        self._moved: Remembered[bytes, float] = Remembered(_REMEMBERED)
        self._moved_at = 0.0
        #: When all that stopped was last asked for again.
        self._asked_at = 0.0
        #: The sum of the writes that are wanted, `None` until somebody asks.
        self._wanted_sum: int | None = None

    def load(self) -> None:
        """Load the state in memory."""
        rows = self._db.execute("SELECT entry, state FROM waiting")
        self._states = {EntryHash(entry): WriteState(state) for entry, state in rows}
        states = list(self._states.values())
        self._wanted_count = states.count(WriteState.WANTED)
        self._withheld = states.count(WriteState.WITHHELD)
        self._coverages.clear()
        self._wanted_sum = None

    # -- blocks -------------------------------------------------------------------------------------------------------

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

    def _size(self, hash: BlockHash) -> int | None:
        """Bytes of a block, `None` if it is not here.  Damage is found when it is read."""
        row = self._db.execute("SELECT size FROM blocks WHERE hash = ?", (hash,)).fetchone()
        return None if row is None else int(row[0])

    def _data(self, hash: BlockHash) -> bytes:
        """The bytes of a list that is here."""
        data: bytes = self._db.execute(BLOCK_QUERY, (hash,)).fetchone()[0]
        return data

    def insert_block(self, block: Block) -> bool:
        """Append a block, inside a transaction, that no write waits for; returns whether it is new."""
        return self._db.execute(_INSERT, _row_of(block)).rowcount == 1

    def copy_rows(self, rows: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Store hashes, sizes and bytes of blocks as they are, inside a transaction, before the entries that name them.

        The bytes of parts may be left out.
        """
        self._db.executemany(_INSERT, rows)

    def store_aside(self, blocks: Sequence[Block]) -> bool:
        """Store some blocks of content made on this node, whose entry comes later, in a transaction of its own.

        Needs no lock, but excludes other writers.  False if a write waits for one of them: then no block is stored, and
        `append_block` must be used.  Raises `NoSpace`, `StoreError`.
        """
        aside = self._database.aside
        with self._database.translated():
            if any(_is_missing(aside, block.hash) for block in blocks):
                return False
        with self._database.transaction(aside):
            aside.executemany(_INSERT, map(_row_of, blocks))
        return True

    # -- writes -------------------------------------------------------------------------------------------------------

    def is_complete(self, write: EntryHash) -> bool:
        """Whether all blocks of a write of the log are here."""
        return write not in self._states

    @property
    def wanted_count(self) -> int:
        """How many writes are `wanted`."""
        return self._wanted_count

    def wanted_hash(self) -> bytes:
        """A hash of the writes that are `wanted`; `ZERO_HASH` if there are none."""
        if self._wanted_sum is None:
            self._wanted_sum = sum(map(addend, self.wanted())) & SUM_MASK
        return sum_hash(self._wanted_sum)

    def _count_wanted(self, entry: EntryHash, step: int) -> None:
        """A write is wanted from now on (1), or no longer (-1)."""
        self._wanted_count += step
        if step and self._wanted_sum is not None:
            # One addition, however many are wanted: while a filesystem is fetched each transaction changes that.
            self._wanted_sum = (self._wanted_sum + step * addend(entry)) & SUM_MASK

    def wanted(self) -> list[EntryHash]:
        """The writes that are not complete of those that should be."""
        return [entry for entry, state in self._states.items() if state is WriteState.WANTED]

    @property
    def withheld(self) -> int:
        """How many contents do not come because no view shows them."""
        return self._withheld

    def is_withheld(self, write: EntryHash) -> bool:
        """Whether the content of a write does not come because no view shows it."""
        return self._states.get(write) is WriteState.WITHHELD

    def expects(self, hash: BlockHash) -> bool:
        """Whether a wanted write lacks exactly this block."""
        return self._wanted_count > 0 and _is_missing(self._db, hash)

    def open(self, placed: Placed, now: float, needed: bool) -> None:
        """Record what an entry waits for, inside a transaction; nothing if it is complete, or no write."""
        encoded = placed.entry.encoded
        if encoded is None:
            return
        coverage = self._coverage(encoded.place)
        if coverage.gap is None and coverage.length == encoded.length:
            return
        state = WriteState.WITHHELD if coverage.gap is not None else WriteState.SPOILED
        entry = placed.entry.hash
        insert = "INSERT INTO waiting (entry, root, length, state, since) VALUES (?, ?, ?, ?, ?)"
        self._db.execute(insert, (entry, encoded.root, encoded.length, state, now))
        self._states[entry] = state
        self._withheld += state is WriteState.WITHHELD
        if needed and state is WriteState.WITHHELD:
            self._want(entry, encoded)

    def _set_state(self, entry: EntryHash, state: WriteState) -> None:
        was = self._states[entry]
        self._count_wanted(entry, (state is WriteState.WANTED) - (was is WriteState.WANTED))
        self._withheld += (state is WriteState.WITHHELD) - (was is WriteState.WITHHELD)
        self._states[entry] = state
        self._db.execute("UPDATE waiting SET state = ? WHERE entry = ?", (state, entry))

    def _want(self, entry: EntryHash, encoded: Encoded) -> list[EntryHash]:
        """Have a withheld write want its blocks; returns it if they are all here by now."""
        self._set_state(entry, WriteState.WANTED)
        if not self._expand(_named_by(entry), encoded.place):
            self._spoil(_named_by(entry), encoded.place.role)
        return self._close(_named_by(entry), encoded.place.role)

    def _withhold(self, entry: EntryHash, state: WriteState) -> None:
        """Have a write want its blocks no longer."""
        self._set_state(entry, state)
        self._prune(_named_by(entry))

    def _spoil(self, above: bytes, role: BlockRole) -> None:
        """A block in this role, of a list or a write, has the wrong size: no write above wants blocks any more."""
        write = _write_of(above)
        if write is not None:
            return self._withhold(write, WriteState.SPOILED)
        listing = LISTING[role]
        query = "SELECT above FROM missing WHERE block = ? AND role = ?"
        for (higher,) in self._db.execute(query, (above, listing)).fetchall():
            self._spoil(higher, listing)

    def _complete(self, entry: EntryHash) -> list[EntryHash]:
        """All that a wanted write lacked has come; returns it if it is complete."""
        query = "SELECT root, length FROM waiting WHERE entry = ?"
        root, length = self._db.execute(query, (entry,)).fetchone()
        coverage = self._coverage(Encoded(BlockHash(root), 0, length).place)
        if coverage.gap is not None or coverage.length != length:
            self._set_state(entry, WriteState.SPOILED)
            return []
        self._db.execute("DELETE FROM waiting WHERE entry = ?", (entry,))
        del self._states[entry]
        self._count_wanted(entry, -1)
        return [entry]

    # -- what is missing ----------------------------------------------------------------------------------------------

    def _coverage(self, place: BlockPlace) -> _Coverage:
        """Look whether a block is here with all that it names; stops at the first one that is missing."""
        size = self._size(place.hash)
        if size is None:
            return _Coverage(place.hash)
        if not place.fits(size):
            return _Coverage(None)
        if place.role not in LISTED:
            return _Coverage(None, size)
        key = place.hash, place.role
        known = self._coverages.get(key)
        if known is not None and (known.gap is None or self._size(known.gap) is None):
            return known
        found = _Coverage(None)
        places = listed(place, self._data(place.hash))
        for each in places:
            found = self._coverage(each)
            if found.gap is not None or not found.length:
                break
        else:
            found = _Coverage(None, length_below(place.role, len(places), found.length))
        self._coverages.keep(key, found)
        return found

    def _expand(self, above: bytes, place: BlockPlace) -> bool:
        """Note what is missing of a block and all below it; False where a block has the wrong size."""
        size = self._size(place.hash)
        if size is not None and not place.fits(size):
            return False
        if size is not None and place.role not in LISTED:
            return True
        if size is not None:
            coverage = self._coverage(place)
            if coverage.gap is None:
                # Whole lists may be named over and over.
                return coverage.length > 0
        is_known = self._is_named(place.hash, place.role)
        insert = "INSERT OR IGNORE INTO missing (block, role, above, size, exact, here) VALUES (?, ?, ?, ?, ?, ?)"
        self._db.execute(insert, (place.hash, place.role, above, place.size, place.exact, size is not None))
        if size is None or is_known:
            return True
        fits = all(self._expand(place.hash, each) for each in listed(place, self._data(place.hash)))
        if fits:
            self._drop_whole(place)
        return fits

    def _is_named(self, block: bytes, role: BlockRole) -> bool:
        """Whether a block is missing, or some below it, in this role."""
        query = "SELECT 1 FROM missing WHERE block = ? AND role = ? LIMIT 1"
        return self._db.execute(query, (block, role)).fetchone() is not None

    def _drop_whole(self, place: BlockPlace) -> None:
        """Drop the rows of a list below which nothing is missing."""
        if not self._lacks(place.hash, LISTED[place.role]):
            self._db.execute("DELETE FROM missing WHERE block = ? AND role = ?", (place.hash, place.role))

    def _lacks(self, above: bytes, role: BlockRole) -> bool:
        query = "SELECT 1 FROM missing WHERE above = ? AND role = ? LIMIT 1"
        return self._db.execute(query, (above, role)).fetchone() is not None

    def _prune(self, above: bytes, role: BlockRole | None = None) -> None:
        """Forget what is missing below a write, or below a list of blocks in a role, that nothing else names."""
        where, values = ("above = ?", [above]) if role is None else ("above = ? AND role = ?", [above, role])
        rows = self._db.execute(f"SELECT block, role FROM missing WHERE {where}", values).fetchall()
        self._db.execute(f"DELETE FROM missing WHERE {where}", values)
        for block, listing in rows:
            below = LISTED.get(BlockRole(listing))
            if below is not None and not self._is_named(block, BlockRole(listing)):
                self._prune(block, below)

    def append_block(self, block: Block, *, now: float) -> list[EntryHash]:
        """Append a block that is missing, inside a transaction; returns the write entries that it completed."""
        self.insert_block(block)
        self._moved_at = now
        rows = self._db.execute(
            "SELECT role, above, size, exact FROM missing WHERE block = ? AND NOT here", (block.hash,)
        ).fetchall()
        self._db.execute("UPDATE missing SET here = 1 WHERE block = ?", (block.hash,))
        fitting: dict[BlockRole, BlockPlace] = {}
        above: list[tuple[bytes, BlockRole]] = []
        for number, listing, size, exact in rows:
            place = BlockPlace(block.hash, BlockRole(number), size, bool(exact))
            self._moved.keep(listing, now)
            if place.fits(len(block.data)):
                fitting[place.role] = place
                above.append((listing, place.role))
            else:
                self._spoil(listing, place.role)
        completed: list[EntryHash] = []
        for role, place in fitting.items():
            if role not in LISTED:
                self._db.execute("DELETE FROM missing WHERE block = ? AND role = ?", (block.hash, role))
            elif not self._is_named(block.hash, role):
                # The same block does not fit elsewhere in all that named it.
                continue
            elif all(self._expand(block.hash, each) for each in listed(place, block.data)):
                self._drop_whole(place)
            else:
                self._spoil(block.hash, LISTED[role])
        for listing, role in above:
            completed += self._close(listing, role)
        return completed

    def _close(self, above: bytes, role: BlockRole) -> list[EntryHash]:
        """Let a write or a list go whose blocks in a role are whole, and what waits for it; returns complete writes."""
        if self._lacks(above, role):
            return []
        write = _write_of(above)
        if write is not None:
            return self._complete(write) if self._states.get(write) is WriteState.WANTED else []
        listing = LISTING[role]
        where = "FROM missing WHERE block = ? AND role = ?"
        rows = self._db.execute(f"SELECT above {where}", (above, listing)).fetchall()
        self._db.execute(f"DELETE {where}", (above, listing))
        return [entry for (higher,) in rows for entry in self._close(higher, listing)]

    def set_needed(self, needed: Mapping[EntryHash, bool]) -> tuple[list[BlockHash], list[EntryHash]]:
        """Note which writes are needed, inside a transaction.

        Returns the first blocks of those that are wanted now and were not, and the writes that are complete.
        """
        wanted: list[BlockHash] = []
        completed: list[EntryHash] = []
        for entry, is_needed in needed.items():
            # It may be complete now, or spoiled.
            state = self._states.get(entry)
            if state is WriteState.WITHHELD and is_needed:
                encoded = self._encoded(entry)
                wanted.append(encoded.place.hash)
                completed += self._want(entry, encoded)
            elif state is WriteState.WANTED and not is_needed:
                self._withhold(entry, WriteState.WITHHELD)
        return wanted, completed

    def release(self, root: BlockHash) -> list[EntryHash]:
        """Let the withheld writes that a block belongs to have it, inside a transaction; returns those complete."""
        query = f"SELECT entry FROM waiting WHERE root = ? AND state = {WriteState.WITHHELD:d}"
        entries = [EntryHash(entry) for (entry,) in self._db.execute(query, (root,)).fetchall()]
        return self.set_needed(dict.fromkeys(entries, True))[1]

    def _encoded(self, entry: EntryHash) -> Encoded:
        root, length = self._db.execute("SELECT root, length FROM waiting WHERE entry = ?", (entry,)).fetchone()
        return Encoded(BlockHash(root), 0, length)

    def waiting_writes(self) -> dict[int, set[EntryHash]]:
        """The writes that are not complete and may be, by the id of their path."""
        found: dict[int, set[EntryHash]] = {}
        query = (
            "SELECT e.path, w.entry FROM waiting w JOIN entries e ON e.hash = w.entry "
            f"WHERE w.state != {WriteState.SPOILED:d}"
        )
        for path_id, entry in self._db.execute(query):
            found.setdefault(path_id, set()).add(EntryHash(entry))
        return found

    # -- for people, and asking again ---------------------------------------------------------------------------------

    def incomplete(self, now: float) -> list[Incomplete]:
        """The writes whose content is not complete, those that changed last first."""
        rows = self._db.execute("SELECT entry, root, length, state, since FROM waiting").fetchall()
        arrived: dict[tuple[BlockHash, BlockRole], _Arrived] = {}
        found = []
        for entry, root, length, state, since in rows:
            counted = self._arrived(Encoded(BlockHash(root), 0, length).place, arrived)
            changed = max(since, counted.changed, self._moved.get(_named_by(EntryHash(entry))) or 0.0)
            progress = self._progress(state, now - changed)
            found.append(Incomplete(EntryHash(entry), progress, changed, counted.blocks, counted.held))
        return sorted(found, key=lambda each: (-each.changed, each.entry))

    def _arrived(self, place: BlockPlace, known: dict[tuple[BlockHash, BlockRole], _Arrived]) -> _Arrived:
        """`known`: of the lists that were looked at before, which contents may share or repeat."""
        if place.role not in LISTED:
            size = self._size(place.hash)
            return _Arrived(0.0, 1, size) if size is not None and place.fits(size) else _Arrived(0.0, 0, 0)
        key = place.hash, place.role
        found = known.get(key)
        if found is None:
            found = known[key] = self._arrived_below(place, known)
        return found

    def _arrived_below(self, place: BlockPlace, known: dict[tuple[BlockHash, BlockRole], _Arrived]) -> _Arrived:
        changed = self._moved.get(place.hash) or 0.0
        size = self._size(place.hash)
        if size is None or not place.fits(size):
            return _Arrived(changed, 0, 0)
        if place.role is not BlockRole.TOP and (coverage := self._coverage(place)).length:
            return _Arrived(changed, size // HASH_SIZE, coverage.length)
        below = [self._arrived(each, known) for each in listed(place, self._data(place.hash))]
        changed = max([changed, *(each.changed for each in below)])
        return _Arrived(changed, sum(each.blocks for each in below), sum(each.held for each in below))

    def _progress(self, state: int, quiet: float) -> ContentProgress:
        if state == WriteState.WITHHELD:
            return ContentProgress.WITHHELD
        if state == WriteState.SPOILED:
            return ContentProgress.SPOILED
        if self.lacks_room:
            return ContentProgress.NO_ROOM
        return ContentProgress.RECEIVING if quiet < STALLED_SECONDS else ContentProgress.STALLED

    def stopped(self, now: float, seconds: float) -> int:
        """How many writes should be asked for again, because no block of any came for that long."""
        if not self._wanted_count or self.lacks_room or now - self._asked_at < seconds:
            return 0
        query = f"SELECT since FROM waiting WHERE state = {WriteState.WANTED:d}"
        overdue = [since for (since,) in self._db.execute(query) if now - max(since, self._moved_at) >= seconds]
        if overdue:
            self._asked_at = now
        return len(overdue)


def _named_by(write: EntryHash) -> bytes:
    """What stands for a write in `missing`; a list could have the hash of an entry, with the bytes of one."""
    return _WRITE + write


def _write_of(above: bytes) -> EntryHash | None:
    """The write that names a block, `None` if a list does."""
    return EntryHash(above[len(_WRITE) :]) if len(above) > HASH_SIZE else None


def _row_of(block: Block) -> tuple[bytes, int, bytes]:
    return block.hash, len(block.data), block.data


def _is_missing(db: sqlite3.Connection, hash: BlockHash) -> bool:
    return db.execute("SELECT 1 FROM missing WHERE block = ? AND NOT here LIMIT 1", (hash,)).fetchone() is not None


def decoded_block(row: tuple[bytes] | None, hash: BlockHash) -> Block | None:
    """The block in a row of `BLOCK_QUERY`, or `None` if there is none or it does not match its hash."""
    if row is None or sha224(row[0]) != hash:
        return None
    return Block(row[0])
