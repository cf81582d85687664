"""How commands print: tables on a terminal, plain columns in a pipe, JSON on request."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from basefs.path import escaped

#: Characters to which a column may be folded.
_FOLDED = 9

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def examples(*lines: str) -> str:
    """The last part of a command's help: command lines as a user may type them."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def printable(text: str) -> str:
    """Names can hold any byte: what would break a line or is not UTF-8 shows as an escape."""
    return escaped(text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def print_json(value: Any, *, err: bool = False) -> None:
    """One JSON document, on stderr if asked for; bytes that are not UTF-8 stay surrogate escapes."""
    click.echo(json.dumps(value, indent=2), err=err)


def print_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], empty: str) -> None:
    """Rows as a table; on a terminal that is too narrow for it, a line for each value instead.

    Args:
        columns: title -> key in the row.
        rows: values to show.
        empty: what to say on stderr where there are none.
    """
    if not rows:
        click.echo(empty, err=True)
        return
    cells = [[printable(_cell(row.get(key))) for key in columns.values()] for row in rows]
    if not sys.stdout.isatty():
        for line in cells:
            click.echo("\t".join(line))
        return
    console = Console()
    if _least_width(columns, cells) > console.width:
        for number, line in enumerate(cells):
            if number:
                click.echo()
            print_fields({title.lower(): cell for title, cell in zip(columns, line, strict=True) if cell})
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in columns:
        table.add_column(title, overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    console.print(table)


def _least_width(columns: Mapping[str, str], cells: Sequence[Sequence[str]]) -> int:
    """Characters below which a table would be broken into pieces that nobody can read."""
    widths = (
        max(map(cell_len, (title, *column))) for title, column in zip(columns, zip(*cells, strict=True), strict=True)
    )
    return sum(min(width, _FOLDED) + 2 for width in widths) - 2


def coloured(text: str, **style: Any) -> str:
    """Text with a style of click's for a terminal; without a colour if NO_COLOR asks for that (no-color.org)."""
    if os.environ.get("NO_COLOR"):
        style.pop("fg", None)
    return click.style(text, **style)


def print_fields(fields: Mapping[str, str]) -> None:
    """Names with a value each, a line each; in a pipe with a tabulator between them."""
    if not sys.stdout.isatty():
        for name, value in fields.items():
            click.echo(f"{name}\t{value}")
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(Text(name), Text(value))
    Console(highlight=False).print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
