"""`basefs log`: the history of a path."""

from __future__ import annotations

import difflib
import sys
from typing import Any

import click

from basefs.daemon.api.messages import GetContent, ListRevisions, RevisionRow, encode
from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.management.output import SHORT, examples, json_option, moment, print_json, print_table
from basefs.management.session import ask
from basefs.management.target import Target, parse_target, require_path


@click.command(
    epilog=examples(
        "basefs log etc:/hosts",
        "basefs log /cluster/hosts --cat 5f3a09c1d2e4",
        "basefs log etc:/hosts --diff 5f3a09c1d2e4",
        "basefs log -r etc:/nginx",
    )
)
@click.argument("target", metavar="NAME:/PATH")
@click.argument("new", metavar="[HASH]", required=False)
@click.option("--cat", "shown", metavar="HASH", help="Print the content at a revision.")
@click.option("--diff", "old", metavar="HASH", help="Print what changed from a revision to now, or to a second HASH.")
@click.option("-r", "--recursive", is_flag=True, help="List the revisions of all paths below as well.")
@json_option
def log(target: str, new: str | None, shown: str | None, old: str | None, recursive: bool, as_json: bool) -> None:
    """List every revision of a path, the newest first (in the order of arrival here), deleted paths included.

    The last column shows the standing of a revision: current; past: the current one builds on it; lost: to a
    conflicting one; ignored: its key is not valid; incomplete: its content has not arrived; gone: with its directory.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    require_path(parsed)
    if new is not None and old is None:
        raise UsageError("HASH needs --cat or --diff")
    if shown is not None:
        sys.stdout.buffer.write(_content(home, parsed, shown))
        return
    if old is not None:
        _print_difference(home, parsed, old, new)
        return
    rows = ask(home, parsed.name, ListRevisions(parsed.path or "/", recursive))
    if as_json:
        print_json(encode(rows))
        return
    titles: tuple[str, ...] = ("ENTRY", "TIME", "ACTION", "KEY", "SIZE", "STANDING")
    cells: list[tuple[Any, ...]] = [
        (row.entry[:SHORT], moment(row.time), row.action, signer(row), row.size, row.standing) for row in rows
    ]
    if recursive:
        titles, cells = (*titles, "PATH"), [(*line, row.path) for line, row in zip(cells, rows, strict=True)]
    print_table(titles, cells, "nothing was ever there")


def signer(row: RevisionRow) -> str:
    """The key that signed a revision, by its name if that is known."""
    return row.key or row.fingerprint[:SHORT]


def _content(home: Home, target: Target, entry: str) -> bytes:
    return ask(home, target.name, GetContent(entry))


def _print_difference(home: Home, target: Target, old: str, new: str | None) -> None:
    if new is None:
        rows = ask(home, target.name, ListRevisions(require_path(target)))
        new = next((row.entry for row in rows if row.standing == "current" and row.size is not None), None)
        if new is None:
            raise UsageError(f"{target.path} is not there now: name the newer revision as well")
    before, after = (_lines(home, target, entry) for entry in (old, new))
    for line in difflib.unified_diff(before, after, old[:SHORT], new[:SHORT]):
        click.echo(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n", nl=False)


def _lines(home: Home, target: Target, entry: str) -> list[str]:
    try:
        return _content(home, target, entry).decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        raise UsageError(f"the content at {entry[:SHORT]} is not text: compare what --cat prints") from None
