"""What ordinary programs do to files, on any place that has files: a mount, a plain directory, or a `Filesystem`.

The same program runs on two places; afterwards their trees must be equal.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pathlib
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from basefs.fs.filesystem import Filesystem
from basefs.path import Path

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@dataclass(frozen=True)
class Face:
    """What a program sees of a path.

    Attributes:
        kind: type bits of its mode.
        mode: permission bits, 0 of a symbolic link.
        content: of a file, or the target of a symbolic link.
        names: all paths of the same file.
        links: what stat(2) says of their number; 0 of a directory.
    """

    kind: int
    mode: int
    content: bytes
    names: frozenset[str]
    links: int


Tree = dict[str, Face]


class Place(Protocol):
    """Where programs run; paths have no leading slash.  Every method raises what the place raises."""

    def tree(self) -> Tree:
        """Everything that is there."""

    def write(self, path: str, content: bytes, *, offset: int | None = None, append: bool = False) -> None:
        """Open, write and close; without an offset the file is truncated, and created if it is missing."""

    def map(self, path: str, content: bytes) -> None:
        """Overwrite the beginning of a file by way of a shared mapping."""

    def truncate(self, path: str, length: int) -> None:
        """truncate(2)."""

    def chmod(self, path: str, mode: int) -> None:
        """chmod(2)."""

    def link(self, target: str, path: str) -> None:
        """link(2)."""

    def symlink(self, target: str, path: str) -> None:
        """symlink(2)."""

    def rename(self, source: str, target: str, *, exchange: bool = False) -> None:
        """renameat2(2)."""

    def unlink(self, path: str) -> None:
        """unlink(2)."""

    def mkdir(self, path: str) -> None:
        """mkdir(2)."""

    def rmdir(self, path: str) -> None:
        """rmdir(2)."""


class Directory:
    """A directory of the operating system, which may be the root of a mount."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root

    def tree(self) -> Tree:
        """See `Place`."""
        found: dict[str, tuple[os.stat_result, bytes]] = {}
        for above, directories, files in os.walk(self._root):
            for name in (*directories, *files):
                path = pathlib.Path(above, name)
                status = path.lstat()
                content = b""
                if stat.S_ISLNK(status.st_mode):
                    content = os.fsencode(os.readlink(path))
                elif stat.S_ISREG(status.st_mode):
                    content = path.read_bytes()
                found[str(path.relative_to(self._root))] = status, content
        found.pop(".cluster", None)
        numbers: dict[int, set[str]] = {}
        for text, (status, _) in found.items():
            numbers.setdefault(status.st_ino, set()).add(text)
        return {
            text: face(status.st_mode, content, numbers[status.st_ino], status.st_nlink)
            for text, (status, content) in found.items()
        }

    def write(self, path: str, content: bytes, *, offset: int | None = None, append: bool = False) -> None:
        """See `Place`."""
        flags = os.O_APPEND if append else os.O_TRUNC if offset is None else 0
        descriptor = os.open(self._root / path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
        try:
            if content:
                os.write(descriptor, content) if offset is None else os.pwrite(descriptor, content, offset)
        finally:
            os.close(descriptor)

    def map(self, path: str, content: bytes) -> None:
        """See `Place`."""
        with open(self._root / path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size:
                with mmap.mmap(file.fileno(), size) as mapped:
                    mapped[: min(size, len(content))] = content[:size]

    def truncate(self, path: str, length: int) -> None:
        """See `Place`."""
        os.truncate(self._root / path, length)

    def chmod(self, path: str, mode: int) -> None:
        """See `Place`."""
        (self._root / path).chmod(mode)

    def link(self, target: str, path: str) -> None:
        """See `Place`."""
        os.link(self._root / target, self._root / path, follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        """See `Place`."""
        os.symlink(target, self._root / path)

    def rename(self, source: str, target: str, *, exchange: bool = False) -> None:
        """See `Place`."""
        if not exchange:
            (self._root / source).rename(self._root / target)
            return
        one, other = os.fsencode(self._root / source), os.fsencode(self._root / target)
        library = ctypes.CDLL(None, use_errno=True)
        if library.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def unlink(self, path: str) -> None:
        """See `Place`."""
        (self._root / path).unlink()

    def mkdir(self, path: str) -> None:
        """See `Place`."""
        (self._root / path).mkdir(0o755)

    def rmdir(self, path: str) -> None:
        """See `Place`."""
        (self._root / path).rmdir()


class Unmounted:
    """A `Filesystem` that is called as FUSE would call it."""

    def __init__(self, filesystem: Filesystem) -> None:
        self._fs = filesystem

    def tree(self) -> Tree:
        """See `Place`."""
        found = dict(self._walk(()))
        numbers: dict[int, set[str]] = {}
        for names in found:
            numbers.setdefault(self._fs.metadata.stat(names).number, set()).add(_text(names))
        stats = {names: self._fs.metadata.stat(names) for names in found}
        return {
            _text(names): face(status.mode, found[names], numbers[status.number], status.links)
            for names, status in stats.items()
        }

    def _walk(self, above: Path) -> Iterator[tuple[Path, bytes]]:
        for name, bits, _ in self._fs.metadata.list(above):
            names = (*above, name)
            if names == (b".cluster",):
                continue
            if bits == stat.S_IFDIR:
                yield names, b""
                yield from self._walk(names)
            elif bits == stat.S_IFLNK:
                yield names, self._fs.metadata.read_link(names)
            else:
                with self._opened(names, os.O_RDONLY) as handle:
                    yield names, self._fs.files.read(handle, 1 << 20, 0)

    @contextlib.contextmanager
    def _opened(self, names: Path, flags: int) -> Iterator[int]:
        handle = self._fs.files.open(names, flags)
        try:
            yield handle
            self._fs.files.flush(handle)
        finally:
            self._fs.files.release(handle)

    def write(self, path: str, content: bytes, *, offset: int | None = None, append: bool = False) -> None:
        """See `Place`."""
        names = _names(path)
        if not self._fs.working.exists(names):
            handle = self._fs.files.create(names, 0o644)
            self._fs.files.flush(handle)
            self._fs.files.release(handle)
        truncate = 0 if append or offset is not None else os.O_TRUNC
        with self._opened(names, os.O_WRONLY | truncate) as handle:
            if content:
                self._fs.files.write(handle, content, offset or 0, appends=append)

    def map(self, path: str, content: bytes) -> None:
        """See `Place`: the kernel writes pages back after the last close(2) of the descriptor, before its release."""
        handle = self._fs.files.open(_names(path), os.O_RDWR)
        self._fs.files.flush(handle)
        size = self._fs.metadata.stat(_names(path)).size
        if size:
            self._fs.files.write(handle, content[:size], 0)
        self._fs.files.release(handle)

    def truncate(self, path: str, length: int) -> None:
        """See `Place`."""
        self._fs.files.truncate(_names(path), length)

    def chmod(self, path: str, mode: int) -> None:
        """See `Place`."""
        self._fs.metadata.set_mode(_names(path), mode)

    def link(self, target: str, path: str) -> None:
        """See `Place`."""
        self._fs.namespace.make_link(_names(path), _names(target))

    def symlink(self, target: str, path: str) -> None:
        """See `Place`."""
        self._fs.namespace.make_symlink(_names(path), target.encode())

    def rename(self, source: str, target: str, *, exchange: bool = False) -> None:
        """See `Place`."""
        self._fs.namespace.rename(_names(source), _names(target), exchange=exchange)

    def unlink(self, path: str) -> None:
        """See `Place`."""
        self._fs.namespace.unlink(_names(path))

    def mkdir(self, path: str) -> None:
        """See `Place`."""
        self._fs.namespace.make_directory(_names(path), 0o755)

    def rmdir(self, path: str) -> None:
        """See `Place`."""
        self._fs.namespace.remove_directory(_names(path))


def face(mode: int, content: bytes, names: set[str], links: int) -> Face:
    """What a program sees of a path with this `st_mode` and `st_nlink`."""
    kind = stat.S_IFMT(mode)
    return Face(
        kind,
        0 if kind == stat.S_IFLNK else stat.S_IMODE(mode),
        content,
        frozenset(names),
        0 if kind == stat.S_IFDIR else links,
    )


def _names(path: str) -> Path:
    return tuple(path.encode().split(b"/"))


def _text(names: Path) -> str:
    return b"/".join(names).decode()


class Program:
    """Ordinary programs, run on a place."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def replace(self, path: str, temporary: str, content: bytes) -> None:
        """Write a new file and give it the name: sed -i, dpkg, most libraries."""
        before = self.place.tree().get(path)
        self.place.write(temporary, content)
        if before is not None:
            self.place.chmod(temporary, before.mode)
        self.place.rename(temporary, path)

    def back_up(self, path: str, content: bytes) -> None:
        """Vim: keep the old file under a backup name, by renaming or, if it has other names, by copying it."""
        before = self.place.tree()[path]
        if before.links == 1:
            self.place.rename(path, f"{path}~")
        else:
            self.place.write(f"{path}~", before.content)
        self.place.write(path, content)

    def rotate(self, path: str, content: bytes) -> None:
        """logrotate: the file, and the ones before it, move one number on; a new one begins."""
        tree = self.place.tree()
        for number in (1, 0):
            old = f"{path}.{number}" if number else path
            if old in tree:
                self.place.rename(old, f"{path}.{number + 1}")
        self.place.write(path, content)

    def swap(self, one: str, other: str) -> None:
        """Three renames."""
        self.place.rename(one, f"{one}.swap")
        self.place.rename(other, one)
        self.place.rename(f"{one}.swap", other)

    def link_over(self, target: str, path: str) -> None:
        """Ln -f: by way of a temporary name."""
        if path in self.place.tree()[target].names:
            return
        self.place.link(target, f"{path}.new")
        self.place.rename(f"{path}.new", path)

    def copy_tree(self, source: str, target: str) -> None:
        """Cp -r."""
        tree = self.place.tree()
        self.place.mkdir(target)
        for path in sorted(tree):
            if path.startswith(f"{source}/"):
                self._copy(tree[path], target + path[len(source) :])

    def _copy(self, found: Face, path: str) -> None:
        if found.kind == stat.S_IFDIR:
            self.place.mkdir(path)
        elif found.kind == stat.S_IFLNK:
            self.place.symlink(found.content.decode(), path)
        else:
            self.place.write(path, found.content)
            self.place.chmod(path, found.mode)

    def remove_tree(self, path: str) -> None:
        """Rm -r."""
        tree = self.place.tree()
        for below in sorted((other for other in tree if other.startswith(f"{path}/")), reverse=True):
            (self.place.rmdir if tree[below].kind == stat.S_IFDIR else self.place.unlink)(below)
        self.place.rmdir(path)
