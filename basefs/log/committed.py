"""What is committed, read without the replica's lock: over a connection that waits for nobody who writes.

In a write-ahead log each reader sees the last commit (sqlite.org/wal.html, "Concurrency").  What is never changed once
it is there, an entry or a block, may be read so by who has heard of it from the view, which shows nothing before it is
committed.  What is missing or damaged is not told apart: who meets that asks the log, under the lock.
"""

from __future__ import annotations

import threading

from basefs.log.blocks import Block
from basefs.log.chains import BLOCK_QUERY, decoded_block
from basefs.log.database import Database
from basefs.log.hashes import BlockHash, EntryHash
from basefs.log.placement import Placed
from basefs.log.store import ENTRY_COLUMNS, placed_of


class Committed:
    """Entries and blocks of a log.

    Attributes:
        lock: what serialises the use of this object; its holder may take it again.
    """

    def __init__(self, database: Database) -> None:
        self._db = database.reading
        self.lock = threading.RLock()

    @property
    def chains(self) -> Committed:
        """The blocks, as `Store` has them."""
        return self

    def get(self, hash: EntryHash) -> Placed | None:
        """The entry with this hash; `None` if it is unknown or damaged."""
        row = self._db.execute(f"SELECT {ENTRY_COLUMNS} FROM entries WHERE hash = ?", (hash,)).fetchone()
        return None if row is None else placed_of(row)

    def block(self, hash: BlockHash) -> Block | None:
        """A block; `None` if it is unknown or damaged."""
        return decoded_block(self._db.execute(BLOCK_QUERY, (hash,)).fetchone(), hash)

    def is_complete(self, first: bytes) -> bool:
        """Whether all blocks of a chain are here: what the view shows is; else a block will be found missing."""
        return True
