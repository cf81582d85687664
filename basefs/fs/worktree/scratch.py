"""Scratch names: files that editors and tools make only to save another one (docs/fs.md).

Those that nothing else is called stay on this node.  Others look as if they were renamed in a moment, which nobody
knows before it is done: they wait for it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache

from basefs.path import Path

#: vim's test whether it may write, its swap files, backups, GLib's temporary files, lock and autosave files of Emacs,
#: and the temporary files and backups of JetBrains.
_SCRATCH = re.compile(rb"4913|.*\.sw[a-px]|.*~|\.goutputstream-.*|\.#.*|#.*#|.*___jb_(?:tmp|old)___", re.DOTALL)
#: rsync's, sed's, dpkg's, ansible's and mkstemp's temporary files, and what people and scripts call theirs.
_TEMPORARY = re.compile(
    rb"\..+\.[A-Za-z0-9]{6}|sed[A-Za-z0-9]{6}|\.ansible_tmp.*|tmp[a-z0-9_]{8}"
    rb"|.*\.(?:tmp|temp|part|new|dpkg-new|dpkg-tmp)|.*[.-]tmp[.-]?[A-Za-z0-9_]{6,12}",
    re.DOTALL,
)


@lru_cache(maxsize=4096)
def is_temporary_name(name: bytes) -> bool:
    """Whether a new file of this name is probably given its real one in a moment."""
    return _TEMPORARY.fullmatch(name) is not None


class ScratchNames:
    """The names that never leave this node."""

    def __init__(self, more: Sequence[str] = ()) -> None:
        """`more`: shell patterns of names, besides those that are always scratch names."""
        patterns = [_SCRATCH.pattern, *(fnmatch.translate(glob).encode("utf-8", "surrogateescape") for glob in more)]
        self._matches = re.compile(b"|".join(b"(?:%b)" % pattern for pattern in patterns), re.DOTALL).fullmatch
        self._is_name = lru_cache(maxsize=4096)(lambda name: self._matches(name) is not None)

    def is_scratch(self, path: Path) -> bool:
        """Whether a path never leaves this node: its name, or that of a directory above, is a scratch name."""
        return any(self._is_name(name) for name in path)
