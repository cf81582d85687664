"""The deviations that are known, each with its reason; docs/posix.md holds the same table."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

_DEEP = (
    "removing thousands of directories inside each other takes longer than stress-ng's patience on a busy machine: an "
    "operation costs the depth of its path"
)


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
    Deviation("stress-ng", "dirdeep", _DEEP),
]


def is_known(program: str, case: str) -> bool:
    """Whether a deviation is listed."""
    return any(known.program == program and fnmatch.fnmatchcase(case, known.cases) for known in KNOWN)
