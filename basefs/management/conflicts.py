"""`basefs conflicts`: what lost, to what, by which rule, and how to bring it back or to have done with it."""

from __future__ import annotations

import shlex
import sys

import click

from basefs.daemon.config import Home
from basefs.management.output import examples, json_option, print_json, print_table, printable
from basefs.management.rows import SHORT
from basefs.management.session import ask
from basefs.management.target import parse_target


@click.command(
    epilog=examples(
        "basefs conflicts etc", "basefs conflicts etc:/hosts --json", "basefs conflicts etc:/hosts --accept"
    )
)
@click.argument("target", metavar="NAME[:/PATH]")
@click.option("--accept", "accepts", is_flag=True, help="Keep what won: what is listed now is settled, on all nodes.")
@json_option
def conflicts(target: str, accepts: bool, as_json: bool) -> None:
    """List the revisions that lost a conflict, at and below a path, and the command that brings each one back.

    Nothing is lost with them: 'basefs log --cat' prints what they hold.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    rows = ask(home, parsed.name, "accept" if accepts else "conflicts", path=parsed.path or "/")
    for row in rows:
        row["command"] = shlex.join(("basefs", "revert", f"{parsed.name}:{row['path']}", row["lost"][:SHORT]))
    if as_json:
        print_json(rows)
        return
    if accepts:
        left = [row for row in rows if not row["settled"]]
        for row in left:
            place = f"{printable(row['path'])}: {row['lost'][:SHORT]}"
            click.echo(f"{place} is left as it is, because another name of the file shows it", err=True)
        rows = [row for row in rows if row["settled"]]
        if left and not rows:
            return
    for row in rows:
        row["lost_short"], row["won_short"] = row["lost"][:SHORT], row["won"][:SHORT]
    if sys.stdout.isatty() and rows:
        # One below the other: a command that is wrapped inside a table cannot be copied.
        for row in rows:
            lost, won = (row[f"{side}_key"] or "an unknown key" for side in ("lost", "won"))
            click.secho(printable(row["path"]), bold=True)
            click.echo(f"  lost      {row['lost_short']}  {row['lost_kind']} by {printable(lost)}")
            click.echo(f"  to        {row['won_short']}  {row['won_kind']} by {printable(won)}: {row['rule']}")
            click.echo(f"  bring it back with:  {printable(row['command'])}")
        return
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
