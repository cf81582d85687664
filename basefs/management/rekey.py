"""`basefs rekey`: a new key for gossip."""

from __future__ import annotations

import click

from basefs.daemon.api.messages import RenewGossipKey
from basefs.daemon.config import Home
from basefs.management.output import counted, examples, say
from basefs.management.session import ask_daemon
from basefs.management.target import parse_name


@click.command(epilog=examples("basefs rekey etc"))
@click.argument("target", metavar="NAME")
def rekey(target: str) -> None:
    """Replace the key that encrypts gossip of the running filesystem NAME.

    Revoking a member's key does that by itself. Do it by hand if somebody may have read a copy of gossip.key.
    The node needs a key that is valid at '/'. It sends the new key to the other members; those that are away get it
    when they are back. Gossip pauses for a moment on each node; the filesystem stays usable.
    """
    home = Home.from_environment()
    name = parse_name(home, target)
    made = ask_daemon(home, name, RenewGossipKey())
    others = f"{made.told} of {counted(made.others, 'other member')}"
    say(f"{name}: gossip has a new key, number {made.number}; sent to {others}")
