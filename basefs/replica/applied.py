"""Applied: what a change of the log did, for subscribers, gossip and the filesystem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from basefs.log.blocks import Block
from basefs.log.entries import Entry
from basefs.log.hashes import EntryHash
from basefs.log.store import Store
from basefs.view.changes import Change


@dataclass(frozen=True, slots=True)
class Applied:
    """What one transaction did, for subscribers, or all transactions of one call of `apply`, as its result.

    Attributes:
        commit: number of the transaction since the start, of several the last one.
        last: the number of the last entry in the log after it.
        entries: those accepted now, parents first.
        blocks: those that local entries name, without those of contents that are too large to be held here.
        large: whether there are such contents.
        completed: write entries whose content can be read since now, though they came earlier.
        new_blocks: how many blocks from other nodes were stored.
        local: whether this node signed them.
        missing_parents: parents to ask for; of one transaction, also what a later one of the same call may bring.
        lacks_blocks: whether contents that were begun or continued may lack blocks.
        rejected: why entries or blocks were refused, one reason each.
        ungranted: how many of them are entries of a key that is granted nowhere, as far as is known here.
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
    lacks_blocks: bool = False
    rejected: tuple[str, ...] = ()
    ungranted: int = 0
    changes: tuple[Change, ...] = ()
    commit: int = field(default=0, compare=False)
    last: int = field(default=0, compare=False)

    @classmethod
    def all_of(cls, parts: Sequence[Applied], store: Store) -> Applied:
        """What the transactions of one delivery did, taken together; `store`: the log after the last one."""
        parents = dict.fromkeys(parent for part in parts for parent in part.missing_parents)
        return cls(
            commit=parts[-1].commit,
            last=parts[-1].last,
            entries=tuple(entry for part in parts for entry in part.entries),
            blocks=(),
            completed=tuple(hash for part in parts for hash in part.completed),
            local=False,
            new_blocks=sum(part.new_blocks for part in parts),
            missing_parents=tuple(parent for parent in parents if parent not in store),
            lacks_blocks=any(part.lacks_blocks for part in parts) and bool(store.blocks.wanted_count),
            rejected=tuple(reason for part in parts for reason in part.rejected),
            ungranted=sum(part.ungranted for part in parts),
            changes=tuple(change for part in parts for change in part.changes),
        )
