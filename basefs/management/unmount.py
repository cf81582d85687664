"""`basefs unmount`: stop a filesystem."""

from __future__ import annotations

import click

from basefs.daemon.api.control import TIMEOUT
from basefs.daemon.api.shutdown import Ending, stop
from basefs.daemon.config import Home
from basefs.management.output import examples, note
from basefs.management.session import notify


@click.command(epilog=examples("basefs unmount etc", "basefs unmount --lazy /cluster"))
@click.argument("target", metavar="NAME|MOUNTPOINT")
@click.option(
    "-l", "--lazy", is_flag=True, help="Detach a mount that is in use; its daemon ends with the last open file."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=TIMEOUT,
    show_default=True,
    help="How long to wait for the daemon, which publishes what is pending.",
)
def unmount(target: str, lazy: bool, timeout: float) -> None:
    """Stop a filesystem, mounted or not; returns when its log is closed.

    The command first passes every change to another node, for at most 3 s. If none confirms, it prints what each of
    them lacks. The daemon then leaves the cluster, which takes Serf some 3 s; a mount waits for that.

    A mount in use stays, and the processes that use it are named. So are those that hold a copy of the mount in another
    mount namespace, such as a container or a service: the daemon cannot end before them. A mount whose daemon is dead
    is cleared.
    """
    how = Ending(lambda text: note(f"basefs: {text}"), notify, lazy=lazy, timeout=timeout)
    if not stop(Home.from_environment(), target.removesuffix(":/"), how):
        note("the daemon ends when the last file that is open in the mount is closed")
