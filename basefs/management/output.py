"""How commands print: tables on a terminal, plain columns in a pipe, JSON on request; times, spans and sizes."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from basefs.errors import UsageError
from basefs.path import escaped

#: Digits of a hash that people see; commands take any number of them that is not ambiguous.
SHORT = 12
#: Characters to which a column may be folded.
_FOLDED = 9
_AGO = re.compile(r"(\d+)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
#: Seconds -> the unit that is used from there on.
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))

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


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> None:
    """Rows as a table; on a terminal that is too narrow for it, a line for each value instead.

    `empty`: what to say on stderr where there are none.
    """
    if not rows:
        click.echo(empty, err=True)
        return
    cells = [[printable(_cell(value)) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for line in cells:
            click.echo("\t".join(line))
        return
    console = Console()
    if _least_width(titles, cells) > console.width:
        _print_records(titles, cells)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    console.print(table)


def _print_records(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Rows below each other, a line for each value."""
    for number, line in enumerate(cells):
        if number:
            click.echo()
        print_fields({title.lower(): cell for title, cell in zip(titles, line, strict=True) if cell})


def _least_width(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """Characters below which a table would be broken into unreadable pieces."""
    widths = (
        max(map(cell_len, (title, *column))) for title, column in zip(titles, zip(*cells, strict=True), strict=True)
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


def moment(seconds: float) -> str:
    """UNIX seconds as a local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def parse_moment(text: str) -> float:
    """UNIX seconds of `2026-01-31 12:00[:00]` (local time, or with an offset), or of `15m` ago (s, m, h, d, w).

    Raises `UsageError`.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{text!r} is no time: write '2026-01-31 12:00', or 15m, 2h, 3d for that long ago") from None


def size(count: float) -> str:
    """Bytes, in powers of 1000: `1.2 MB`."""
    return decimal(int(count))


def span(seconds: float) -> str:
    """A length of time, in its largest unit: `2 h`; less than a second is 0 s."""
    length, unit = next((found for found in _SPANS if seconds >= found[0]), _SPANS[-1])
    return f"{int(max(seconds, 0) // length)} {unit}"


def counted(number: int, noun: str) -> str:
    """`1 block`, `2 blocks`."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun}"
