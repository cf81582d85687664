"""Orphans: entries and blocks that arrived too early, kept in bounded memory (docs/formats.md, section 4).

Gossip has no order.  An entry may come before its parent or before the grant of its key, a block before the list or
entry that names it.  None of that is wanted yet, so none of it reaches the disk.  Each peer has a room for its entries:
a peer that sends rubbish pushes out its own rubbish, and however many peers send some, the fullest room loses first.
"""

from __future__ import annotations

from collections import OrderedDict

from basefs.log.blocks import Block
from basefs.log.entries import Entry
from basefs.log.hashes import BlockHash, EntryHash

#: Entries a peer may have waiting.  A burst of gossip is some hundred entries; an entry takes about 1 kB of memory.
MAX_ENTRIES_PER_PEER = 1024
#: Entries of all peers together; beyond that the fullest room loses one.
MAX_ENTRIES = 16 * 1024
#: Bytes of blocks waiting, all peers together: enough for the gossiped blocks of a hundred files.
MAX_BLOCK_BYTES = 4 * 1024 * 1024


class Orphans:
    """Entries waiting for a parent or a key, and blocks waiting for what names them.

    Attributes:
        dropped: entries and blocks that had to make room.
    """

    def __init__(
        self, per_peer: int = MAX_ENTRIES_PER_PEER, most: int = MAX_ENTRIES, block_bytes: int = MAX_BLOCK_BYTES
    ) -> None:
        """Room for so many entries of one peer and of all, and for so many bytes of blocks."""
        self._per_peer, self._most, self._most_block_bytes = per_peer, most, block_bytes
        self._peers: dict[str, OrderedDict[EntryHash, tuple[Entry, bytes]]] = {}
        self._total = 0
        #: What is awaited -> those that wait for it, in the order of arrival: that of a set differs between runs.
        self._waiting: dict[bytes, dict[tuple[str, EntryHash], None]] = {}
        self._blocks: OrderedDict[BlockHash, Block] = OrderedDict()
        self._block_bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._total

    def hold(self, entry: Entry, needs: bytes, peer: str) -> None:
        """Keep an entry until `needs` (the hash of an entry, or the fingerprint of its key) is known."""
        mine = self._peers.get(peer) or OrderedDict()
        if entry.hash in mine:
            return
        if len(mine) >= self._per_peer:
            self._drop_first(peer)
        elif self._total >= self._most:
            self._drop_first(max(self._peers, key=lambda each: len(self._peers[each])))
        self._peers.setdefault(peer, OrderedDict())[entry.hash] = (entry, needs)
        self._total += 1
        self._waiting.setdefault(needs, {})[peer, entry.hash] = None

    def _drop_first(self, peer: str) -> None:
        """The entry of a peer that has waited longest makes room."""
        hash, need = next((hash, need) for hash, (_, need) in self._peers[peer].items())
        self._take(peer, hash)
        self.dropped += 1
        waiting = self._waiting.get(need, {})
        waiting.pop((peer, hash), None)
        if not waiting:
            self._waiting.pop(need, None)

    def release(self, known: bytes) -> list[tuple[Entry, str]]:
        """The entries that waited for `known`, each with its peer; they are no longer kept."""
        released = []
        for peer, hash in self._waiting.pop(known, ()):
            released.append((self._take(peer, hash), peer))
        return released

    def _take(self, peer: str, hash: EntryHash) -> Entry:
        """An entry of a peer, no longer in its room."""
        entry, _ = self._peers[peer].pop(hash)
        self._total -= 1
        if not self._peers[peer]:
            del self._peers[peer]
        return entry

    def hold_block(self, block: Block) -> None:
        """Keep a block that no write lacks yet."""
        hash = block.hash
        if hash in self._blocks:
            return
        self._blocks[hash] = block
        self._block_bytes += len(block.data)
        while self._block_bytes > self._most_block_bytes:
            _, dropped = self._blocks.popitem(last=False)
            self._block_bytes -= len(dropped.data)
            self.dropped += 1

    def holds(self, hash: BlockHash) -> bool:
        """Whether the block with this hash is kept."""
        return hash in self._blocks

    def release_block(self, hash: BlockHash) -> Block | None:
        """The block with this hash, no longer kept, or `None`."""
        block = self._blocks.pop(hash, None)
        if block is not None:
            self._block_bytes -= len(block.data)
        return block
