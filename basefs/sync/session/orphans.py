"""What came before the entry that it builds on, in one session, in bounded memory."""

from __future__ import annotations

from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE, BlockHash, EntryHash, sha224

#: Blocks of orphans that are recognized when they come, even where there is no room for them; beyond that, they count
#: as refused.
_MAX_EXPECTED = 65_536


class Orphans:
    """Entries whose parent is not in the log yet, by parent, with the blocks that followed them on the line."""

    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes
        self._hashes: set[EntryHash] = set()
        self._waiting: dict[EntryHash, list[tuple[Entry, bytes]]] = {}
        self._blocks: dict[BlockHash, bytes] = {}  # of any orphan, since contents may be equal
        self._expected: set[BlockHash] = set()  # blocks that continue the content of an orphan

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def hold(self, entry: Entry, data: bytes) -> None:
        """Keep an entry until its parent comes; drops it if there is no room."""
        if entry.action is Action.WRITE and entry.content and len(self._expected) < _MAX_EXPECTED:
            self._expected.add(BlockHash(entry.content))
        if entry.hash not in self._hashes and self._take(data):
            self._hashes.add(entry.hash)
            self._waiting.setdefault(entry.parent, []).append((entry, data))

    def hold_block(self, block: bytes) -> bool:
        """Keep a block if it belongs to an orphan.  Returns whether it does."""
        hash = BlockHash(sha224(block)) if self._expected else None
        if hash is None or (hash not in self._expected and hash not in self._blocks):
            return False
        self._expected.discard(hash)
        self._expected.add(BlockHash(block[:HASH_SIZE]))
        if hash not in self._blocks and self._take(block):
            self._blocks[hash] = block
        return True

    def release(self, parent: EntryHash) -> list[tuple[bytes, list[bytes]]]:
        """The entries that waited for this parent, and their blocks; the entries are no longer kept."""
        ready = []
        for entry, data in self._waiting.pop(parent, []):
            self._hashes.discard(entry.hash)
            self._room += len(data)
            blocks = []
            following = BlockHash(entry.content)
            while following in self._blocks:
                blocks.append(self._blocks[following])
                following = BlockHash(self._blocks[following][:HASH_SIZE])
            self._expected.discard(following)  # may be on the next line, and is the log's business from now on
            ready.append((data, blocks))
        return ready

    def _take(self, data: bytes) -> bool:
        fits = len(data) <= self._room
        self._room -= len(data) if fits else 0
        return fits

    def parents(self) -> list[EntryHash]:
        """Missing parents that are not orphans themselves."""
        return [parent for parent in self._waiting if parent not in self._hashes]
