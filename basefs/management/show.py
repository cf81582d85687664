"""`basefs show`: the tree of entries, or of live paths."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.text import Text

from basefs.daemon.api.messages import ListLivePaths, ListTree, LivePath, TreeRow, encode
from basefs.daemon.config import Home
from basefs.management.log import signer
from basefs.management.output import SHORT, examples, json_option, moment, print_json, print_table, printable
from basefs.management.session import ask
from basefs.management.target import parse_target

#: What a revision is worth: its mark in front, and its colour on a terminal.
_MARKS = {
    "current": ("*", "bold green"),
    "past": (" ", ""),
    "lost": ("!", "bold red"),
    "ignored": ("-", "dim"),
    "incomplete": ("?", "yellow"),
    "gone": ("x", "dim"),
}


@click.command(epilog=examples("basefs show etc", "basefs show -l /cluster/nginx", "basefs show etc:/hosts --json"))
@click.argument("target", metavar="NAME[:/PATH]")
@click.option("-l", "--live", is_flag=True, help="List the live paths only, each with its current entry.")
@json_option
def show(target: str, live: bool, as_json: bool) -> None:
    """Show every entry at and below a path, as a tree: each entry is followed by those that build on it.

    The mark shows the standing of an entry: '*' current; none: the current one builds on it; '!' lost to a conflicting
    one; '-' ignored, because its key is not valid; '?' incomplete; 'x' gone with its directory.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    path = parsed.path or "/"
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
            size = "-" if one.size is None else str(one.size)
            cells = (mark, one.entry[:SHORT], one.action, signer(one), moment(one.time), size, one.path)
            click.echo("\t".join(map(printable, cells)))


def _print_live(found: list[LivePath], as_json: bool) -> None:
    if as_json:
        print_json(encode(found))
        return
    rows = [(one.kind, one.mode, one.size, moment(one.mtime), one.entry[:SHORT], one.path) for one in found]
    print_table(("KIND", "MODE", "SIZE", "TIME", "ENTRY", "PATH"), rows, "nothing there")


def _print_tree(rows: Sequence[TreeRow]) -> None:
    console = Console(highlight=False)
    path = None
    for row in rows:
        one = row.revision
        level = one.path.rstrip("/").count("/")
        if one.path != path:
            path = one.path
            name = path if level == 0 else path.rpartition("/")[2]
            console.print(Text("  " * level + printable(name), style="bold"), soft_wrap=True)
        mark, style = _MARKS[one.standing]
        size = "" if one.size is None or one.action not in ("write", "slink") else f"  {one.size} B"
        line = f"{mark} {one.entry[:SHORT]}  {one.action:<6}  {moment(one.time)}  {signer(one)}{size}"
        console.print(Text("  " * (level + 1 + row.depth) + printable(line), style=style), soft_wrap=True)
