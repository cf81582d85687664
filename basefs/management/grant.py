"""`basefs grant`: let a key write."""

from __future__ import annotations

from pathlib import Path

import click

from basefs.config import Home
from basefs.errors import UsageError
from basefs.management.session import ask
from basefs.management.target import parse_target, require_path


@click.command()
@click.argument("target", metavar="NAME:/PATH")
@click.argument("keyname")
@click.argument("key", metavar="PUBKEY|KEYFILE")
def grant(target: str, keyname: str, key: str) -> None:
    """Let a key write at a path and everywhere below it.

    PUBKEY is the public key in hex; KEYFILE a .pub file of 'basefs genkey'.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    ask(home, parsed.name, "grant", path=require_path(parsed), name=keyname, public=_public_key(key))


def _public_key(text: str) -> str:
    path = Path(text)
    if not path.is_file():
        return text
    try:
        content = path.read_text()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no public key: give the .pub file of 'basefs genkey'") from None
    if "PRIVATE KEY" in content:
        raise UsageError(f"{path} is a private key, which must stay where it is: give {path}.pub")
    return content.strip()
