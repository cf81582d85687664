"""A filesystem in dictionaries: what `Filesystem` must look like to applications.

All who have a file open share what is written to it here, except those who opened it before another node changed it:
they keep their version, until one of them writes, which makes it everybody's again.  Once that is published it has won
or lost against the version of the other node, as the rules of the log say, of which the model knows nothing.
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
from basefs.path import Path


class Type(enum.Enum):
    """What a name stands for."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


@dataclass(eq=False)
class Version:
    """What those see who have opened a file between two changes by other nodes."""

    content: bytearray
    handles: int = 0
    writers: int = 0
    unflushed: bool = False
    written: bool = False


@dataclass(eq=False)
class Inode:
    """A file, directory or symbolic link, whatever its names.

    Attributes:
        type: of the inode.
        mode: permission bits.
        version: what a new reader of a file sees; the target of a symbolic link.
        durable: the content that survives a crash, `None` if the file does not.
    """

    type: Type
    mode: int
    version: Version = field(default_factory=lambda: Version(bytearray()))
    durable: bytes | None = b""


@dataclass(eq=False)
class Open:
    """An open file."""

    inode: Inode
    version: Version
    writes: bool

    @property
    def is_newest(self) -> bool:
        """Whether a new reader of the file sees the same."""
        return self.version is self.inode.version


@dataclass
class Model:
    """All inodes by name."""

    tree: dict[Path, Inode] = field(default_factory=lambda: {(): Inode(Type.DIRECTORY, 0o755)})

    # -- looking ------------------------------------------------------------------------------------------------------

    def names(self, *types: Type) -> list[Path]:
        """Every name of an inode of these types."""
        return sorted(names for names, inode in self.tree.items() if inode.type in types)

    def below(self, names: Path) -> list[Path]:
        """A name and all below it."""
        return [other for other in self.tree if other[: len(names)] == names]

    def listing(self, names: Path) -> dict[bytes, Type]:
        """The names in a directory."""
        return {other[-1]: inode.type for other, inode in self.tree.items() if other and other[:-1] == names}

    def links(self, inode: Inode) -> int:
        """How many names an inode has."""
        return sum(other is inode for other in self.tree.values())

    # -- open files ---------------------------------------------------------------------------------------------------

    def create(self, names: Path, mode: int) -> Open:
        """A new file."""
        inode = Inode(Type.FILE, mode, durable=None)
        inode.version.unflushed = True
        self.tree[names] = inode
        return self._opened(inode, writes=True)

    def open(self, names: Path, *, writes: bool, truncate: bool = False) -> Open:
        """Open an existing file."""
        inode = self.tree[names]
        if truncate and inode.version.content:
            del inode.version.content[:]
            inode.version.unflushed = True
            inode.version.written = False
        return self._opened(inode, writes=writes)

    def _opened(self, inode: Inode, *, writes: bool) -> Open:
        inode.version.handles += 1
        inode.version.writers += writes
        return Open(inode, inode.version, writes)

    def write(self, opened: Open, content: bytes, offset: int) -> None:
        """A write, or with an empty content a truncation."""
        version = opened.version
        if content:
            version.content.extend(bytes(max(0, offset - len(version.content))))
            version.content[offset : offset + len(content)] = content
        else:
            version.content[:] = version.content[:offset].ljust(offset, b"\0")
        version.unflushed = version.written = True
        opened.inode.version = version

    def flush(self, opened: Open) -> None:
        """A close."""
        version, inode = opened.version, opened.inode
        if opened.writes and version is inode.version:
            if version.written:
                version.written = version.unflushed = False
                inode.durable = bytes(version.content)
            elif inode.durable is None:
                inode.durable = b""

    def sync(self, opened: Open) -> None:
        """fsync."""
        version, inode = opened.version, opened.inode
        if opened.writes and version is inode.version:
            version.written = version.unflushed = False
            inode.durable = bytes(version.content)

    def release(self, opened: Open) -> None:
        """The last close of an open file."""
        version = opened.version
        version.handles -= 1
        version.writers -= opened.writes
        if opened.writes and not version.writers and version.unflushed:
            version.written = version.unflushed = False
            if version is opened.inode.version:
                opened.inode.durable = bytes(version.content)

    def change_elsewhere(self, names: Path, content: bytes) -> None:
        """Another node writes a file."""
        inode = self.tree[names]
        inode.version = Version(bytearray(content))
        inode.durable = content

    def crash(self) -> None:
        """The daemon dies and starts again: what was closed is there."""
        self.tree = {names: inode for names, inode in self.tree.items() if inode.durable is not None}
        for inode in self.tree.values():
            if inode.type is Type.FILE:
                inode.version = Version(bytearray(inode.durable or b""))

    # -- names --------------------------------------------------------------------------------------------------------

    def make(self, names: Path, inode: Inode) -> type[BaseFSError] | None:
        """mkdir or symlink; returns the error."""
        if names in self.tree:
            return Exists
        self.tree[names] = inode
        return None

    def link(self, names: Path, target: Path) -> type[BaseFSError] | None:
        """link; returns the error."""
        if self.tree[target].type is Type.DIRECTORY:
            return NotPermitted
        return self.make(names, self.tree[target])

    def unlink(self, names: Path) -> type[BaseFSError] | None:
        """unlink; returns the error."""
        if self.tree[names].type is Type.DIRECTORY:
            return IsADirectory
        del self.tree[names]
        return None

    def remove_directory(self, names: Path) -> type[BaseFSError] | None:
        """rmdir; returns the error."""
        if self.tree[names].type is not Type.DIRECTORY:
            return NotADirectory
        if self.listing(names):
            return NotEmpty
        del self.tree[names]
        return None

    def rename(self, source: Path, target: Path, *, replace: bool, exchange: bool) -> type[BaseFSError] | None:
        """renameat2; returns the error."""
        error = self._check_rename(source, target, replace=replace, exchange=exchange)
        if error is not None or self.tree.get(target) is self.tree[source]:
            return error
        moved = {(*target, *names[len(source) :]): self.tree.pop(names) for names in self.below(source)}
        others = {(*source, *names[len(target) :]): self.tree.pop(names) for names in self.below(target)}
        self.tree.update(moved)
        if exchange:
            self.tree.update(others)
        return None

    def _check_rename(self, source: Path, target: Path, *, replace: bool, exchange: bool) -> type[BaseFSError] | None:
        moved, existing = self.tree[source], self.tree.get(target)
        if target[: len(source)] == source and target != source:
            return InvalidName
        if exchange and source[: len(target)] == target and target != source:
            return InvalidName
        if existing is None:
            return NotFound if exchange else None
        if not replace:
            return Exists
        if existing is moved or exchange:
            return None
        if (existing.type is Type.DIRECTORY) != (moved.type is Type.DIRECTORY):
            return IsADirectory if existing.type is Type.DIRECTORY else NotADirectory
        return NotEmpty if existing.type is Type.DIRECTORY and self.listing(target) else None
