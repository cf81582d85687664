"""Orphans: entries and blocks that arrived too early, kept in bounded memory (docs/formats.md, section 4).

Gossip has no order.  An entry may come before its parent or before the grant of its key, a block before the one that
names it.  None of that can be verified yet, so none of it reaches the disk, and each peer has its own share of the
room: a peer that sends rubbish pushes out its own rubbish.
"""

from __future__ import annotations

from collections import OrderedDict

from basefs.log.blocks import Block
from basefs.log.entries import Entry
from basefs.log.hashes import BlockHash, EntryHash

#: Entries a peer may have waiting.  A burst of gossip is some hundred entries; an entry takes about 1 kB of memory.
MAX_ENTRIES_PER_PEER = 1024
#: Peers that may have entries waiting; the one that came first is forgotten.
MAX_PEERS = 64
#: Bytes of blocks waiting, all peers together: enough for the gossiped blocks of a hundred files.
MAX_BLOCK_BYTES = 4 * 1024 * 1024


class Orphans:
    """Entries waiting for a parent or a key, and blocks waiting for their turn.

    Attributes:
        dropped: entries and blocks that had to make room.
    """

    def __init__(self) -> None:
        self._peers: OrderedDict[str, OrderedDict[EntryHash, tuple[Entry, bytes]]] = OrderedDict()
        self._waiting: dict[bytes, set[tuple[str, EntryHash]]] = {}
        self._blocks: OrderedDict[BlockHash, Block] = OrderedDict()
        self._block_bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._peers.values())

    def hold(self, entry: Entry, needs: bytes, peer: str) -> None:
        """Keep an entry until `needs` (the hash of its parent, or the fingerprint of its key) is known."""
        if peer not in self._peers and len(self._peers) >= MAX_PEERS:
            forgotten, entries = self._peers.popitem(last=False)
            self.dropped += len(entries)
            for hash, (_, need) in entries.items():
                self._forget(need, forgotten, hash)
        mine = self._peers.setdefault(peer, OrderedDict())
        if entry.hash in mine:
            return
        if len(mine) >= MAX_ENTRIES_PER_PEER:
            hash, (_, need) = mine.popitem(last=False)
            self._forget(need, peer, hash)
            self.dropped += 1
        mine[entry.hash] = (entry, needs)
        self._waiting.setdefault(needs, set()).add((peer, entry.hash))

    def _forget(self, need: bytes, peer: str, hash: EntryHash) -> None:
        waiting = self._waiting.get(need, set())
        waiting.discard((peer, hash))
        if not waiting:
            self._waiting.pop(need, None)

    def release(self, known: bytes) -> list[tuple[Entry, str]]:
        """The entries that waited for `known`, each with its peer; they are no longer kept."""
        released = []
        for peer, hash in self._waiting.pop(known, ()):
            entry, _ = self._peers[peer].pop(hash)
            if not self._peers[peer]:
                del self._peers[peer]
            released.append((entry, peer))
        return released

    def hold_block(self, block: Block) -> None:
        """Keep a block that no chain waits for yet."""
        hash = block.hash
        if hash in self._blocks:
            return
        self._blocks[hash] = block
        self._block_bytes += len(block.data)
        while self._block_bytes > MAX_BLOCK_BYTES:
            _, dropped = self._blocks.popitem(last=False)
            self._block_bytes -= len(dropped.data)
            self.dropped += 1

    def release_block(self, hash: BlockHash) -> Block | None:
        """The block with this hash, no longer kept, or `None`."""
        block = self._blocks.pop(hash, None)
        if block is not None:
            self._block_bytes -= len(block.data)
        return block
