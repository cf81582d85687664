"""What a live path looks like to `stat`."""

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
        rdev: of a device, as `stat` shows it.
        xattrs: extended attributes, by name.
        origin: the entry of this path that began the object.
        content: the write entry that holds a file's content, `None` for anything else.
        version: the entries that it comes from.
        writable: whether a key of this node may write there.
    """

    kind: Kind
    mode: int
    owner: Owner | None
    size: int
    mtime: int
    rdev: int
    xattrs: Xattrs
    origin: EntryHash | None
    content: EntryHash | None
    version: Version
    writable: bool

    @property
    def entry(self) -> EntryHash:
        """The entry that it comes from, of a merged directory that of the first branch."""
        return self.version[0]

    @classmethod
    def of(cls, node: Node, *, writable: bool) -> Attributes:
        """Those of a node."""
        state = node.state
        return cls(
            state.kind,
            state.mode,
            state.owner,
            state.size,
            state.mtime,
            state.rdev,
            state.xattrs,
            state.origin,
            state.content,
            tuple(tip.hash for tip in node.outcome.tips),
            writable,
        )
