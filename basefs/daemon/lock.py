"""The lock that makes one process the only user of a log: its daemon, or a command while no daemon runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from basefs.errors import AlreadyRunning, DaemonError

LOCK_FILE = "lock"
#: Held as long as a Serf agent of the filesystem runs: a daemon that has closed its log goes on leaving the cluster.
AGENT_LOCK_FILE = "agent.lock"
#: Seconds that a daemon may take to leave its cluster: Serf needs 2 to 3, and is killed in the end.
LEAVE_PATIENCE = 15.0


@contextlib.contextmanager
def exclusive(directory: Path, name: str, *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of the log in a directory.  It ends with the process, however that ends.

    Raises `AlreadyRunning`, naming the filesystem, if another process still holds it after `patience` seconds.
    """
    with _locked(directory / LOCK_FILE, patience) as held:
        if not held:
            raise AlreadyRunning(f"{name} is running already: 'basefs unmount {name}' stops it")
        yield


@contextlib.contextmanager
def only_agent(directory: Path, name: str, *, patience: float = LEAVE_PATIENCE) -> Iterator[None]:
    """Hold the lock of the one who may run a Serf agent for the log in a directory.

    Raises `DaemonError` if an earlier daemon has not left its cluster after `patience` seconds.
    """
    with _locked(directory / AGENT_LOCK_FILE, patience) as held:
        if not held:
            raise DaemonError(f"an earlier daemon of {name} has not left its cluster after {patience:g} s: try again")
        yield


@contextlib.contextmanager
def _locked(path: Path, patience: float) -> Iterator[bool]:
    """Hold a lock; yields False if another process still has it after `patience` seconds."""
    deadline = time.monotonic() + patience
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not (held := _try(descriptor)) and time.monotonic() <= deadline:
            time.sleep(0.02)
        yield held
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
