"""Nodes: the files and directories that the kernel knows, and where they are.

All names of a file are one node, so the kernel has one inode for them, as on a disk.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

ROOT_ID, _INCOMING_ID = 1, 2


#: No nodes; most have none.
_NONE: list[Inode] = []


class Opened:
    """The open handles of a node.

    Attributes:
        descriptors: of its file.
        writers: how many of them may write.
        unflushed: how many of them have written since they were flushed.
        awaited: a change of another node waits for the last writer.
    """

    __slots__ = ("awaited", "descriptors", "unflushed", "writers")

    def __init__(self) -> None:
        self.descriptors: set[int] = set()
        self.writers = self.unflushed = 0
        self.awaited = False


class Inode:
    """A file or a directory.

    Attributes:
        id: the kernel's number for it.
        inode: the disk's number for it; it changes when the node gets another content in place.
        kind: `S_IFMT` of its mode.
        parent, name: where it is; `None` after its last name was removed.
        more: further names.
        children: of a directory, those that the kernel knows.
        lookups: how many references the kernel has.
        opened: open handles, if there are any.
        pages: inode, size and mtime of what the kernel's pages are of.
        older: files that had its name before jobs replaced them, as far as they are still open.
    """

    __slots__ = (
        "_epoch", "_path", "children", "id", "inode", "kind", "lookups", "more", "name", "older", "opened", "pages",
        "parent",
    )  # fmt: skip

    def __init__(self, number: int, inode: int, kind: int) -> None:
        self.id, self.inode, self.kind = number, inode, kind
        self.parent: Inode | None = None
        self.name = b""
        self.more: set[tuple[Inode, bytes]] | None = None
        self.children: dict[bytes, Inode] | None = {} if kind == stat.S_IFDIR else None
        self.lookups = 0
        self.opened: Opened | None = None
        self.pages: tuple[int, int, int] | None = None
        self.older: list[Inode] = _NONE
        self._path, self._epoch = b"", -1

    def path(self, epoch: int) -> bytes | None:
        """Its path, remembered until `epoch` changes; `None` if it was removed."""
        if self._epoch == epoch:
            return self._path
        if self.parent is None:
            if self.id != ROOT_ID:
                return None
            path: bytes | None = b"/"
        else:
            path = join(self.parent.path(epoch), self.name)
        if path is not None:
            self._path, self._epoch = path, epoch
        return path


def join(above: bytes | None, name: bytes) -> bytes | None:
    """The path of a name in a directory."""
    if above is None:
        return None
    return above + b"/" + name if above != b"/" else b"/" + name


class Nodes:
    """All nodes.

    Attributes:
        root: the top directory.
        incoming: the directory of prepared files, which has no path.
        epoch: changes when a directory moves, and with it the paths below.
    """

    def __init__(self, inode: int, incoming: int) -> None:
        """The inodes of both directories."""
        self.root = Inode(ROOT_ID, inode, stat.S_IFDIR)
        self.incoming = Inode(_INCOMING_ID, incoming, stat.S_IFDIR)
        self.epoch = 0
        self._by_id = {ROOT_ID: self.root, _INCOMING_ID: self.incoming}
        self._by_inode = {inode: self.root}
        self._last = _INCOMING_ID

    def get(self, number: int) -> Inode:
        """The node that the kernel calls `number`.  Raises `OSError`."""
        node = self._by_id.get(number)
        if node is None:
            raise OSError(errno.ESTALE, "unknown")
        return node

    def of_inode(self, inode: int) -> Inode | None:
        """The node of a file on the disk, if the kernel knows it."""
        return self._by_inode.get(inode)

    def find(self, path: bytes) -> Inode | None:
        """The node at a path, if the kernel knows it."""
        node: Inode | None = self.root
        for name in filter(None, path.split(b"/")):
            if node is None or node.children is None:
                return None
            node = node.children.get(name)
        return node

    def known(self, parent: Inode, name: bytes) -> Inode | None:
        """The node of a name, if the kernel knows it."""
        return None if parent.children is None else parent.children.get(name)

    def child(self, parent: Inode, name: bytes) -> Inode:
        """The node of a name that was met."""
        assert parent.children is not None
        return parent.children[name]

    def numbers(self) -> list[int]:
        """The kernel's numbers of all nodes; for any thread."""
        return list(self._by_id)

    def open_for_writing(self) -> Iterator[int]:
        """Inodes of files that somebody writes to; for any thread."""
        for node in list(self._by_id.values()):
            opened = node.opened
            if opened is not None and opened.unflushed and node.parent is not None:
                yield node.inode

    def met(self, parent: Inode, name: bytes, status: os.stat_result) -> Inode:
        """The node of what was found under a name; it is made if need be."""
        children = parent.children
        assert children is not None
        inode, kind = status.st_ino, stat.S_IFMT(status.st_mode)
        node = children.get(name)
        if node is not None:
            if node.inode == inode and node.kind == kind:
                return node
            self.removed(parent, name)
        node = self._by_inode.get(inode)
        is_other_name = status.st_nlink > 1 or (node is not None and node.parent is None)
        if node is None or node.kind != kind or not is_other_name or kind == stat.S_IFDIR:
            # The number was given to another file behind our back.
            node = self.made(inode, kind)
        self.named(node, parent, name)
        return node

    def made(self, inode: int, kind: int) -> Inode:
        """A new node, without a name."""
        self._last += 1
        node = self._by_id[self._last] = Inode(self._last, inode, kind)
        return node

    def named(self, node: Inode, parent: Inode, name: bytes) -> None:
        """A node has got a name."""
        assert parent.children is not None
        parent.children[name] = node
        if node.parent is None:
            node.parent, node.name = parent, name
            node._epoch = -1
            self._by_inode[node.inode] = node
        else:
            node.more = node.more or set()
            node.more.add((parent, name))

    def removed(self, parent: Inode, name: bytes) -> None:
        """A name is gone."""
        assert parent.children is not None
        node = parent.children.pop(name, None)
        if node is None:
            return
        if node.parent is not parent or node.name != name:
            assert node.more is not None
            node.more.discard((parent, name))
        elif node.more:
            node.parent, node.name = node.more.pop()
        else:
            node.parent = None
            if node.opened is None:
                self._drop_inode(node)
        node._epoch = -1

    def closed(self, node: Inode) -> None:
        """The last handle of a node was closed.  Until then its inode is its own, since another name may be found."""
        node.opened = None
        if node.parent is None:
            self._drop_inode(node)

    def _drop_inode(self, node: Inode) -> None:
        if self._by_inode.get(node.inode) is node:
            del self._by_inode[node.inode]

    def renamed(
        self, parent: Inode, name: bytes, new_parent: Inode, new_name: bytes, *, exchange: bool = False
    ) -> None:
        """A name has become another one; with `exchange` the other one has become it."""
        assert parent.children is not None and new_parent.children is not None
        node, other = parent.children.get(name), new_parent.children.get(new_name)
        self.removed(parent, name)
        self.removed(new_parent, new_name)
        if node is not None:
            self.named(node, new_parent, new_name)
        if exchange and other is not None:
            self.named(other, parent, name)
        if any(one is not None and one.children is not None for one in (node, other)):
            self.epoch += 1

    def swapped(self, node: Inode, inode: int) -> None:
        """The name of a node is of another file on the disk now."""
        self._drop_inode(node)
        node.inode, node.pages = inode, None
        self._by_inode[inode] = node

    def forget(self, number: int, count: int) -> None:
        """The kernel has dropped references."""
        node = self._by_id.get(number)
        if node is None or node in (self.root, self.incoming):
            return
        node.lookups -= count
        if node.lookups > 0:
            return
        del self._by_id[number]
        while node.parent is not None:
            self.removed(node.parent, node.name)
        self._drop_inode(node)
