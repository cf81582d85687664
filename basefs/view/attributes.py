"""What live paths look like."""

from __future__ import annotations

from typing import NamedTuple

from basefs.log.hashes import EntryHash
from basefs.view.states import Kind, Owner, Xattrs
from basefs.view.tree import Node

#: The entries that made a path what it is: those with which its merged branches end.
Version = tuple[EntryHash, ...]


class Attributes(NamedTuple):
    """What `stat` shows of a live path.

    Attributes:
        kind: the kind of object.
        mode: permission bits.
        owner: `None` for the mounting user.
        size: bytes.
        mtime: nanoseconds since 1970.
        writable: whether a key of this node may write there.
        version: the entries that it comes from.
        rdev: of a device, as `stat` shows it.
        xattrs: extended attributes, by name.
        origin: the entry of this path that began the object.
        content: the write entry that holds a file's content, `None` for anything else.
    """

    kind: Kind
    mode: int
    owner: Owner | None
    size: int
    mtime: int
    writable: bool
    version: Version
    rdev: int
    xattrs: Xattrs
    origin: EntryHash | None
    content: EntryHash | None

    @property
    def entry(self) -> EntryHash:
        """The entry that it comes from, of a merged directory that of the first branch."""
        return self.version[0]

    @classmethod
    def of(cls, node: Node, *, writable: bool) -> Attributes:
        """Those of a live path."""
        state = node.state
        return cls(
            kind=state.kind,
            mode=state.mode,
            owner=state.owner,
            size=state.size,
            mtime=max(state.mtime, node.touched) if node.is_directory else state.mtime,
            writable=writable,
            version=tuple(tip.hash for tip in node.outcome.tips),
            rdev=state.rdev,
            xattrs=state.xattrs,
            origin=state.origin,
            content=state.content,
        )
