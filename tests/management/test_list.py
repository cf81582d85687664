"""`basefs list`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from contextlib import closing

import pytest

from tests.support.commands import Cli
from tests.support.node import Node


def rows(cli: Cli) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json.loads(cli("list", "--json"))}


def test_nothing(cli: Cli) -> None:
    assert "basefs bootstrap NAME" in cli.empty("list")
    assert json.loads(cli("list", "--json")) == []


def test_a_stopped_filesystem(conf: Cli) -> None:
    row = rows(conf)["conf"]
    with conf.replica("conf") as replica:
        assert (row["identity"], row["entries"]) == (replica.identity.hex(), 4)
    assert (row["state"], row["mountpoint"], row["damaged"]) == ("stopped", None, 0)
    cells = conf("list").rstrip("\n").split("\t")
    assert cells[:4] == ["conf", "stopped", "-", "4"]
    assert cells[5] == row["identity"]


def test_several_are_sorted(cli: Cli) -> None:
    for name in ("b", "a", "C"):
        cli("bootstrap", name)
    assert [line.split("\t")[0] for line in cli("list").splitlines()] == ["C", "a", "b"]


def test_a_running_filesystem(conf: Cli, node: Node) -> None:
    node.basefs("run", "conf", "-s")
    assert rows(conf)["conf"]["state"] == "running"


def test_a_dead_daemon(conf: Cli, node: Node) -> None:
    node.basefs("run", "conf", "-s")
    node.kill("conf")
    row = rows(conf)["conf"]
    assert (row["state"], row["entries"]) == ("dead", 4)


@pytest.mark.fuse
def test_a_mounted_filesystem(conf: Cli, node: Node) -> None:
    point = node.mount("conf")
    row = rows(conf)["conf"]
    assert (row["state"], row["mountpoint"], row["entries"]) == ("mounted", str(point), 4)
    assert conf("list").split("\t")[1:4] == ["mounted", str(point), "4"]


def test_a_damaged_filesystem_does_not_hide_the_others(conf: Cli) -> None:
    conf("bootstrap", "other")
    (conf.home.directory("conf") / "log.db").write_bytes(b"this is no database")
    found = rows(conf)
    assert (found["conf"]["state"], found["other"]["state"]) == ("damaged", "stopped")
    assert found["conf"]["error"]
    _, out, err = conf.run("list")
    assert out.startswith("conf\tdamaged\t")
    assert err.startswith("basefs: conf: ")
    with closing(sqlite3.connect(conf.home.directory("other") / "log.db")) as db:
        db.execute("PRAGMA user_version = 99")
    assert rows(conf)["other"]["state"] == "unreadable"
    assert "upgrade BaseFS" in conf.run("list")[2]


@pytest.mark.fuse
def test_a_full_disk_is_told_by_its_name(conf: Cli) -> None:
    """Not as an input/output error, which is what SQLite says where it has no room for the index of its log."""
    disk = conf.base / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    try:
        node = Node(disk)
        node.basefs("bootstrap", "conf")
        with contextlib.suppress(OSError), (disk / "rest").open("wb") as file:
            while True:
                file.write(bytes(1024))
                file.flush()
        for command in ("show", "check", "log", "run"):
            target = "conf:/.cluster" if command == "log" else "conf"
            done = node.spawn(command, target, *(["-s"] if command == "run" else []))
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
            assert "is full: free some space" in done.stderr or "No space left on device: /" in done.stderr
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
