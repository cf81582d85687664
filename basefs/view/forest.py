"""The forest of one path: its entries, by how they build on each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from basefs.log.entries import Entry
from basefs.log.hashes import EntryHash
from basefs.log.placement import EntryKind, Placed


@dataclass(slots=True)
class Forest:
    """The entries of one path, under some incarnations of its directory."""

    heads: list[Placed] = field(default_factory=list)
    successors: dict[EntryHash, list[Placed]] = field(default_factory=dict)
    #: mkdir or write -> the grants and revokes that hang on it
    hanging: dict[EntryHash, list[Entry]] = field(default_factory=dict)
    members: set[EntryHash] = field(default_factory=set)

    def by_hash(self) -> dict[EntryHash, Entry]:
        """The heads and successors."""
        placed = [*self.heads, *(successor for group in self.successors.values() for successor in group)]
        return {one.entry.hash: one.entry for one in placed}

    @classmethod
    def of(cls, entries: Iterable[Placed], directories: Collection[EntryHash]) -> Forest:
        forest = cls()
        owners: dict[EntryHash, EntryHash] = {}
        for placed in entries:
            if placed.directory not in directories:
                continue
            entry = placed.entry
            forest.members.add(entry.hash)
            if placed.kind is EntryKind.CHILD:
                forest.heads.append(placed)
            elif placed.kind is EntryKind.SUCCESSOR:
                forest.successors.setdefault(entry.parent, []).append(placed)
            else:
                owner = owners.setdefault(entry.hash, owners.get(entry.parent, entry.parent))
                forest.hanging.setdefault(owner, []).append(entry)
        return forest
