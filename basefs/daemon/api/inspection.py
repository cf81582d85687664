"""What the files of a filesystem show by themselves: what it takes, its peers, and what is not published."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.config import Home
from basefs.daemon.lock import exclusive
from basefs.daemon.settings import Settings
from basefs.errors import counted
from basefs.gossip.members import PEERS_FILE, PeerBook
from basefs.log.schema import CACHE_FILE, LOG_FILE

#: What the names of files and directories begin with, by what they hold.
_KINDS = {"log": LOG_FILE, "cache": CACHE_FILE, "tree": "tree"}


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of the log, of the cache, of the files of the tree and of what else is kept, and what the disk has free and
    in all."""

    log: int
    cache: int
    tree: int
    other: int
    free: int
    total: int


def disk_usage(home: Home, name: str) -> DiskUsage:
    """What a filesystem takes on this node.  Raises `NotFound`, OSError."""
    directory = home.existing(name)
    used = {"log": 0, "cache": 0, "tree": 0, "other": 0}
    for path in _files(directory):
        # The cache has a directory beside it, for large contents.
        top = path.relative_to(directory).parts[0]
        kind = next((kind for kind, start in _KINDS.items() if top.startswith(start)), "other")
        with contextlib.suppress(FileNotFoundError):  # a temporary one
            used[kind] += path.lstat().st_blocks * 512
    disk = shutil.disk_usage(directory)
    return DiskUsage(**used, free=disk.free, total=disk.total)


def _files(directory: Path) -> Iterator[Path]:
    for base, _, files in os.walk(directory):
        yield from (Path(base) / file for file in files)


def known_peers(home: Home, name: str) -> list[str]:
    """The addresses, "ip:port", of the peers of a filesystem that have not left; the one seen last first."""
    return [peer.address for peer in PeerBook(home.existing(name) / PEERS_FILE).missed]


def has_peers(home: Home, name: str) -> bool:
    """Whether a filesystem has had peers that were not forgotten, those that have left included."""
    return bool(PeerBook(home.existing(name) / PEERS_FILE).addresses)


def unpublished_text(count: int, name: str) -> str:
    """`2 changed names of etc are not published`."""
    return f"{counted(count, 'changed name')} of {name} {'is' if count == 1 else 'are'} not published"


def count_unpublished(home: Home, name: str) -> int:
    """How many names of a filesystem that does not run were changed here and are not published.

    Raises `BaseFSError`, and OSError where the disk has no room to look.
    """
    # Imported here: it takes longer than the rest of `basefs unmount`, which rarely needs it.
    from basefs.fs.filesystem import count_unpublished as count
    from basefs.fs.worktree.owners import Owners
    from basefs.fs.worktree.scratch import ScratchNames
    from basefs.replica.replica import Replica

    directory = home.existing(name)
    scratch = ScratchNames(Settings.load(home.settings_path).never_publish)
    owners = Owners(os.geteuid(), os.getegid(), keep=os.geteuid() == 0)
    with exclusive(directory, name), contextlib.closing(Replica(directory)) as replica:
        return count(replica, owners, scratch)
