"""What a change of the log did, for those who must know: subscribers, gossip, the filesystem."""

from __future__ import annotations

from dataclasses import dataclass

from basefs.log.blocks import Block
from basefs.log.entries import Entry
from basefs.log.hashes import BlockHash, EntryHash
from basefs.view.changes import Change


@dataclass(frozen=True, slots=True)
class Applied:
    """What a call of `apply` did.

    Attributes:
        entries: those accepted now, parents first.
        blocks: those that local entries name, without those of contents that are too large to be held here.
        large: whether there are such contents.
        completed: write entries whose content can be read since now, though they came earlier.
        new_blocks: how many blocks from other nodes were stored.
        local: whether this node signed them.
        missing_parents: parents to ask for.
        missing_blocks: the first missing block of each chain that the call left incomplete.
        rejected: why entries or blocks were refused, one reason each.
        changes: what became of the live paths that anybody has looked at, or with `observe` of all, in an order that
            can be performed on a plain directory tree.
    """

    entries: tuple[Entry, ...]
    blocks: tuple[Block, ...]
    completed: tuple[EntryHash, ...]
    local: bool
    large: bool = False
    new_blocks: int = 0
    missing_parents: tuple[EntryHash, ...] = ()
    missing_blocks: tuple[BlockHash, ...] = ()
    rejected: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
