"""Scratch names: files that editors and tools make only to save another one (design, section 5)."""

from __future__ import annotations

import re
from functools import lru_cache

from basefs.view.names import Names

#: libfuse renames an open file that is unlinked to such a name, in order to keep it readable
#: (libfuse, include/fuse.h, `hard_remove`).  The file is gone for everybody else.
HIDDEN_PREFIX = b".fuse_hidden"

#: vim's test whether it may write, its swap files, backups, GLib's and Emacs' temporary and lock files.
_SCRATCH = re.compile(rb"4913|.*\.sw[a-px]|.*~|\.goutputstream-.*|\.#.*|\.fuse_hidden.*", re.DOTALL)


@lru_cache(maxsize=4096)
def _is_scratch_name(name: bytes) -> bool:
    return _SCRATCH.fullmatch(name) is not None


def is_scratch(names: Names) -> bool:
    """Whether a path never leaves this node: its name, or that of a directory above, is a scratch name."""
    return any(_is_scratch_name(name) for name in names)
