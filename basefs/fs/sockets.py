"""UNIX sockets at paths of any length."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """A name of a path that fits into a `struct sockaddr_un`, which holds 107 bytes (unix(7)).  Raises `OSError`."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def listen(path: Path) -> socket.socket:
    """Listen at a path, for this user alone; a socket that a killed process has left there goes.  Raises `OSError`."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        with _address(path) as address:
            listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def connect(path: Path, timeout: float | None = None) -> socket.socket:
    """Connect to a path; the socket keeps the timeout in seconds.  Raises `OSError`."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        with _address(path) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection
