"""The lock that makes one process the only user of a log: its daemon, or a command while no daemon runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from basefs.errors import AlreadyRunning

LOCK_FILE = "lock"


@contextlib.contextmanager
def exclusive(directory: Path, name: str) -> Iterator[None]:
    """Hold the lock of the log in a directory.  It ends with the process, however that ends.

    Raises `AlreadyRunning`, naming the filesystem, if another process holds it.
    """
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AlreadyRunning(f"{name} is running already: 'basefs unmount {name}' stops it") from None
        yield
    finally:
        os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Whether some process holds the lock."""
    if not (directory / LOCK_FILE).exists():
        return False
    try:
        with exclusive(directory, ""):
            return False
    except AlreadyRunning:
        return True
