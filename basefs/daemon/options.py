"""What the command line decides about a daemon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.settings import Settings
from basefs.fs.events.runner import HandlerSettings
from basefs.log.keys import SigningKey


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """What the command line decides.

    Attributes:
        name: of the filesystem.
        mountpoint: where to mount it, `None` to run without a mount.
        keys: private keys of this node.
        bind: IP address and port of gossip; sync listens on the next port.
        interface: network interface whose address is used instead of `bind`'s.
        join: nodes to join, besides those that `/.cluster` and earlier runs name.
        node_name: unique in the cluster.
        fuse_options: options for fusermount3.
        uid, gid: owner of what has none.
        keep_owners: whether chown is kept.
        single: neither gossip nor sync.
        encrypt_key: Serf's encryption key, base64, or `None`.
        settings: of the network.
        handlers: commands that run for changes.
        metrics: IP address and port on which metrics are served, `None` for nowhere.
        serve_only: whether another process mounts.
    """

    name: str
    mountpoint: Path | None
    keys: Sequence[SigningKey]
    bind: tuple[str, int]
    interface: str | None
    join: Sequence[tuple[str, int]]
    node_name: str
    fuse_options: Sequence[str]
    uid: int
    gid: int
    keep_owners: bool
    single: bool
    encrypt_key: str | None
    settings: Settings
    handlers: HandlerSettings
    metrics: tuple[str, int] | None = None
    serve_only: bool = False
