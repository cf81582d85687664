"""`basefs conflicts`: what lost, to what, by which rule, and how to bring it back."""

from __future__ import annotations

import shlex

import click

from basefs.config import Home
from basefs.management.output import json_option, print_json, print_table
from basefs.management.rows import SHORT
from basefs.management.session import ask
from basefs.management.target import parse_target


@click.command()
@click.argument("target", metavar="NAME[:/PATH]")
@json_option
def conflicts(target: str, as_json: bool) -> None:
    """List the revisions that lost a conflict, at and below a path, and the command that brings each one back.

    Nothing is lost with them: 'basefs log --cat' prints what they hold.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    rows = ask(home, parsed.name, "conflicts", path=parsed.path or "/")
    for row in rows:
        row["command"] = shlex.join(("basefs", "revert", f"{parsed.name}:{row['path']}", row["lost"][:SHORT]))
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["lost_short"], row["won_short"] = row["lost"][:SHORT], row["won"][:SHORT]
    columns = {
        "PATH": "path",
        "LOST": "lost_short",
        "BY": "lost_key",
        "TO": "won_short",
        "OF": "won_key",
        "RULE": "rule",
        "BRING IT BACK": "command",
    }
    print_table(columns, rows, "no conflicts")
