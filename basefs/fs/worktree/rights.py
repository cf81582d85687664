"""Rights: where the keys of this node may write, for the mount server."""

from __future__ import annotations

import errno

from basefs.fs.worktree.index import to_bytes
from basefs.replica.replica import Replica


def rights(replica: Replica) -> dict[bytes, int]:
    """Path -> 0 where this node may write, or the error; of all other paths the nearest one above decides."""
    if replica.damaged:
        return {b"/": errno.EROFS}
    paths = {(), *replica.granted_paths()}
    return {to_bytes(path): 0 if replica.may_write(path) else errno.EACCES for path in sorted(paths)}
