"""`basefs conflicts`: what lost, to what, and by which rule."""

from __future__ import annotations

import click

from basefs.config import Home
from basefs.management.output import json_option, print_json, print_table
from basefs.management.session import ask
from basefs.management.target import parse_target


@click.command()
@click.argument("target", metavar="NAME[:/PATH]")
@json_option
def conflicts(target: str, as_json: bool) -> None:
    """List the revisions that lost a conflict, at and below a path.

    Nothing is lost with them: 'basefs log --cat' prints what they hold, 'basefs revert' brings one back.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    rows = ask(home, parsed.name, "conflicts", path=parsed.path or "/")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["lost_short"], row["won_short"] = row["lost"][:12], row["won"][:12]
    columns = {
        "PATH": "path",
        "LOST": "lost_short",
        "BY": "lost_key",
        "TO": "won_short",
        "OF": "won_key",
        "RULE": "rule",
    }
    print_table(columns, rows, "no conflicts")
