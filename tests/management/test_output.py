"""Output: tables for people, columns for pipes, JSON for programs."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.management.output import print_json, print_table, printable
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.node import Node


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("ñandú 日本", "ñandú 日本"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\udcff\udcfe", "\\xff\\xfe"),
        ("\u2028\u202e", "\\u2028\\u202e"),
        ("", ""),
    ],
)
def test_what_would_break_a_line_is_escaped(text: str, expected: str) -> None:
    assert printable(text) == expected


@given(st.binary())
def test_any_name_is_one_printable_line(name: bytes) -> None:
    shown = printable(name.decode("utf-8", "surrogateescape"))
    assert shown.isprintable()
    shown.encode("utf-8")


def test_a_table_in_a_pipe_is_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "B", "C"), [("x\ty", None, True), ("[bold]", 0, False)], "none")
    assert capsys.readouterr() == ("x\\ty\t-\tyes\n[bold]\t0\tno\n", "")


def test_an_empty_table_says_so_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A",), [], "none at all")
    assert capsys.readouterr() == ("", "none at all\n")


def test_json_keeps_every_byte(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": b"\xff\n".decode("utf-8", "surrogateescape")}
    print_json(value)
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == value


def test_a_terminal_gets_a_table_with_titles(node: Node, conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write((b"[red]x",), b""))
    printed = on_a_terminal(node, "show", "-l", "conf", TERM="xterm")
    assert "MODE" in printed
    assert "/[red]x" in printed


def test_a_narrow_terminal_gets_a_line_for_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than a table of which each word is broken into pieces."""
    titles = ("NAME", "ADDRESS", "STATUS", "COMPARED", "LAG", "")
    row = ("gamma", "10.83.0.3:18374", "alive", "1 min ago", 0, "")
    shown = {}
    for width in (45, 80):
        written = io.StringIO()
        written.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdout", written)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        print_table(titles, [row, ("delta", *row[1:5], "cannot reach it: " + "why " * 20)], "none")
        shown[width] = [line.rstrip() for line in re.sub(r"\x1b\[\d*m", "", written.getvalue()).splitlines()]
    assert shown[45][:6] == [
        "name      gamma",
        "address   10.83.0.3:18374",
        "status    alive",
        "compared  1 min ago",
        "lag       0",
        "",
    ]
    assert shown[45][6] == "name      delta" and shown[45][11].split()[0] == "cannot"
    assert all(len(line) <= width for width, lines in shown.items() for line in lines)
    assert shown[80][0].split() == ["NAME", "ADDRESS", "STATUS", "COMPARED", "LAG"]
    assert shown[80][1].split() == ["gamma", "10.83.0.3:18374", "alive", "1", "min", "ago", "0"]


def test_a_terminal_gets_the_tree_of_entries_in_colour(node: Node, conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory((b"d",)))
        replica.commit(lambda author: author.write((b"d", b"[red]\x1b"), b"12"))
    printed = on_a_terminal(node, "show", "conf", TERM="xterm")
    assert "\x1b[1;32m" in printed and "2 B" in printed
    assert "    [red]\\x1b" in printed, "names are shown as they are, below their directory, and cannot colour anything"
    assert "\x1b[" not in conf("show", "conf")
