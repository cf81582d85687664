"""`basefs revert`: bring back what was."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Sequence

import click

from basefs.daemon.api.messages import PathVersions, Revert, RevertOutcome, encode
from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.management.differences import became, described
from basefs.management.errors import decline
from basefs.management.output import counted, examples, json_option, note, print_json, print_table, printable, say
from basefs.management.progress import waiting
from basefs.management.session import ask
from basefs.management.target import Target, parse_changed
from basefs.management.times import parse_moment

#: Paths that a revert deletes without asking.
UNASKED = 20


@click.command(
    epilog=examples(
        "basefs revert etc:/hosts 5f3a09c1d2e4",
        "basefs revert /cluster/nginx --at 15m --dry-run",
        "basefs revert etc:/ --at '2026-01-31 12:00' --keep-new",
    )
)
@click.argument("target", metavar="NAME[:/PATH]")
@click.argument("entry", metavar="[HASH]", required=False)
@click.option("--at", "moment", metavar="TIME|HASH", help="Restore the path and all below it, as this node had them.")
@click.option("-k", "--keep-new", is_flag=True, help="With --at: delete nothing.")
@click.option("-n", "--dry-run", is_flag=True, help="List what would change, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help=f"Do not ask before deleting more than {UNASKED} paths.")
@json_option
def revert(
    target: str, entry: str | None, moment: str | None, keep_new: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Restore a path to a revision that 'basefs log' lists, or to a time; NAME alone is the whole filesystem.

    The HASH of a revision also restores a deleted path, or a revision that lost a conflict.

    With --at the path and all below it return to their state on this node at a TIME (15m, '2 hours ago', 18:56,
    yesterday, '2026-01-31 12:00'), or just after the entry HASH arrived. Newer paths are deleted, including those that
    other nodes have written.

    Before it deletes more than 20 paths the command asks; without a terminal it fails and changes nothing, unless -y
    is given. A revert is itself a change that can be reverted.
    """
    home = Home.from_environment()
    parsed = parse_changed(home, target)
    path = parsed.path
    if (entry is None) == (moment is None):
        raise UsageError("give either the HASH of a revision or --at TIME")
    if keep_new and moment is None:
        raise UsageError("--keep-new needs --at")
    request = Revert(
        path,
        entry,
        None if moment is None else parse_moment(moment),
        keep_new=keep_new,
        dry_run=dry_run,
        most_deleted=None if yes else UNASKED,
    )
    with waiting("looking for what differs"):
        outcome = ask(home, parsed.name, request)
    while outcome.entries and not (outcome.reverted or dry_run):
        # What arrives before the answer may be deleted by it as well: then it asks again.
        confirmed = confirm_deletions(
            outcome.changed, _where(parsed), "--dry-run lists them, --keep-new keeps them", as_json=as_json
        )
        with waiting("reverting"):
            outcome = ask(home, parsed.name, dataclasses.replace(request, most_deleted=confirmed))
    if as_json:
        changed = [{**encode(change), "became": became(change)} for change in outcome.changed]
        print_json({**encode(outcome), "changed": changed})
        return
    if outcome.kept:
        paths = ", ".join(map(printable, outcome.kept[:3])) + (", ..." if len(outcome.kept) > 3 else "")
        what = "where a directory and something else have changed places"
        note(f"kept {counted(len(outcome.kept), 'path')}, {what}: {paths}")
    if outcome.entries:
        _print(outcome, _where(parsed), dry_run=dry_run)
        if entry is not None and any(change.path == path and _is_new_directory(change) for change in outcome.changed):
            note("this is the directory alone: revert with --at to restore what was in it")
    elif not outcome.kept:
        note(f"nothing to do: {_why_nothing(home, parsed, request)}")


def _why_nothing(home: Home, target: Target, request: Revert) -> str:
    """Why a revert has no effect."""
    if request.keep_new:
        without = ask(home, target.name, dataclasses.replace(request, keep_new=False, dry_run=True))
        if newer := deletions(without.changed):
            return f"only newer paths differ ({newer}), and --keep-new keeps them"
    return f"{printable(f'{target.name}:{target.path}')} is in that state already"


def _where(target: Target) -> str:
    """What to say of the extent of a revert, where that is everything."""
    return f" in all of {target.name}" if target.path == "/" else ""


def deletions(changed: Sequence[PathVersions]) -> int:
    """How many paths are deleted."""
    return sum(change.after is None for change in changed)


def confirm_deletions(changed: Sequence[PathVersions], where: str, choices: str, *, as_json: bool) -> int:
    """Ask whether so many paths may be deleted, and return their number.  `choices`: what else can be typed.

    Raises `UsageError` where nobody can answer; ends the command after a no.
    """
    doomed = deletions(changed)
    what = f"this deletes {counted(doomed, 'path')}{where}: {choices}"
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{what}, -y deletes them; nothing was changed")
    note(f"{summary(changed)} ({what})")
    if not click.confirm("Revert?", err=True):
        decline("nothing was changed")
    return doomed


def _print(outcome: RevertOutcome, where: str, *, dry_run: bool) -> None:
    if dry_run:
        rows = [(became(change), change.path, described(change)) for change in outcome.changed]
        print_table(("WHAT", "PATH", "DETAIL"), rows, "no path would change")
    else:
        say(summary(outcome.changed) + where)


def summary(changed: Sequence[PathVersions]) -> str:
    """How many paths were created, changed and deleted."""
    found = Counter(map(became, changed))
    parts = [f"{found[what]} {what}" for what in ("created", "changed", "deleted") if found[what]]
    return ", ".join(parts) or "no path changed"


def _is_new_directory(change: PathVersions) -> bool:
    return change.before is None and change.after is not None and change.after.kind == "directory"
