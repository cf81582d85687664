"""`basefs conflicts`: what lost, to what, by which rule, and how to bring it back or to have done with it."""

from __future__ import annotations

import shlex
import sys

import click

from basefs.daemon.api.messages import AcceptConflicts, ListConflicts, LostRevision, SettledConflict, encode
from basefs.daemon.config import Home
from basefs.management.output import SHORT, examples, json_option, print_json, print_table, printable
from basefs.management.session import ask
from basefs.management.target import parse_target


@click.command(
    epilog=examples(
        "basefs conflicts etc", "basefs conflicts etc:/hosts --json", "basefs conflicts etc:/hosts --accept"
    )
)
@click.argument("target", metavar="NAME[:/PATH]")
@click.option("--accept", "accepts", is_flag=True, help="Keep the winners: settle the listed conflicts, on all nodes.")
@json_option
def conflicts(target: str, accepts: bool, as_json: bool) -> None:
    """List the revisions that lost a conflict, at and below a path, and the command that brings each one back.

    Nothing is deleted: 'basefs log --cat' prints the content of a revision that lost.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    path = parsed.path or "/"
    if accepts:
        _print_accepted(ask(home, parsed.name, AcceptConflicts(path)), parsed.name, as_json)
        return
    found = ask(home, parsed.name, ListConflicts(path))
    if as_json:
        print_json([{**encode(conflict), "command": _command(parsed.name, conflict)} for conflict in found])
    else:
        _print(found, parsed.name)


def _command(name: str, conflict: LostRevision) -> str:
    """What brings back the revision that lost."""
    return shlex.join(("basefs", "revert", f"{name}:{conflict.path}", conflict.lost[:SHORT]))


def _print_accepted(found: list[SettledConflict], name: str, as_json: bool) -> None:
    if as_json:
        print_json([{**encode(settled), "command": _command(name, settled.conflict)} for settled in found])
        return
    left = [settled.conflict for settled in found if not settled.settled]
    for conflict in left:
        place = f"{printable(conflict.path)}: {conflict.lost[:SHORT]}"
        click.echo(f"{place} is left as it is, because another name of the file shows it", err=True)
    done = [settled.conflict for settled in found if settled.settled]
    if done or not left:
        _print(done, name)


def _print(found: list[LostRevision], name: str) -> None:
    if sys.stdout.isatty() and found:
        # One below the other: a command that is wrapped inside a table cannot be copied.
        for one in found:
            lost, won = printable(one.lost_key or "an unknown key"), printable(one.won_key or "an unknown key")
            click.secho(printable(one.path), bold=True)
            click.echo(f"  lost      {one.lost[:SHORT]}  {one.lost_kind} by {lost}")
            click.echo(f"  to        {one.won[:SHORT]}  {one.won_kind} by {won}: {one.rule}")
            click.echo(f"  bring it back with:  {printable(_command(name, one))}")
        return
    rows = [
        (one.path, one.lost[:SHORT], one.lost_key, one.won[:SHORT], one.won_key, one.rule, _command(name, one))
        for one in found
    ]
    print_table(("PATH", "LOST", "BY", "TO", "OF", "RULE", "BRING IT BACK"), rows, "no conflicts")
