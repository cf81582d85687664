"""`basefs list`: the filesystems of this node."""

from __future__ import annotations

from typing import Any

import click

from basefs.config import Home
from basefs.errors import BaseFSError, DamagedLog, OtherVersion
from basefs.management.output import examples, json_option, print_json, print_table
from basefs.management.runfile import RunFile
from basefs.management.session import ask, ask_daemon


@click.command(epilog=examples("basefs list", "basefs list --json"))
@json_option
def list(as_json: bool) -> None:
    """List the filesystems on this node, with their state and size."""
    home = Home.from_environment()
    rows = [_row(home, name) for name in home.names()]
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


def _row(home: Home, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "mountpoint": None}
    facts = RunFile(home, name).read()
    try:
        try:
            row.update(ask_daemon(home, name, "summary"))
            row["state"] = "running"
            if facts is not None and facts[1] is not None:
                row["state"], row["mountpoint"] = "mounted", str(facts[1])
        except OtherVersion as error:
            row.update(state="other version", error=str(error))
        except BaseFSError:
            row.update(ask(home, name, "summary"))
            row["state"] = "stopped" if facts is None else "dead"
    except DamagedLog as error:
        row.update(state="damaged", error=str(error))
    except BaseFSError as error:
        row.update(state="unreadable", error=str(error))
    return row
