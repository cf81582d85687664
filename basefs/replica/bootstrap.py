"""Birth of a filesystem: the entries that every log of it begins with (docs/formats.md, section 3)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from basefs.log.entries import ROOT_NAME, Action
from basefs.log.extensions import Extensions, RecoveryKeys
from basefs.log.hashes import HASH_SIZE
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica

#: The file in which newcomers find addresses to join, one `ip:port` a line.
CLUSTER_FILE = b".cluster"


def bootstrap(
    directory: Path,
    keys: Sequence[tuple[bytes, SigningKey]],
    addresses: Sequence[str],
    *,
    is_open: bool = False,
    recovery: RecoveryKeys | None = None,
) -> Replica:
    """Create a filesystem: its root directory, a grant for each key on it, and `/.cluster`.

    Args:
        directory: existing directory for the log.
        keys: the keys that it begins with, and their names; the first one signs, and is the root key.
        addresses: `ip:port` of nodes to join.
        is_open: whether anybody may read it, and not only its members; its identity covers this.
        recovery: the keys that can replace the root key; its identity covers them as well.

    The root entry's parent is a random nonce, so two filesystems are never the same.  Raises `StoreError` if the
    directory holds a log already.
    """
    now = time.time_ns()
    signer = keys[0][1]
    extensions = Extensions(is_open=is_open, recovery_keys=recovery)
    root = signer.sign(os.urandom(HASH_SIZE), now, Action.MKDIR, ROOT_NAME, extensions=extensions)
    entries = [root]
    for name, key in keys:
        entries.append(signer.sign(entries[-1].hash, now, Action.GRANT, name, key.public))
    with contextlib.ExitStack() as unless_done:
        replica = unless_done.enter_context(
            contextlib.closing(Replica.create(directory, root.hash, [key for _, key in keys]))
        )
        replica.apply(entries, [])
        cluster = "".join(f"{address}\n" for address in addresses).encode()
        replica.commit(lambda author: author.write((CLUSTER_FILE,), cluster), key=signer)
        replica.sync_to_disk()
        unless_done.pop_all()
    return replica
