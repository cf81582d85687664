"""Output: tables for people, columns for pipes, JSON for programs."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.management.output import print_fields, print_json, print_table, printable, say, size
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.node import COMMAND, Node


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


def on_a_screen(monkeypatch: pytest.MonkeyPatch, width: int, show: Callable[[], None]) -> list[str]:
    """The lines that a function prints to a terminal of that width, without colours."""
    written = io.StringIO()
    written.isatty = lambda: True  # type: ignore[method-assign]
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", written)
        patched.setenv("COLUMNS", str(width))
        patched.setenv("NO_COLOR", "1")
        show()
    return re.sub(r"\x1b\[\d*m", "", written.getvalue()).splitlines()


def test_a_table_aligns_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("alpha", "mounted", 3, None), ("日本", "stopped", 12, "it is 日本")]
    assert on_a_screen(monkeypatch, 80, lambda: print_table(("NAME", "STATE", "N", ""), rows, "none")) == [
        "NAME   STATE    N",
        "alpha  mounted  3   -",
        "日本   stopped  12  it is 日本",
    ]


def test_what_does_not_fit_goes_on_in_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """And never is a hash or an address broken, or cut off."""
    titles = ("NAME", "ADDRESS", "STATUS", "COMPARED", "LAG", "NOTE")
    row = ("delta", "10.83.0.3:18374", "alive", "1 min ago", 0, "cannot reach it: " + "0123456789ab/" * 3)
    assert on_a_screen(monkeypatch, 45, lambda: print_table(titles, [("n", *row[1:5], ""), row], "none")) == [
        "NAME   ADDRESS          STATUS  COMPARED",
        "    LAG",
        "    NOTE",
        "n      10.83.0.3:18374  alive   1 min ago",
        "    0",
        "delta  10.83.0.3:18374  alive   1 min ago",
        "    0",
        "    cannot reach it:",
        "    0123456789ab/0123456789ab/0123456789ab/",
    ]
    assert on_a_screen(monkeypatch, 45, lambda: print_fields({"a": "b", "name": "one two " * 6})) == [
        "a     b",
        "name  one two one two one two one two one two",
        "      one two",
    ]


def test_the_last_column_has_one_place_in_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    titles, rows = ("NAME", "NOTE"), [("a", "short"), ("b", "not so short that it fits into the line")]
    assert on_a_screen(monkeypatch, 30, lambda: print_table(titles, rows, "none")) == [
        "NAME  NOTE",
        "a     short",
        "b     not so short that it",
        "      fits into the line",
    ]
    assert on_a_screen(monkeypatch, 20, lambda: print_table(titles, rows, "none")) == [
        "NAME",
        "    NOTE",
        "a",
        "    short",
        "b",
        "    not so short",
        "    that it fits",
        "    into the line",
    ]


def test_no_command_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "it's gone: basefs members conf --forget IP:PORT, or 'ip address' and basefs check conf; then wait"
    assert on_a_screen(monkeypatch, 24, lambda: say(text)) == [
        "it's gone:",
        "    basefs members conf --forget IP:PORT,",
        "    or 'ip address' and",
        "    basefs check conf;",
        "    then wait",
    ]
    assert on_a_screen(monkeypatch, 24, lambda: say("one two three four", label="  rule  ")) == [
        "  rule  one two three",
        "        four",
    ]


def lines_on_stderr(node: Node, width: int, *arguments: str) -> list[str]:
    """What a command writes to a terminal of that width, with its stdout in a pipe."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    variables = {name: value for name, value in node.environment.items() if name not in ("COLUMNS", "LINES")}
    subprocess.run([COMMAND, *arguments], env=variables, stdout=subprocess.PIPE, stderr=slave, check=False)
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # how the end of a terminal reads
        while chunk := os.read(master, 65536):
            shown += chunk
    os.close(master)
    return shown.decode().splitlines()


@pytest.mark.process
def test_a_hint_is_as_wide_as_the_terminal_that_it_is_written_to(node: Node, conf: Cli) -> None:
    line = conf.fails("status", "nope")
    assert 80 < len(line) < 400
    assert lines_on_stderr(node, 400, "status", "nope") == [line.rstrip("\n")]
    narrow = lines_on_stderr(node, 60, "status", "nope")
    assert " ".join(narrow).split() == line.split()
    # Commands are not broken, wherever that leaves the end of a line.
    assert any(60 >= len(one) > 40 for one in narrow[:-1]) and len(narrow) > 2


WORDS = st.text(st.sampled_from("abc日/.-"), min_size=1, max_size=70)
TEXTS = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
TABLES = st.integers(1, 7).flatmap(lambda n: st.lists(st.lists(TEXTS, min_size=n, max_size=n), min_size=2, max_size=5))


@given(TABLES, st.integers(20, 120))
def test_no_word_is_lost_or_broken_and_no_line_is_padded(table: list[list[str]], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lines = on_a_screen(patch, width, lambda: print_table(table[0], table[1:], "none"))
    assert " ".join(lines).split() == " ".join(cell for row in table for cell in row).split()
    assert all(line == line.rstrip() for line in lines)


@given(st.integers(0, 10**18))
def test_a_size_has_few_digits(count: int) -> None:
    number, unit = size(count).split()
    assert len(number) <= 5 and float(number) < 1000
    factor = 1000 ** ["B", "kB", "MB", "GB", "TB", "PB", "EB"].index(unit)
    assert abs(float(number) * factor - count) <= factor * 0.051


@pytest.mark.parametrize(("count", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_999, "1.0 MB")])
def test_sizes(count: int, shown: str) -> None:
    assert size(count) == shown


def test_a_terminal_gets_the_tree_of_entries_in_colour(node: Node, conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory((b"d",)))
        replica.commit(lambda author: author.write((b"d", b"[red]\x1b"), b"12"))
    screen = pyte.Screen(200, 50)
    pyte.Stream(screen).feed(on_a_terminal(node, "show", "conf", TERM="xterm", NO_COLOR=""))
    (row,) = (number for number, line in enumerate(screen.display) if "2 B" in line)
    # What a person sees: one library writes a colour in one escape sequence, another one in two.
    star = screen.buffer[row][screen.display[row].index("*")]
    assert (star.fg, star.bold) == ("green", True)
    assert screen.display[row - 1].rstrip() == "    [red]\\x1b", (
        "names are shown as they are, below their directory, and cannot colour anything"
    )
    assert {screen.buffer[row - 1][column].fg for column in range(20)} == {"default"}
    assert "\x1b[" not in conf("show", "conf")
