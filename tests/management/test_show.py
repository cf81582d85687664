"""`basefs show`."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.support.commands import Cli
from tests.support.helpers import path
from tests.support.names import make_symlink
from tests.support.node import COMMAND, Node


@pytest.fixture
def tree(conf: Cli) -> Cli:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d"), mode=0o700))
        replica.commit(lambda author: author.write(path("/d/f"), b"12345", mtime=0))
        replica.commit(lambda author: make_symlink(author, path("/d/l"), b"f"))
    return conf


def test_all_live_paths(tree: Cli) -> None:
    rows = [line.split("\t") for line in tree("show", "-l", "conf").splitlines()]
    assert [(kind, mode, size, where) for kind, mode, size, _, _, where in rows] == [
        ("directory", "0755", "0 B", "/"),
        ("file", "0644", "0 B", "/.cluster"),
        ("directory", "0700", "0 B", "/d"),
        ("file", "0644", "5 B", "/d/f"),
        ("symlink", "0777", "1 B", "/d/l"),
    ]


def test_below_a_path(tree: Cli) -> None:
    rows = json.loads(tree("show", "-l", "conf:/d", "--json"))
    assert [row["path"] for row in rows] == ["/d", "/d/f", "/d/l"]
    with tree.replica("conf") as replica:
        assert rows[1]["entry"] == replica.attributes(path("/d/f")).entry.hex()
    assert (rows[1]["mtime"], rows[1]["size"], rows[1]["writable"]) == (0, 5, True)
    assert [row["path"] for row in json.loads(tree("show", "-l", "conf:/d/f", "--json"))] == ["/d/f"]
    assert tree("show", "-l", "conf:/d/") == tree("show", "-l", "conf:/d") == tree("show", "-l", "conf://d")


def test_a_path_that_does_not_exist(tree: Cli) -> None:
    assert "/d/g does not exist" in tree.fails("show", "-l", "conf:/d/g")
    assert "/d/f is not a directory" in tree.fails("show", "-l", "conf:/d/f/g")


def test_a_filesystem_that_does_not_exist(cli: Cli) -> None:
    assert "there is no filesystem conf" in cli.fails("show", "-l", "conf")
    assert "there is no filesystem conf" in cli.fails("show", "-l", "conf:/")


def test_a_running_filesystem_answers_itself(tree: Cli, node: Node) -> None:
    before = tree("show", "-l", "conf")
    node.basefs("run", "conf", "-s")
    assert tree("show", "-l", "conf") == before
    assert "/d/g does not exist" in tree.fails("show", "-l", "conf:/d/g")


def test_names_that_would_break_lines_or_are_not_utf8(conf: Cli, node: Node) -> None:
    names = (b"new\nline", b"tab\t", b"\xff\xfe", b"\x1b[31mred", "ñ".encode(), b" ")
    with conf.replica("conf") as replica:
        for name in names:
            replica.commit(lambda author, name=name: author.write((name,), b""))
    printed = node.basefs("show", "-l", "conf")
    shown = sorted(line.split("\t")[-1] for line in printed.splitlines())
    assert shown == sorted(["/", "/.cluster", "/new\\nline", "/tab\\t", "/\\xff\\xfe", "/\\x1b[31mred", "/ñ", "/ "])
    rows = json.loads(node.basefs("show", "-l", "conf", "--json"))
    told = {row["path"].encode("utf-8", "surrogateescape") for row in rows}
    assert told == {b"/", b"/.cluster", *(b"/" + name for name in names)}


def test_odd_names_are_understood_as_arguments(conf: Cli, node: Node) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write((b"\xff\n",), b"123"))
    assert node.basefs("show", "-l", b"conf:/\xff\n").split("\t")[2] == "3 B"
    done = node.spawn("show", "-l", b"conf:/\xfe\n")
    assert (done.returncode, done.stderr) == (1, "basefs: /\\xfe\\n does not exist\n")


def test_a_reader_that_goes_away_is_no_error(conf: Cli, node: Node) -> None:
    with conf.replica("conf") as replica:
        for number in range(50):
            replica.commit(lambda author, number=number: author.write((b"n" * 200 + b"%d" % number,), b""))
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [COMMAND, "show", "-l", "conf"], env=node.environment, stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_the_tree_of_entries(tree: Cli) -> None:
    with tree.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/d/f"), b"new"))
        replica.commit(lambda author: author.remove(path("/d/l"), directory=False))
    rows = [line.split("\t") for line in tree("show", "conf:/d").splitlines()]
    assert [(row[0], row[2], row[-1]) for row in rows] == [
        (".", "mkdir", "/d"),
        ("*", "attributes", "/d"),
        (".", "write", "/d/f"),
        ("*", "write", "/d/f"),
        ("^", "slink", "/d/l"),
        ("*", "delete", "/d/l"),
    ]
    told = json.loads(tree("show", "conf:/d/f", "--json"))
    assert [row["standing"] for row in told] == ["past", "current"]
    assert told[1]["parent"] == told[0]["entry"]
    assert "the log has nothing at /x" in tree.fails("show", "conf:/x")
