"""The lock that makes one process the only user of a log: its daemon, or a command while no daemon runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from basefs.errors import AlreadyRunning

LOCK_FILE = "lock"
#: Seconds between tries.
_RETRY_SECONDS = 0.02


@contextlib.contextmanager
def exclusive(directory: Path, name: str, *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of the log in a directory.  It ends with the process, however that ends.

    Raises `AlreadyRunning`, naming the filesystem, if another process still holds it after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _try(descriptor):
            if time.monotonic() > deadline:
                raise AlreadyRunning(f"{name} is running already: 'basefs unmount {name}' stops it")
            time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_held(directory: Path) -> bool:
    """Whether some process holds the lock."""
    if not (directory / LOCK_FILE).exists():
        return False
    try:
        with exclusive(directory, ""):
            return False
    except AlreadyRunning:
        return True
