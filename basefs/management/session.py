"""One way to ask a filesystem, whether its daemon runs or not."""

from __future__ import annotations

import sys
from typing import Any

import click

from basefs.daemon.api.client import Client
from basefs.daemon.config import Home


def client(home: Home, name: str) -> Client:
    """The client of a filesystem, which says on a terminal what takes long.  Raises `NotFound`."""
    return Client(home, name, notify)


def notify(text: str) -> None:
    """Print a line on a terminal."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def ask_daemon(home: Home, name: str, command: str, /, **arguments: Any) -> Any:
    """See `Client.ask_daemon`."""
    return client(home, name).ask_daemon(command, arguments)


def ask(home: Home, name: str, command: str, /, **arguments: Any) -> Any:
    """See `Client.ask`."""
    return client(home, name).ask(command, arguments)
