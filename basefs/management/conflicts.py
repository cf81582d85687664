"""`basefs conflicts`: what lost, to what, by which rule, and how to bring it back or to have done with it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from basefs.daemon.api.messages import (
    AcceptConflicts,
    CompareRevisions,
    ListConflicts,
    ListIgnored,
    LostRevision,
    Revert,
    RevisionPair,
    RevisionRow,
    SettledConflict,
    encode,
)
from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.management.differences import differences, print_difference
from basefs.management.log import is_by, signer, size_of
from basefs.management.output import (
    SHORT,
    counted,
    examples,
    json_option,
    moment,
    note,
    print_json,
    print_table,
    printable,
    say,
)
from basefs.management.revert import UNASKED, confirm_deletions, deletions, summary
from basefs.management.session import ask
from basefs.management.target import parse_target


@click.command(
    epilog=examples(
        "basefs conflicts etc",
        "basefs conflicts etc:/hosts --diff",
        "basefs conflicts etc:/nginx --accept",
        "basefs conflicts etc --accept --all",
        "basefs conflicts etc:/nginx --restore gamma",
        "basefs conflicts etc --ignored",
    )
)
@click.argument("target", metavar="NAME[:/PATH]")
@click.option("-d", "--diff", "diffs", is_flag=True, help="Show what bringing each one back would change.")
@click.option("--accept", "accepts", is_flag=True, help="Keep the winners: settle the listed conflicts, on all nodes.")
@click.option(
    "--restore",
    "key",
    metavar="KEY",
    help="Bring back all that a key has lost: its name, or 8 digits of its fingerprint.",
)
@click.option("--all", "everywhere", is_flag=True, help="With --accept or --restore, instead of a PATH: everywhere.")
@click.option("-y", "--yes", is_flag=True, help=f"Restore without asking before deleting more than {UNASKED} paths.")
@click.option("--ignored", is_flag=True, help="List changes that do not count: of a key that is not valid.")
@json_option
def conflicts(
    target: str,
    diffs: bool,
    accepts: bool,
    key: str | None,
    everywhere: bool,
    yes: bool,
    ignored: bool,
    as_json: bool,
) -> None:
    """List the revisions that lost a conflict, at and below a path, and the command that brings each one back.

    Each file is decided alone, so of several that were changed together some may have won and some lost. Nothing is
    deleted: 'basefs cat --at HASH' prints a revision that lost. TIME is the time of signing. BY is the key that signed;
    an entry does not name a machine. If --accept or --restore is not permitted for one of the paths, nothing is
    changed.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    if diffs + accepts + (key is not None) + ignored > 1:
        raise UsageError("give one of --diff, --accept, --restore and --ignored")
    path = parsed.path
    if not accepts and key is None:
        if everywhere:
            raise UsageError("--all needs --accept or --restore")
    elif everywhere != (path == "/"):
        raise UsageError("--accept and --restore need a path, or --all instead")
    if accepts:
        _print_accepted(ask(home, parsed.name, AcceptConflicts(path)), parsed.name, as_json)
    elif key is not None:
        lost = [one for one in ask(home, parsed.name, ListConflicts(path)) if is_by(one.lost, key)]
        _restore(home, parsed.name, lost, as_json, yes=yes)
    elif ignored:
        _print_ignored(ask(home, parsed.name, ListIgnored(path)), parsed.name, as_json)
    elif diffs:
        _print_differences(home, parsed.name, ask(home, parsed.name, ListConflicts(path)), as_json)
    else:
        _print_conflicts(ask(home, parsed.name, ListConflicts(path)), parsed.name, as_json)


def _command(name: str, row: RevisionRow) -> str:
    """What brings a revision back."""
    return shlex.join(("basefs", "revert", f"{name}:{row.path}", row.entry[:SHORT]))


def _print_conflicts(found: list[LostRevision], name: str, as_json: bool) -> None:
    if as_json:
        print_json([{**encode(one), "command": _command(name, one.lost)} for one in found])
    elif sys.stdout.isatty() and found:
        # One below the other: a command that is wrapped inside a table cannot be copied.
        for one in found:
            _print_sides(one)
            what = "delete it" if one.lost.kind == "absent" else "bring it back"
            say(f"{what} with:  {_command(name, one.lost)}", label="  ")
    else:
        rows = [
            (
                one.path,
                *(one.lost.entry[:SHORT], moment(one.lost.time), signer(one.lost)),
                *(one.won.entry[:SHORT], moment(one.won.time), signer(one.won)),
                one.rule,
                _command(name, one.lost),
            )
            for one in found
        ]
        titles = ("PATH", "LOST", "TIME", "BY", "TO", "TIME", "BY", "RULE", "BRING IT BACK")
        print_table(titles, rows, "no conflicts")


def _print_sides(one: LostRevision) -> None:
    click.secho(printable(one.path), bold=True)
    for title, row in (("lost", one.lost), ("to", one.won)):
        say(f"{row.entry[:SHORT]}  {moment(row.time)}  {_kind(row)} by {signer(row)}", label=f"  {title:<4}  ")
    say(one.rule, label="  rule  ")


def _kind(row: RevisionRow) -> str:
    if row.kind == "absent":
        return "deleted"
    return f"{row.kind or 'unknown'}, {size_of(row)}," if row.kind == "file" else row.kind or "unknown"


def _print_differences(home: Home, name: str, found: list[LostRevision], as_json: bool) -> None:
    pairs = [RevisionPair(one.lost.entry, one.won.entry) for one in found]
    compared = differences(home, name, ask(home, name, CompareRevisions(pairs)) if pairs else [])
    if as_json:
        both = zip(found, compared, strict=True)
        print_json([{**encode(one), "patch": difference.encoded()} for one, difference in both])
        return
    if not found:
        note("no conflicts")
    for one, difference in zip(found, compared, strict=True):
        _print_sides(one)
        if difference.differs:
            print_difference(difference)
        click.echo()


def _print_accepted(found: list[SettledConflict], name: str, as_json: bool) -> None:
    if as_json:
        print_json([{**encode(settled), "command": _command(name, settled.conflict.lost)} for settled in found])
        return
    done = [settled.conflict for settled in found if settled.settled]
    for settled in found:
        if not settled.settled:
            lost = settled.conflict.lost
            place = f"{printable(lost.path)}: {lost.entry[:SHORT]}"
            note(f"{place} is left as it is, because another name of the file shows it")
    rows = [
        ("accepted", one.path, *(f"{row.entry[:SHORT]} {signer(row)}" for row in (one.won, one.lost))) for one in done
    ]
    if rows or not found:
        print_table(("WHAT", "PATH", "STAYS", "SETTLED"), rows, "no conflicts")
    if done and sys.stdout.isatty():
        note(f"{counted(len(done), 'conflict')} settled")


def _restore(home: Home, name: str, found: list[LostRevision], as_json: bool, *, yes: bool) -> None:
    """Revert to each of the revisions that lost, or to none if one of them may not be reverted to."""
    planned = [ask(home, name, Revert(one.path, one.lost.entry, dry_run=True)) for one in found]
    changes = [change for plan in planned for change in plan.changed]
    if not yes and deletions(changes) > UNASKED:
        confirm_deletions(changes, "", "--diff shows them", as_json=as_json)
    outcomes = [ask(home, name, Revert(one.path, one.lost.entry)) for one in found]
    if as_json:
        print_json([{**encode(one), **encode(outcome)} for one, outcome in zip(found, outcomes, strict=True)])
    elif not found:
        note("that key has lost nothing there")
    else:
        say(summary([change for outcome in outcomes for change in outcome.changed]))


def _print_ignored(found: Sequence[RevisionRow], name: str, as_json: bool) -> None:
    if as_json:
        print_json([{**encode(row), "command": _command(name, row)} for row in found])
        return
    rows = [
        (row.path, row.entry[:SHORT], moment(row.time), row.action, signer(row), size_of(row), _command(name, row))
        for row in found
    ]
    titles = ("PATH", "ENTRY", "TIME", "ACTION", "BY", "SIZE", "BRING IT BACK")
    print_table(titles, rows, "nothing is ignored")
