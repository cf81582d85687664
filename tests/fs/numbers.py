"""Inode numbers as `ls -i`, `tar` and `rsync -H` see them: each is one file."""

from __future__ import annotations

from collections.abc import Callable
from stat import S_ISDIR, S_ISREG

from basefs.fs.filesystem import Filesystem
from basefs.fs.metadata import Stat
from basefs.path import Path, display


def confused(fs: Filesystem, read: Callable[[Path], object]) -> list[str]:
    """What is wrong with the numbers of all that is there; `read`: returns the content of a file."""
    found: list[str] = []
    by_number: dict[int, dict[Path, Stat]] = {}
    todo: list[Path] = [()]
    while todo:
        above = todo.pop()
        for name, bits, listed in sorted(fs.metadata.list(above)):
            path = (*above, name)
            stat = fs.metadata.stat(path)
            by_number.setdefault(stat.number, {})[path] = stat
            if listed != stat.number:
                found.append(f"{display(path)} is listed with number {listed}, and has {stat.number}")
            if S_ISDIR(bits):
                todo.append(path)
    for names in by_number.values():
        where = " and ".join(map(display, names))
        # A directory shows 2 links, whatever it holds.
        links = {1 if S_ISDIR(stat.mode) else stat.links for stat in names.values()}
        if links != {len(names)}:
            found.append(f"{where} have one number, and st_nlink is {' and '.join(map(str, sorted(links)))}")
        elif len({_face(path, stat, read) for path, stat in names.items()}) > 1:
            found.append(f"{where} have one number, and are not alike")
    return found


def _face(path: Path, stat: Stat, read: Callable[[Path], object]) -> tuple[object, ...]:
    """What all names of a file show; whether this node may write depends on the name."""
    content = read(path) if stat.links > 1 and S_ISREG(stat.mode) else b""
    return stat.mode & ~0o222, stat.uid, stat.gid, stat.size, content
