"""Keys that a command signs with itself, instead of the node's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from basefs.daemon import keyfiles
from basefs.daemon.api.messages import OtherKey
from basefs.errors import UsageError

_PATH = f"{__name__}.path"
_PATHS = f"{__name__}.paths"


def _remember(context: click.Context, option: click.Parameter, value: Path | None) -> None:
    context.meta[_PATH] = value


#: For a command that asks `other_key`.
key_option = click.option(
    "-k",
    "--key",
    "keypath",
    metavar="KEYFILE",
    type=click.Path(path_type=Path),
    help="Sign with this key instead of the node's; for a .pub file an SSH agent signs.",
    expose_value=False,
    callback=_remember,
)


def _remember_all(context: click.Context, option: click.Parameter, value: tuple[Path, ...]) -> None:
    context.meta[_PATHS] = value


#: For a command that asks `other_keys`.
recovery_key_option = click.option(
    "-k",
    "--key",
    "keypaths",
    multiple=True,
    metavar="KEYFILE",
    type=click.Path(path_type=Path),
    help="A recovery key; may be given again. For a .pub file an SSH agent signs.",
    expose_value=False,
    callback=_remember_all,
)


def ask_passphrase(path: Path) -> str:
    """The passphrase of a key: asked for on a terminal, else the first line of the standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    found: str = click.prompt(f"passphrase of {path}", hide_input=True, err=True)
    return found


def new_passphrase(path: Path) -> str:
    """A passphrase for a new key, asked for twice on a terminal.  Raises `UsageError` for an empty one."""
    if sys.stdin.isatty():
        found = str(click.prompt(f"passphrase for {path}", hide_input=True, confirmation_prompt=True, err=True))
    else:
        found = ask_passphrase(path)
    if not found:
        raise UsageError("an empty passphrase protects nothing: leave --passphrase out for a key without one")
    # OpenSSL takes no longer one.
    if len(found.encode("utf-8", "surrogateescape")) > 1023:
        raise UsageError("a passphrase has at most 1023 bytes")
    return found


def other_key() -> OtherKey | None:
    """The key that -k names, for a request.  Raises `UsageError`."""
    path: Path | None = click.get_current_context().meta[_PATH]
    return None if path is None else key_at(path)


def other_keys() -> list[OtherKey]:
    """The keys that several -k name, for requests.  Raises `UsageError`."""
    paths: tuple[Path, ...] = click.get_current_context().meta[_PATHS]
    return [key_at(path) for path in paths]


def key_at(path: Path) -> OtherKey:
    """The key in a file, for a request.  Raises `UsageError`."""
    return keyfiles.other_key(path, lambda: ask_passphrase(path), os.environ.get("SSH_AUTH_SOCK"))
