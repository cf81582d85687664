"""`basefs revert`: bring an earlier revision back."""

from __future__ import annotations

import click

from basefs.config import Home
from basefs.management.session import ask
from basefs.management.target import parse_target, require_path


@click.command()
@click.argument("target", metavar="NAME:/PATH")
@click.argument("entry", metavar="HASH")
def revert(target: str, entry: str) -> None:
    """Make a path again what it was at a revision that 'basefs log' lists.

    A deleted path comes back, and so does a revision that lost a conflict. Of a directory only itself is reverted, not
    what is in it.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    if not ask(home, parsed.name, "revert", path=require_path(parsed), entry=entry):
        click.echo("that is the current revision: nothing to do", err=True)
