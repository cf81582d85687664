"""`basefs log`: the history of a path."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from string import hexdigits
from typing import Any

import click

from basefs.daemon.api.messages import (
    LEAST_DIGITS,
    CompareRevisions,
    ListRevisions,
    RevisionPair,
    RevisionRow,
    encode,
)
from basefs.daemon.config import Home
from basefs.errors import UsageError, suggestion
from basefs.management.differences import PathDifference, differences, print_difference
from basefs.management.output import (
    SHORT,
    coloured,
    examples,
    json_option,
    moment,
    print_json,
    print_table,
    printable,
    size,
)
from basefs.management.session import ask
from basefs.management.target import parse_target
from basefs.management.times import parse_time


@click.command(
    # `_refuse_more` says what to type instead.
    context_settings={"allow_extra_args": True},
    epilog=examples(
        "basefs log etc:/hosts",
        "basefs log etc:/hosts -p -n 1",
        "basefs log -r etc:/nginx --since yesterday --by alpha",
        "basefs log -r /cluster/nginx --arrival --until 18:56",
    ),
)
@click.argument("target", metavar="NAME:/PATH")
@click.option("-r", "--recursive", is_flag=True, help="Also list the revisions of all paths below.")
@click.option("-n", "--number", "most", metavar="N", type=click.IntRange(min=1), help="List only the newest N.")
@click.option("--since", metavar="TIME", help="List revisions of this time and later.")
@click.option("--until", metavar="TIME", help="List revisions of this time and earlier.")
@click.option("--by", metavar="KEY", help="List revisions signed by a key: its name, or 8 digits of its fingerprint.")
@click.option("-p", "--patch", is_flag=True, help="Show what each revision changed.")
@click.option("--arrival", is_flag=True, help="Order by arrival on this node, and show that time.")
@json_option
def log(target: str, recursive: bool, patch: bool, arrival: bool, as_json: bool, **selection: Any) -> None:
    """List every revision of a path, the newest first, also of one that was deleted.

    TIME is the time of signing; 'basefs revert --at' goes by the time of arrival. A rename is a link and a delete: the
    new path begins with a 'link', which shows from where, and has a history of its own.

    STANDING: current; past (the current one builds on it); last (before the path was deleted); lost (to a conflicting
    one); ignored (its key is not valid); withheld (likewise, and its content is not fetched); incomplete (its content
    has not arrived); gone (with its directory).
    """
    home = Home.from_environment()
    _refuse_more(target, click.get_current_context())
    parsed = parse_target(home, target)
    path = parsed.path
    known = ask(home, parsed.name, ListRevisions(path, recursive, arrival))
    rows = _select(known, arrival, **selection)
    pairs = [RevisionPair(row.entry) for row in rows] if patch else []
    patches = differences(home, parsed.name, ask(home, parsed.name, CompareRevisions(pairs)) if pairs else [])
    if as_json:
        found: list[Any] = encode(rows)
        if patch:
            found = [{**row, "patch": one.encoded()} for row, one in zip(found, patches, strict=True)]
        print_json(found)
    elif patch and rows:
        for row, one in zip(rows, patches, strict=True):
            _print_patch(row, one, arrival)
    else:
        _print_rows(rows, path, recursive, arrival, _empty(known, selection["by"]))


def _refuse_more(target: str, context: click.Context) -> None:
    """Raise `UsageError` for a word behind the path, with the commands that take a HASH there."""
    if not context.args:
        return
    word = context.args[0]
    if set(word) - set(hexdigits):
        raise click.UsageError(f"Got unexpected extra argument ({word})", context)
    path = shlex.quote(target)
    raise UsageError(
        f"log takes a path alone: 'basefs cat {path} --at {word}' prints that revision, 'basefs diff {path} {word}' "
        "compares it with what is there now"
    )


def _select(
    rows: Sequence[RevisionRow],
    arrival: bool,
    *,
    most: int | None,
    since: str | None,
    until: str | None,
    by: str | None,
) -> Sequence[RevisionRow]:
    """The revisions that are to be listed.  Raises `UsageError` for what is no time."""
    first, last = (None if text is None else parse_time(text) for text in (since, until))
    signed = rows if by is None else [row for row in rows if is_by(row, by)]
    return [
        row
        for row in signed
        if (first is None or _time(row, arrival) >= first) and (last is None or _time(row, arrival) <= last)
    ][:most]


def is_by(row: RevisionRow, key: str) -> bool:
    """Whether a key of this name, or whose fingerprint begins with these digits, has signed a revision."""
    return row.key == key or (len(key) >= LEAST_DIGITS and row.fingerprint.startswith(key.lower()))


def signer(row: RevisionRow) -> str:
    """The key that signed a revision, by its name if that is known."""
    return row.key or row.fingerprint[:SHORT]


def size_of(row: RevisionRow) -> str | None:
    """The size of a revision, `None` where that is not known."""
    return None if row.size is None else size(row.size)


def _time(row: RevisionRow, arrival: bool) -> float:
    return row.arrived if arrival else row.time


def _empty(known: Sequence[RevisionRow], by: str | None) -> str:
    """What to say where none of the known revisions is listed."""
    if by is None or any(is_by(row, by) for row in known):
        return "no revisions"
    near = suggestion(by, {row.key for row in known if row.key is not None})
    return printable(f"no key {by} has signed a revision here{near}")


def _print_rows(rows: Sequence[RevisionRow], path: str, recursive: bool, arrival: bool, empty: str) -> None:
    titles = ["ENTRY", "ARRIVED" if arrival else "TIME", "ACTION", "KEY", "SIZE", "STANDING"]
    cells: list[list[Any]] = [
        [row.entry[:SHORT], moment(_time(row, arrival)), row.action, signer(row), size_of(row), row.standing]
        for row in rows
    ]
    # Other paths are in it where names below are asked for, or a link names one; a grant is to somebody.
    if recursive or any(row.path != path or row.source or row.about for row in rows):
        titles.append("PATH")
        for line, row in zip(cells, rows, strict=True):
            line.append(_place(row))
    print_table(titles, cells, empty)


def _place(row: RevisionRow) -> str:
    if row.about is not None:
        return f"{row.path} for {row.about}"
    return row.path if row.source is None else f"{row.path} from {row.source}"


def _print_patch(row: RevisionRow, difference: PathDifference, arrival: bool) -> None:
    parts = (row.entry[:SHORT], moment(_time(row, arrival)), row.action, signer(row), row.standing, _place(row))
    line = "  ".join(map(printable, parts))
    click.echo(coloured(line, fg="yellow") if sys.stdout.isatty() else line)
    if difference.differs:
        print_difference(difference)
    click.echo()
