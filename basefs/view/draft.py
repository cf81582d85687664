"""Drafts: what an author has signed, before it is applied."""

from __future__ import annotations

from dataclasses import dataclass, field

from basefs.log.blocks import Block
from basefs.log.content import Content
from basefs.log.entries import Entry
from basefs.log.hashes import EntryHash


@dataclass(slots=True)
class Draft:
    """Entries ready to be applied, parents first.

    Attributes:
        entries: what is signed.
        blocks: what the writes among them name, without those that are stored already.
        contents: what the writes among them hold.
    """

    entries: list[Entry] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    contents: dict[EntryHash, Content] = field(default_factory=dict)
