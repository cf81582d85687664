"""Drafts: what an author has signed, before it is applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from basefs.log.blocks import Block
from basefs.log.content import Content
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.view.states import Kind, State, encode_mode, encode_xattrs, step


class End(NamedTuple):
    """Where a path ends: the next entry is appended there.

    Attributes:
        name: the last component of the path.
        tip: the last entry; of a new path the mkdir of its directory, or the delete of what was there.
        state: the state of the path after that entry.
    """

    name: bytes
    tip: EntryHash
    state: State


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

    def append(self, entry: Entry, before: State) -> End:
        """Add an entry that is no link or revert, behind a state; returns where its path ends then."""
        self.entries.append(entry)
        return End(entry.name, entry.hash, step(before, entry, complete=True))

    def settle(self, key: SigningKey, made: int, end: End, wanted: State) -> End:
        """Follow an end with what gives it the wanted mode, owner, time and extended attributes, where these differ.

        `made`: when it is signed.  Raises `TooLarge` and `NotPermitted` for extended attributes that no entry holds.
        """
        shown = end.state
        mode = shown.mode if shown.kind is Kind.SYMLINK else wanted.mode
        if (shown.mode, shown.owner, shown.mtime) != (mode, wanted.owner, wanted.mtime):
            extensions = Extensions(mtime=None if wanted.mtime == shown.mtime else wanted.mtime)
            content = encode_mode(mode, wanted.owner)
            end = self.append(key.sign(end.tip, made, Action.MODE, end.name, content, extensions), shown)
        if shown.kind.has_xattrs and shown.xattrs != wanted.xattrs:
            content = encode_xattrs(wanted.xattrs)
            end = self.append(key.sign(end.tip, made, Action.XATTR, end.name, content), end.state)
        return end
