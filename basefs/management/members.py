"""`basefs members`: who is in the cluster."""

from __future__ import annotations

import click

from basefs.config import Home
from basefs.management.output import json_option, print_json, print_table
from basefs.management.session import ask_daemon
from basefs.management.target import parse_target


@click.command()
@click.argument("target", metavar="NAME")
@json_option
def members(target: str, as_json: bool) -> None:
    """List the members of a running filesystem's cluster."""
    home = Home.from_environment()
    rows = ask_daemon(home, parse_target(home, target).name, "members")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["note"] = "this node" if row["own"] else "" if row["same_filesystem"] else "another filesystem"
    print_table({"NAME": "name", "ADDRESS": "address", "STATUS": "status", "": "note"}, rows, "no members yet")
