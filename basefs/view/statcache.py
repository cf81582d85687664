"""What live paths look like to `stat`, and what is remembered of it.

Every method but `remembered` is called under the replica's lock.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterable
from typing import NamedTuple

from basefs.errors import BaseFSError
from basefs.log.hashes import EntryHash
from basefs.log.store import Store
from basefs.path import Path
from basefs.view.signer import Signer
from basefs.view.states import Kind, Owner, Xattrs
from basefs.view.tree import Node, Tree

#: The entries that made a path what it is: those with which its merged branches end.
Version = tuple[EntryHash, ...]

#: Paths whose attributes are kept, about 300 bytes each; all are dropped when there are more.
MAX_CACHED = 65_536


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


class StatCache:
    """The attributes of live paths, kept from one time that they are asked for to the next.

    Invariant: while no transaction is under way, the holder of the replica's lock finds here what the view shows, or
    nothing.  A reader without the lock sees the view as it was before or after a transaction, never between.
    """

    def __init__(self, store: Store, tree: Tree, signer: Signer, *, most: int = MAX_CACHED) -> None:
        """`most`: paths whose attributes are kept."""
        self._store = store
        self._tree = tree
        self._signer = signer
        self._most = most
        self._known: dict[Path, Attributes] = {}

    def remembered(self, path: Path) -> Attributes | None:
        """What a path showed when it was last asked for; `None` if that is not known.

        For any thread, without the lock.
        """
        return self._known.get(path)

    def attributes(self, path: Path) -> Attributes:
        """What is at a path.  Raises `NotFound`, `NotADirectory`."""
        node = self._tree.node(path)
        found = self._attributes(path, node)
        if not self._store.database.main.in_transaction:
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[path] = found
        return found

    def renew(self, changed: Collection[Path]) -> None:
        """The view has changed at these paths: look at those again that are kept, as they will be asked for again."""
        # With a name the time of its directory changes.
        asked = [path for path in _with_directories(changed) if path in self._known]
        self.forget(changed)
        for path in asked:
            # An error shows when the path is asked for: the commit must be delivered.
            with contextlib.suppress(BaseFSError, sqlite3.Error):
                self.attributes(path)

    def forget(self, changed: Collection[Path] | None) -> None:
        """The view has changed at these paths; `None`: anywhere."""
        if changed is None:
            self._known.clear()
        else:
            for path in _with_directories(changed):
                self._known.pop(path, None)

    def check(self) -> list[Path]:
        """The paths where what is remembered differs from what the tree shows: none, or a bug."""
        differing = []
        for path, shown in list(self._known.items()):
            node = self._tree.find(path)
            if node is None or (self._attributes(path, node) != shown and not self._store.database.damaged):
                differing.append(path)
        return differing

    def _attributes(self, path: Path, node: Node) -> Attributes:
        state = node.state
        mtime = state.mtime
        version = tuple(tip.hash for tip in node.outcome.tips)
        if node.is_directory:
            mtime = max(mtime, node.touched)
        return Attributes(
            kind=state.kind,
            mode=state.mode,
            owner=state.owner,
            size=state.size,
            mtime=mtime,
            writable=self._signer.may_write(node.authority) and not self._store.database.damaged,
            version=version,
            rdev=state.rdev,
            xattrs=state.xattrs,
            origin=state.origin,
            content=state.content,
        )


def _with_directories(paths: Iterable[Path]) -> Iterable[Path]:
    """These paths and the directories that hold them."""
    return dict.fromkeys(one for path in paths for one in (path, path[:-1]))
