"""How commands print: tables on a terminal, plain columns in a pipe, JSON on request; times, spans and sizes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

import click

from basefs.errors import counted as counted
from basefs.path import escaped

#: Digits of a hash that people see; commands take any number of them that is not ambiguous.
SHORT = 12
#: In front of what goes on in the next line.
_INDENT = " " * 4
#: What no line ends in, so that it can be copied: words in quotes, and commands in the middle of a sentence.
_TOGETHER = re.compile(r"(?<![^\s(])'[^']+'(?!\w)|\bbasefs [a-z].*?(?=[;,')]| \(| and | or |$)")
#: Stands for a space in it; no printable text has it.
_SPACE = "\0"
#: Seconds -> the unit that is used from there on.
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def examples(*lines: str) -> str:
    """The last part of a command's help: command lines as a user may type them."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def printable(text: str) -> str:
    """Names can hold any byte: what would break a line or is not UTF-8 shows as an escape."""
    return escaped(text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def say(text: str, label: str = "") -> None:
    """Print one sentence, whatever names or words of other nodes are in it, behind a label; see `note`."""
    _print_sentence(text, label, err=False)


def note(text: str) -> None:
    """Print one sentence on stderr, whatever names or words of other nodes are in it.

    It is one line; on a terminal it is wrapped between words, and no command is broken.
    """
    _print_sentence(text, "", err=True)


def _print_sentence(text: str, label: str, *, err: bool) -> None:
    line = label + printable(text)
    if (sys.stderr if err else sys.stdout).isatty():
        line = "\n".join(wrapped(printable(text), " " * len(label) or _INDENT, first=label, err=err))
    click.echo(line, err=err)


def print_json(value: Any, *, err: bool = False) -> None:
    """One JSON document, on stderr if asked for; bytes that are not UTF-8 stay surrogate escapes."""
    click.echo(json.dumps(value, indent=2), err=err)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> None:
    """Rows as aligned columns on a terminal; in a pipe separated by tabs, without titles.

    Columns that do not fit go on in the next line, the same ones of each row.  The last column is wrapped between
    words; no word is broken.
    `empty`: what to say on stderr where there are none.
    """
    if not rows:
        note(empty)
        return
    cells = [[printable(_cell(value)) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            click.echo("\t".join(row))
        return
    *widths, _ = (max(map(_width, column)) for column in zip(titles, *cells, strict=True))
    last = _last_column(widths, [row[-1] for row in (titles, *cells)])
    for line in _lines(titles, widths, last):
        click.echo(coloured(line, bold=True))
    for row in cells:
        for line in _lines(row, widths, last):
            click.echo(line)


def _last_column(widths: Sequence[int], cells: Sequence[str]) -> int | None:
    """Where the last cells of the rows begin, behind columns of these widths; `None`: in lines of their own."""
    place = 0
    for needed in widths:
        if place and place + needed > terminal_columns():
            place = len(_INDENT)
        place += needed + 2
    room = terminal_columns() - place
    if not widths or all(_width(cell) <= room for cell in cells):
        return place
    longest = max(_width(word) for cell in cells for word in _TOGETHER.sub(_joined, cell).split(" "))
    # With fewer columns it goes on in lines of its own.
    return place if room >= max(longest, 20) else None


def _lines(row: Sequence[str], widths: Sequence[int], last: int | None) -> Iterator[str]:
    """The cells of a row, each at its column of these widths; none of the lines is wider than the terminal can be."""
    line = ""
    for cell, needed in zip(row[:-1], widths, strict=True):
        if line and _width(line) + needed > terminal_columns():
            yield line.rstrip()
            line = _INDENT
        line += cell + " " * (needed - _width(cell) + 2)
    others = wrapped(row[-1], " " * (len(_INDENT) if last is None else last))
    if last is not None and others:
        line += others.pop(0)[last:]
    yield line.rstrip()
    yield from others


def wrapped(text: str, indent: str, first: str | None = None, *, err: bool = False) -> list[str]:
    """Lines of whole words for a terminal, indented; a word or command that is too long runs on.

    `first`: what the first line begins with instead.  `err`: for the terminal behind stderr.
    """
    lines = textwrap.wrap(
        _TOGETHER.sub(_joined, text),
        max(terminal_columns(err=err), len(indent) + 1),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_SPACE, " ") for line in lines]


def _joined(found: re.Match[str]) -> str:
    return found[0].replace(" ", _SPACE)


def terminal_columns(*, err: bool = False) -> int:
    """The columns of the terminal behind stdout or stderr, as COLUMNS says or the terminal itself.

    Not `shutil.get_terminal_size`, which looks at stdout alone: that may be a pipe.
    """
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    columns = 0
    with contextlib.suppress(OSError, ValueError):
        columns = os.get_terminal_size((sys.stderr if err else sys.stdout).fileno()).columns
    return columns or 80


def _width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def coloured(text: str, **style: Any) -> str:
    """Text with a style of click's for a terminal; without a colour if NO_COLOR asks for that (no-color.org)."""
    if os.environ.get("NO_COLOR"):
        style.pop("fg", None)
    return click.style(text, **style)


def print_fields(fields: Mapping[str, str]) -> None:
    """Names with a value each, aligned and wrapped between words; in a pipe, a line each with a tab between them."""
    if not sys.stdout.isatty():
        for name, value in fields.items():
            click.echo(f"{name}\t{printable(value)}")
        return
    indent = " " * (max(map(_width, fields)) + 2)
    for name, value in fields.items():
        first, *others = wrapped(printable(value), indent) or [indent]
        click.echo(coloured(name, bold=True) + first[_width(name) :].rstrip())
        for line in others:
            click.echo(line)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def moment(seconds: float) -> str:
    """UNIX seconds as a local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def size(count: float) -> str:
    """Bytes, in powers of 1000: `17 B`, `1.2 MB`."""
    if count < 1000:
        return f"{int(count)} B"
    unit = 0
    # Not 1000.0 kB, as rounding would make of 999 999 bytes.
    while (count := count / 1000) >= 999.95:
        unit += 1
    return f"{count:.1f} {'kMGTPE'[unit]}B"


def span(seconds: float) -> str:
    """A length of time, in its largest unit: `2 h`; less than a second is 0 s."""
    length, unit = next((found for found in _SPANS if seconds >= found[0]), _SPANS[-1])
    return f"{int(max(seconds, 0) // length)} {unit}"
