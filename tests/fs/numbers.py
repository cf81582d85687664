"""Inode numbers as `ls -i`, `tar` and `rsync -H` see them: each is one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from stat import S_IFMT, S_ISDIR, S_ISREG

from basefs.fs.metadata import Stat

from basefs.fs.filesystem import Filesystem
from basefs.path import Path, display


def confused(fs: Filesystem, read: Callable[[Path], object]) -> list[str]:
    """What is wrong with the numbers of all that is there; `read`: returns the content of a file."""
    found: list[str] = []
    by_number: dict[int, dict[Path, Stat]] = {}
    by_file: dict[object, dict[int, Path]] = {}
    todo: list[Path] = [()]
    while todo:
        above = todo.pop()
        for name, bits, listed in sorted(fs.metadata.list(above)):
            path = (*above, name)
            stat = fs.metadata.stat(path)
            by_number.setdefault(stat.number, {})[path] = stat
            by_file.setdefault(_file(fs, path), {})[stat.number] = path
            if listed != stat.number:
                found.append(f"{display(path)} is listed with number {listed}, and has {stat.number}")
            if S_ISDIR(bits):
                todo.append(path)
    for numbers in by_file.values():
        if len(numbers) > 1:
            found.append(f"{' and '.join(map(display, numbers.values()))} are one file, and have several numbers")
    for names in by_number.values():
        where = " and ".join(map(display, names))
        # A directory shows 2 links, whatever it holds.
        links = {1 if S_ISDIR(stat.mode) else stat.links for stat in names.values()}
        if len({_file(fs, path) for path in names}) > 1:
            found.append(f"{where} have one number, and are several files")
        elif any(_is_staged(fs, path) for path in names):
            # What another node has made of the file meanwhile shows at its other names, and here once it is published.
            continue
        elif links != {len(names)}:
            found.append(f"{where} have one number, and st_nlink is {' and '.join(map(str, sorted(links)))}")
        elif not _is_alike(fs, names, read):
            found.append(f"{where} have one number, and are not alike")
    return found


def _file(fs: Filesystem, path: Path) -> object:
    """The file at a path: what began it in the log, or its inode if nothing did yet."""
    inode, attributes = fs.working.find(path)
    if inode is not None:
        return inode.origin or inode
    return None if attributes is None else attributes.origin


def _is_staged(fs: Filesystem, path: Path) -> bool:
    """Whether a file was changed here, under whichever name, and that is not published."""
    inode, attributes = fs.working.find(path)
    if inode is None and attributes is not None and attributes.origin is not None:
        # Another node has changed it since.
        inode = fs.working.by_origin.get(attributes.origin)
    return inode is not None and bool(inode.names)


def _is_alike(fs: Filesystem, names: Mapping[Path, Stat], read: Callable[[Path], object]) -> bool:
    """Whether all names of a file show the same."""
    # Where the first name is gone, conflicts of modes are decided for each name (docs/authority.md).
    has_first = any(_is_first(fs, path) for path in names)
    return len({_face(path, stat, read, with_rights=has_first) for path, stat in names.items()}) == 1


def _is_first(fs: Filesystem, path: Path) -> bool:
    """Whether a file began at a path: a link shows its own entry and that of the file."""
    _, attributes = fs.working.find(path)
    return attributes is not None and len(attributes.version) == 1


def _face(path: Path, stat: Stat, read: Callable[[Path], object], *, with_rights: bool) -> tuple[object, ...]:
    """What a name shows, with mode and owner or without."""
    content = read(path) if stat.links > 1 and S_ISREG(stat.mode) else b""
    # Whether this node may write depends on the name.
    rights = (stat.mode & ~0o222, stat.uid, stat.gid) if with_rights else S_IFMT(stat.mode)
    return rights, stat.size, content
