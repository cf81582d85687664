"""`basefs show`: the tree of entries, or of live paths."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from basefs.daemon.config import Home
from basefs.management.output import examples, json_option, print_json, print_table, printable
from basefs.management.rows import SHORT, moment, readable
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
    """Show every entry at and below a path, as a tree: behind each entry those that build on it.

    The mark tells what an entry is worth: '*' current; none, the current one builds on it; '!' lost to a conflicting
    one; '-' ignored, because its key is not valid; '?' incomplete; 'x' gone with its directory.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    rows = ask(home, parsed.name, "show" if live else "tree", path=parsed.path or "/")
    if as_json:
        print_json(rows)
    elif live:
        _print_live(rows)
    elif sys.stdout.isatty():
        _print_tree(rows)
    else:
        columns = ("mark", "short", "action", "by", "when", "size", "path")
        for row in rows:
            row = {**readable(row), "mark": _MARKS[row["standing"]][0].strip() or "."}
            click.echo("\t".join("-" if row[key] is None else printable(str(row[key])) for key in columns))


def _print_live(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["time"], row["short"] = moment(row["mtime"]), row["entry"][:SHORT]
    columns = {"KIND": "kind", "MODE": "mode", "SIZE": "size", "TIME": "time", "ENTRY": "short", "PATH": "path"}
    print_table(columns, rows, "nothing there")


def _print_tree(rows: Sequence[dict[str, Any]]) -> None:
    console = Console(highlight=False)
    path = None
    for row in map(readable, rows):
        level = row["path"].rstrip("/").count("/")
        if row["path"] != path:
            path = row["path"]
            name = path if level == 0 else path.rpartition("/")[2]
            console.print(Text("  " * level + printable(name), style="bold"), soft_wrap=True)
        mark, style = _MARKS[row["standing"]]
        size = "" if row["size"] is None or row["action"] not in ("write", "slink") else f"  {row['size']} B"
        line = f"{mark} {row['short']}  {row['action']:<6}  {row['when']}  {row['by']}{size}"
        console.print(Text("  " * (level + 1 + row["depth"]) + printable(line), style=style), soft_wrap=True)
