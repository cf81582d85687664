"""A mount that another process makes for the daemon (docs/architecture.md).

A service in a mount namespace of its own cannot mount for the others, and one that mounts could do nearly everything
else.  So a process outside mounts, hands the daemon the descriptor of /dev/fuse, and ends.  The daemon may be handed a
mount, but it chooses neither where nor how.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from basefs.daemon.config import Home
from basefs.daemon.mounts import detach
from basefs.errors import MountFailed
from basefs.fs.fuse.binding import open_channel


def receive_channel(home: Home, name: str, on_waiting: Callable[[], None]) -> int:
    """Wait until `mount_for_daemon` has mounted; returns the descriptor of /dev/fuse.

    In the main thread.  `on_waiting`: called as soon as it can be handed over.  Raises `MountFailed`: it was told to
    stop, or cannot listen.
    """

    def stop(*_: Any) -> None:
        raise MountFailed(f"{name} was stopped before it was mounted")

    path = _path(home, name)
    # libfuse takes the signal only where nobody else does.
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        # The directory is its owner's alone.
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            on_waiting()
            while True:
                connection = listener.accept()[0]
                with connection:
                    # One that ends before it sends has not mounted.
                    descriptors = socket.recv_fds(connection, 1, 1)[1]
                    if descriptors:
                        return descriptors[0]
    except OSError as error:
        raise MountFailed(f"cannot wait for a mount at {path}: {error.strerror or error}") from None
    finally:
        signal.signal(signal.SIGTERM, previous)
        path.unlink(missing_ok=True)


def mount_for_daemon(home: Home, name: str, mountpoint: Path, options: dict[str, str | bool]) -> None:
    """Mount, hand the mount to the daemon that waits for it, and return when it answers.

    Raises `MountFailed`; nothing is mounted then.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        # The daemon waits for nothing else.
        connection.settimeout(10.0)
        try:
            connection.connect(str(_path(home, name)))
        except OSError:
            raise MountFailed(
                f"no daemon of {name} waits for a mount: start it with 'basefs mount --foreground --serve-only'"
            ) from None
        channel = open_channel(mountpoint, name, options)
        try:
            try:
                socket.send_fds(connection, [b"\0"], [channel])
            finally:
                # Otherwise the mount would wait for this process once the daemon is dead.
                os.close(channel)
            os.statvfs(mountpoint)
        except OSError as error:
            detach(mountpoint, lazy=True)
            raise MountFailed(f"the daemon of {name} does not serve its mount: {error.strerror or error}") from None


def _path(home: Home, name: str) -> Path:
    return home.run_directory() / f"{name}.fuse"
