"""What is on the disk, in the words of the view."""

from __future__ import annotations

import stat

from basefs.fs.disk import Disk, Found
from basefs.fs.worktree.index import below, to_path
from basefs.fs.worktree.scratch import ScratchNames
from basefs.view.states import Kind

#: A socket is of use to the processes of one machine alone: it stays there.
_KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFCHR: Kind.CHARACTER,
    stat.S_IFBLK: Kind.BLOCK,
}


def kind_of(found: Found | None) -> Kind:
    """What is there; what stays on this machine is nothing."""
    return Kind.ABSENT if found is None else _KINDS.get(stat.S_IFMT(found.mode), Kind.ABSENT)


def is_left(disk: Disk, path: bytes, scratch: ScratchNames) -> bool:
    """Whether a directory that was removed elsewhere is only there for what stays on this machine, if for anything."""
    return all(stays_here(disk, below(path, name), scratch) for name in disk.names(path))


def stays_here(disk: Disk, path: bytes, scratch: ScratchNames) -> bool:
    """Whether what is at a path never leaves this machine, or is gone."""
    return scratch.is_scratch(to_path(path)[-1:]) or kind_of(disk.look(path)) is Kind.ABSENT
