"""`basefs list`: the filesystems of this node."""

from __future__ import annotations

import click

from basefs.daemon.config import Home
from basefs.management.output import examples, json_option, print_json, print_table
from basefs.management.session import client


@click.command(epilog=examples("basefs list", "basefs list --json"))
@json_option
def list(as_json: bool) -> None:
    """List the filesystems on this node, with their state and size."""
    home = Home.from_environment()
    rows = [client(home, name).look("summary") for name in home.names()]
    if as_json:
        print_json(rows)
        return
    columns = {
        "NAME": "name",
        "STATE": "state",
        "MOUNTPOINT": "mountpoint",
        "ENTRIES": "entries",
        "BYTES": "bytes",
        "IDENTITY": "identity",
    }
    print_table(
        columns, rows, "no filesystem here: 'basefs bootstrap NAME' makes one, 'basefs get NAME ADDR' fetches one"
    )
    for row in rows:
        if "error" in row:
            click.echo(f"basefs: {row['name']}: {row['error']}", err=True)
