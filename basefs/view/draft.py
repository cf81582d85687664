"""Drafts: what an author has signed, before it is applied."""

from __future__ import annotations

from dataclasses import dataclass, field

from basefs.log.blocks import Block
from basefs.log.content import Content
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.view.states import Owner, State, encode_mode


@dataclass(slots=True)
class Draft:
    """Entries ready to be applied, parents first.

    Attributes:
        entries: what is signed.
        blocks: what the writes among them name, without those that are stored already.
        contents: what the writes among them hold.
        large: whether some of what they name is stored already.
    """

    entries: list[Entry] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    contents: dict[EntryHash, Content] = field(default_factory=dict)
    large: bool = False

    def follow_with_mode(
        self,
        key: SigningKey,
        entry: Entry,
        shown: State,
        mode: int,
        owner: Owner | None,
        mtime: int | None = None,
    ) -> None:
        """Follow an entry with a mode entry, where what it shows is not what is wanted."""
        stamp = shown.mtime if mtime is None else mtime
        if (shown.mode, shown.owner, shown.mtime) != (mode, owner, stamp):
            extensions = Extensions(mtime=None if stamp == shown.mtime else stamp)
            content = encode_mode(mode, owner)
            self.entries.append(key.sign(entry.hash, entry.made, Action.MODE, entry.name, content, extensions))
