"""One way to ask a filesystem, whether its daemon runs or not."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TypeVar

from basefs.daemon.api.client import FilesystemClient
from basefs.daemon.api.messages import Request
from basefs.daemon.config import Home
from basefs.management.output import note

Answer = TypeVar("Answer")


def client(home: Home, name: str) -> FilesystemClient:
    """The client of a filesystem, which says on a terminal what takes long.  Raises `NotFound`."""
    return FilesystemClient(home, name, notify)


@contextlib.contextmanager
def connections() -> Iterator[None]:
    """While connections to other nodes are used: one that is closed is its own error, and ends no command."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


def notify(text: str) -> None:
    """Print a line on a terminal."""
    if sys.stderr.isatty():
        note(text)


def ask(home: Home, name: str, request: Request[Answer]) -> Answer:
    """See `FilesystemClient.ask`."""
    return client(home, name).ask(request)


def ask_daemon(home: Home, name: str, request: Request[Answer]) -> Answer:
    """See `FilesystemClient.ask_daemon`."""
    return client(home, name).ask_daemon(request)
