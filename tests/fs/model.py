"""A filesystem in dictionaries: what `Filesystem` must look like to applications.

It differs from POSIX where BaseFS does on purpose: a change is seen under the file's other names when it is published,
not before, and what was not published when a name is removed is published no more.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from basefs.errors import (
    BaseFSError,
    Exists,
    InvalidName,
    IsADirectory,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotPermitted,
)
from basefs.view.names import Names


class Type(enum.Enum):
    """What a name stands for."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


@dataclass(eq=False)
class Inode:
    """A file, directory or symbolic link, whatever its names.

    Attributes:
        type: of the inode.
        mode: permission bits.
        content: of a file; target of a symbolic link.
        first: the name under which it was made, `None` once that was removed.
    """

    type: Type
    mode: int
    content: bytes = b""
    first: Names | None = ()


@dataclass(eq=False)
class Writing:
    """What the writers of one name have written."""

    inode: Inode
    content: bytearray
    names: Names | None
    mode: int | None = None
    created: bool = False
    dirty: bool = False
    handles: int = 0

    @property
    def pending(self) -> bool:
        """Whether it is not published."""
        return self.created or self.dirty


@dataclass(eq=False)
class Open:
    """An open file: a snapshot, or a share in what is being written."""

    writing: Writing | None
    snapshot: bytes
    writes: bool

    @property
    def content(self) -> bytes:
        """What a read of everything returns."""
        return self.snapshot if self.writing is None else bytes(self.writing.content)


@dataclass
class Model:
    """All inodes by name, and what is being written by name."""

    tree: dict[Names, Inode] = field(default_factory=lambda: {(): Inode(Type.DIRECTORY, 0o755)})
    writing: dict[Names, Writing] = field(default_factory=dict)

    # -- looking ------------------------------------------------------------------------------------------------------

    def names(self, *types: Type) -> list[Names]:
        """Every name of an inode of these types."""
        return sorted(names for names, inode in self.tree.items() if inode.type in types)

    def below(self, names: Names) -> list[Names]:
        """A name and all below it."""
        return [other for other in self.tree if other[: len(names)] == names]

    def listing(self, names: Names) -> dict[bytes, Type]:
        """The names in a directory."""
        return {other[-1]: inode.type for other, inode in self.tree.items() if other and other[:-1] == names}

    def links(self, names: Names) -> int:
        """How many names an inode has."""
        return sum(inode is self.tree[names] for inode in self.tree.values())

    def content(self, names: Names) -> bytes:
        """What a new reader sees."""
        writing = self.writing.get(names)
        return bytes(writing.content) if writing is not None and writing.pending else self.tree[names].content

    def mode(self, names: Names) -> int:
        """Permission bits."""
        writing = self.writing.get(names)
        if writing is not None and writing.pending and writing.mode is not None:
            return writing.mode
        return self.tree[names].mode

    def settle(self) -> None:
        """What idle writers see after somebody has opened the file again."""
        for names, writing in self.writing.items():
            if not writing.pending:
                writing.content[:] = self.tree[names].content

    def _remove(self, names: Names) -> Inode:
        inode = self.tree.pop(names)
        if inode.first == names:
            inode.first = None
        return inode

    # -- open files ---------------------------------------------------------------------------------------------------

    def create(self, names: Names, mode: int) -> Open:
        """A new file."""
        inode = Inode(Type.FILE, mode, first=names)
        self.tree[names] = inode
        self.writing[names] = Writing(inode, bytearray(), names, mode=mode, created=True)
        return self._share(names, writes=True)

    def open(self, names: Names, *, writes: bool, truncate: bool = False) -> Open:
        """Open an existing file."""
        if not writes and names not in self.writing:
            return Open(None, self.tree[names].content, writes=False)
        shared = names in self.writing
        if not shared:
            inode = self.tree[names]
            self.writing[names] = Writing(inode, bytearray(inode.content), names)
        if truncate and (shared or self.writing[names].content):
            del self.writing[names].content[:]
            self.writing[names].dirty = True
        return self._share(names, writes=writes)

    def _share(self, names: Names, *, writes: bool) -> Open:
        self.writing[names].handles += 1
        return Open(self.writing[names], b"", writes)

    def flush(self, opened: Open) -> None:
        """A close."""
        if opened.writing is not None and opened.writes:
            self._publish(opened.writing)

    def release(self, opened: Open) -> None:
        """The last close of an open file."""
        self.flush(opened)
        writing = opened.writing
        if writing is not None:
            writing.handles -= 1
            if not writing.handles and writing.names is not None:
                del self.writing[writing.names]
                writing.names = None

    def _publish(self, writing: Writing) -> None:
        if writing.names is None or not writing.pending:
            return
        writing.inode.content = bytes(writing.content)
        if writing.mode is not None:
            writing.inode.mode = writing.mode
        writing.created = writing.dirty = False
        writing.mode = None

    def _publish_at(self, names: Names) -> None:
        if names in self.writing:
            self._publish(self.writing[names])

    def _detach(self, names: Names) -> None:
        writing = self.writing.pop(names, None)
        if writing is not None:
            writing.names = None

    # -- names --------------------------------------------------------------------------------------------------------

    def make(self, names: Names, inode: Inode) -> type[BaseFSError] | None:
        """mkdir or symlink; returns the error."""
        if names in self.tree:
            return Exists
        self.tree[names] = inode
        return None

    def link(self, names: Names, target: Names) -> type[BaseFSError] | None:
        """link; returns the error."""
        if self.tree[target].type is Type.DIRECTORY:
            return NotPermitted
        if names not in self.writing:
            self._publish_at(target)
        if names in self.tree:
            return Exists
        self.tree[names] = self.tree[target]
        return None

    def unlink(self, names: Names) -> type[BaseFSError] | None:
        """unlink; returns the error."""
        if self.tree[names].type is Type.DIRECTORY:
            return IsADirectory
        self._remove(names)
        self._detach(names)
        return None

    def remove_directory(self, names: Names) -> type[BaseFSError] | None:
        """rmdir; returns the error."""
        if self.tree[names].type is not Type.DIRECTORY:
            return NotADirectory
        if self.listing(names):
            return NotEmpty
        self._remove(names)
        return None

    def rename(self, source: Names, target: Names, *, replace: bool) -> type[BaseFSError] | None:
        """renameat2; returns the error."""
        if source not in self.tree:
            return NotFound
        for names in self.below(source):
            self._publish_at(names)
        if target in self.writing and self.writing[target].created:
            self._publish_at(target)
        error = self._check_rename(source, target, replace=replace)
        if error is not None or self.tree.get(target) is self.tree[source]:
            return error
        self._detach(target)
        self.tree.pop(target, None)
        for names in self.below(source):
            moved = (*target, *names[len(source) :])
            self.tree[moved] = self._remove(names)
            if names in self.writing:
                self.writing[moved] = self.writing.pop(names)
                self.writing[moved].names = moved
        return None

    def _check_rename(self, source: Names, target: Names, *, replace: bool) -> type[BaseFSError] | None:
        moved, existing = self.tree[source], self.tree.get(target)
        if target[: len(source)] == source and target != source:
            return InvalidName
        if existing is None or (existing is moved and replace):
            return None
        if not replace:
            return Exists
        if (existing.type is Type.DIRECTORY) != (moved.type is Type.DIRECTORY):
            return IsADirectory if existing.type is Type.DIRECTORY else NotADirectory
        return NotEmpty if existing.type is Type.DIRECTORY and self.listing(target) else None

    def set_mode(self, names: Names, mode: int) -> None:
        """chmod."""
        writing = self.writing.get(names)
        if writing is not None and writing.pending:
            writing.mode = mode
        elif self.tree[names].type is not Type.SYMLINK:
            self.tree[names].mode = mode

    def hide(self, names: Names) -> None:
        """The name of an open file goes, and what its writers do is seen by nobody but them."""
        self._remove(names)
        self._detach(names)
