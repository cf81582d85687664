"""`basefs show`: the tree of entries, or of live paths."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from basefs.daemon.api.messages import ListLivePaths, ListTree, LivePath, TreeRow, encode
from basefs.daemon.config import Home
from basefs.management.log import signer
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

#: What a revision is worth: its mark in front, and its colour on a terminal.
_MARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "current": ("*", {"fg": "green", "bold": True}),
    "past": (" ", {}),
    "last": ("^", {}),
    "lost": ("!", {"fg": "red", "bold": True}),
    "ignored": ("-", {"dim": True}),
    "incomplete": ("?", {"fg": "yellow"}),
    "withheld": ("~", {"dim": True}),
    "gone": ("x", {"dim": True}),
}


@click.command(epilog=examples("basefs show etc", "basefs show -l /cluster/nginx", "basefs show etc:/hosts --json"))
@click.argument("target", metavar="NAME[:/PATH]")
@click.option("-l", "--live", is_flag=True, help="List the live paths only, each with its current entry.")
@json_option
def show(target: str, live: bool, as_json: bool) -> None:
    """Show every entry at and below a path, as a tree: each entry is followed by those that build on it.

    The mark shows the standing of an entry: '*' current; none ('.' in a pipe): the current one builds on it; '^' the
    last before the path was deleted; '!' lost to a conflicting one; '-' ignored, because its key is not valid; '~'
    withheld: likewise, and its content is not fetched; '?' incomplete; 'x' gone with its directory.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    path = parsed.path
    if live:
        _print_live(ask(home, parsed.name, ListLivePaths(path)), as_json)
        return
    rows = ask(home, parsed.name, ListTree(path))
    if as_json:
        print_json(encode(rows))
    elif sys.stdout.isatty():
        _print_tree(rows)
    else:
        for row in rows:
            one = row.revision
            mark = _MARKS[one.standing][0].strip() or "."
            amount = "-" if one.size is None else size(one.size)
            cells = (mark, one.entry[:SHORT], one.action, signer(one), moment(one.time), amount, one.path)
            click.echo("\t".join(map(printable, cells)))


def _print_live(found: list[LivePath], as_json: bool) -> None:
    if as_json:
        print_json(encode(found))
        return
    rows = [(one.kind, one.mode, size(one.size), moment(one.mtime), one.entry[:SHORT], one.path) for one in found]
    print_table(("KIND", "MODE", "SIZE", "TIME", "ENTRY", "PATH"), rows, "nothing there")


def _print_tree(rows: Sequence[TreeRow]) -> None:
    path = None
    # As wide as most of them, so that only a longer one moves the others.
    width = max([6, *(len(row.revision.action) for row in rows)])
    for row in rows:
        one = row.revision
        nesting = one.path.rstrip("/").count("/")
        if one.path != path:
            path = one.path
            name = path if nesting == 0 else path.rpartition("/")[2]
            click.echo(coloured("  " * nesting + printable(name), bold=True))
        mark, style = _MARKS[one.standing]
        amount = "" if one.size is None or one.action not in ("write", "slink") else f"  {size(one.size)}"
        line = f"{mark} {one.entry[:SHORT]}  {one.action:<{width}}  {moment(one.time)}  {signer(one)}{amount}"
        click.echo(coloured("  " * (nesting + 1 + row.level) + printable(line), **style))
