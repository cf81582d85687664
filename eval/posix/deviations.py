"""The deviations that are known, each with its reason; docs/posix.md holds the same table."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

_NODES = "devices, pipes and sockets belong to one machine and are not shared: EPERM"
_SET_ID = "setuid, setgid and sticky are never stored, so that nobody who may write files gains a user's rights"
_DEEP = (
    "removing thousands of directories inside each other takes longer than stress-ng's patience on a busy machine: an "
    "operation costs the depth of its path"
)
_LINKS = "a directory shows 2 links, whatever it holds; btrfs shows 1"


@dataclass(frozen=True, slots=True)
class Deviation:
    """Cases of a program that fail on a mount and pass on a disk.

    Attributes:
        program: as `eval.posix` names it.
        cases: a pattern, as in fnmatch(3).
        reason: why it is so.
    """

    program: str
    cases: str
    reason: str


KNOWN = [
    Deviation("pjdfstest", "*::fifo", _NODES),
    Deviation("pjdfstest", "*::block", _NODES),
    Deviation("pjdfstest", "*::char", _NODES),
    Deviation("pjdfstest", "*::socket", _NODES),
    Deviation("pjdfstest", "mkfifo::*", _NODES),
    Deviation("pjdfstest", "mknod::*", _NODES),
    Deviation("pjdfstest", "open::fifo_nonblock_wronly", _NODES),
    Deviation("pjdfstest", "open::socket_error", _NODES),
    Deviation("pjdfstest", "rename::updates_link_parent", _LINKS),
    Deviation("pjdfstest", "chmod::clear_isgid_bit", _SET_ID),
    Deviation("stress-ng", "dirdeep", _DEEP),
]


def is_known(program: str, case: str) -> bool:
    """Whether a deviation is listed."""
    return any(known.program == program and fnmatch.fnmatchcase(case, known.cases) for known in KNOWN)
