"""`basefs show`: the tree of a filesystem."""

from __future__ import annotations

import time

import click

from basefs.config import Home
from basefs.management.output import json_option, print_json, print_table
from basefs.management.session import ask
from basefs.management.target import parse_target


@click.command()
@click.argument("target", metavar="NAME[:/PATH]")
@json_option
def show(target: str, as_json: bool) -> None:
    """Show the live paths of a filesystem, or those below a path, with their current entry."""
    home = Home.from_environment()
    parsed = parse_target(home, target)
    rows = ask(home, parsed.name, "show", path=parsed.path or "/")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["time"] = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["mtime"]))
        row["short"] = row["entry"][:12]
    columns = {"KIND": "kind", "MODE": "mode", "SIZE": "size", "TIME": "time", "ENTRY": "short", "PATH": "path"}
    print_table(columns, rows, "nothing there")
