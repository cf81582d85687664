"""What is on the disk, in the words of the view."""

from __future__ import annotations

import stat

from basefs.fs.disk import Disk, Found
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
    return all(
        scratch.is_scratch((name,)) or kind_of(disk.look(b"%b/%b" % (path, name))) is Kind.ABSENT
        for name in disk.names(path)
    )
