"""`basefs rekey`: a new key for gossip."""

from __future__ import annotations

import click

from basefs.daemon.api.messages import RenewGossipKey
from basefs.daemon.config import Home
from basefs.management.output import examples, say
from basefs.management.session import ask
from basefs.management.signing import key_option, other_key
from basefs.management.target import parse_name


@click.command(epilog=examples("basefs rekey etc", "basefs rekey etc -k root.key"))
@click.argument("target", metavar="NAME")
@key_option
def rekey(target: str) -> None:
    """Replace the key that encrypts gossip of NAME.

    Revoking a member's key does that by itself. Do it by hand if somebody who is no member may have read the log, as
    with the token of an invitation. A key that is valid at '/' signs it. The other members receive it with the log;
    those that are away get it when they are back. Gossip pauses for a moment on each node; the filesystem stays usable.
    """
    home = Home.from_environment()
    name = parse_name(home, target)
    ask(home, name, RenewGossipKey(other_key()))
    say(f"{name}: gossip has a new key")
