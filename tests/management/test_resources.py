"""`basefs resources`."""

from __future__ import annotations

import csv
import json
import subprocess

from basefs.management.resources import COLUMNS
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.node import COMMAND, Node


def test_of_what_does_not_run(conf: Cli) -> None:
    assert "conf is not running" in conf.fails("resources", "conf", "--json")
    assert "there is no filesystem other" in conf.fails("resources", "other", "--json")


def test_a_single_node(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    (row,) = [json.loads(line) for line in conf("resources", "conf", "--once", "--json").splitlines()]
    assert tuple(row) == COLUMNS
    assert row["entries"] == 4 and row["daemon_memory"] > 1_000_000 and row["daemon_threads"] > 1
    assert row["daemon_files"] > 5 and row["daemon_cpu_percent"] is not None
    # Without a cluster there is no traffic, and that is not the same as none.
    assert row["serf_memory"] is None and row["sync_sent"] is None


def test_in_a_pipe_and_in_a_file(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    lines = [line.split("\t") for line in conf("resources", "conf", "-n", "2").splitlines()]
    assert tuple(lines[0]) == COLUMNS and len(lines) == 3
    assert float(lines[2][0]) > float(lines[1][0])
    path = conf.base / "usage.csv"
    for _ in range(2):
        assert conf("resources", "conf", "--once", "--log", path) == ""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 2 and [row["entries"] for row in rows] == ["4", "4"]


def test_a_file_that_cannot_be_written(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert "No such file or directory" in conf.fails("resources", "conf", "--log", conf.base / "no" / "file")


def test_a_daemon_that_ends_meanwhile(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    process = subprocess.Popen(
        [COMMAND, "resources", "conf", "--json"],
        env=node.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and json.loads(process.stdout.readline())["entries"] == 4
    node.basefs("unmount", "conf")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("basefs: ") and err.count("\n") == 1


def test_on_a_terminal(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    size = {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    shown = on_a_terminal(node, "resources", "conf", "--once", **size)
    for text in ("context switches", "Serf UDP", "received", "entries"):
        assert text in shown
