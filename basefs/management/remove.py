"""`basefs remove`: delete a filesystem from this machine."""

from __future__ import annotations

import sys

import click

from basefs.daemon.api.removal import losses, remove_filesystem
from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.management.errors import decline
from basefs.management.output import examples, note
from basefs.management.session import ask
from basefs.management.target import parse_name


@click.command(epilog=examples("basefs remove etc", "basefs remove etc -y"))
@click.argument("target", metavar="NAME")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove(target: str, yes: bool) -> None:
    """Delete the filesystem NAME, with its history, from this machine.

    Other machines keep theirs, and the key of this machine stays. The command lists what would be lost, and whether any
    other machine has confirmed to have everything, and asks; without a terminal it needs -y. Unmount a running
    filesystem first.
    """
    home = Home.from_environment()
    name = parse_name(home, target)
    for line in losses(home, name, lambda request: ask(home, name, request)):
        note(line)
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"{name} was not removed: -y removes it without a question")
    if not yes and not click.confirm(f"Remove {name} from this machine?", err=True):
        decline(f"{name} was not removed")
    remove_filesystem(home, name)
