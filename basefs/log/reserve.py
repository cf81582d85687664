"""The reserve: what this node keeps free of what other nodes send (docs/operations.md).

Below `min_free` nothing is taken, as if the disk were full.  At `max_log_bytes` contents wait, which have up to 16 GiB,
and entries go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Bytes that must be free beyond `min_free` before more is taken, so that a little does not stop and begin in turn.
MORE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """What a node's owner allows; 0 is no limit.

    Attributes:
        max_log_bytes: of the log on disk.
        min_free: bytes that stay free on the disk of the log.
    """

    max_log_bytes: int = 0
    min_free: int = 0


NO_LIMITS = DiskLimits()


class Reserve:
    """Says when what others send has to wait.

    Attributes:
        is_short: whether `min_free` was reached at the last look.
    """

    def __init__(self, log: Path, limits: DiskLimits, free: Callable[[Path], int]) -> None:
        """`log`: its file; `free`: bytes that are free in a directory."""
        self._files = (log, log.with_name(f"{log.name}-wal"))
        self._limits = limits
        self._free = free
        self.is_short = False

    def reached(self) -> str:
        """The setting that lets contents wait now, empty if none does."""
        limits = self._limits
        if limits.min_free:
            needed = limits.min_free + (MORE_BYTES if self.is_short else 0)
            self.is_short = self._free(self._files[0].parent) < needed
            if self.is_short:
                return "min_free"
        is_large = limits.max_log_bytes and sum(map(_size_of, self._files)) >= limits.max_log_bytes
        return "max_log_bytes" if is_large else ""


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def free_bytes(directory: Path) -> int:
    """Bytes that are free for everybody on the disk of a directory."""
    facts = os.statvfs(directory)
    return facts.f_bavail * facts.f_frsize
