"""`basefs unmount`: stop a filesystem."""

from __future__ import annotations

import click

from basefs.daemon.api.shutdown import stop
from basefs.daemon.config import Home
from basefs.management.output import examples
from basefs.management.session import notify


@click.command(epilog=examples("basefs unmount etc", "basefs unmount --lazy /cluster"))
@click.argument("target", metavar="NAME|MOUNTPOINT")
@click.option(
    "-l", "--lazy", is_flag=True, help="Detach a mount that is in use; its daemon ends with the last open file."
)
def unmount(target: str, lazy: bool) -> None:
    """Stop a filesystem, mounted or not; returns when its daemon has ended.

    A mount whose daemon is dead is cleared.
    """
    if not stop(Home.from_environment(), target, notify, lazy=lazy):
        click.echo("the daemon ends when the last file that is open in the mount is closed", err=True)
