"""Targets: NAME:/PATH, or a path in a mounted tree."""

from __future__ import annotations

import os

import pytest

from basefs.daemon.mounts import Mount, mount_at, mounts, resolve
from basefs.errors import UsageError
from basefs.management.target import Target, parse_changed, parse_name, parse_target
from tests.support.commands import Cli
from tests.support.helpers import ALICE
from tests.support.node import Node


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("conf", Target("conf", "/")),
        ("conf:/", Target("conf", "/")),
        ("conf:/a/b", Target("conf", "/a/b")),
        ("conf:/a:/b", Target("conf", "/a:/b")),
        ("conf:/\udcff\n", Target("conf", "/\udcff\n")),
        ("c.o_n-f", Target("c.o_n-f", "/")),
    ],
)
def test_names_and_paths(cli: Cli, text: str, expected: Target) -> None:
    assert parse_target(cli.home, text) == expected


@pytest.mark.parametrize("text", ["", "/", "/etc", "a/b", ":/x", "-x:/y", "conf:", "conf:x", "./conf:/x", "/x:/y"])
def test_what_is_neither(cli: Cli, text: str) -> None:
    with pytest.raises(UsageError):
        parse_target(cli.home, text)


def test_a_file_in_the_working_directory_does_not_hide_a_filesystem(conf: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (conf.base / "conf").touch()
    (conf.base / "other").touch()
    monkeypatch.chdir(conf.base)
    assert parse_target(conf.home, "conf") == Target("conf", "/")
    with pytest.raises(UsageError):
        parse_target(conf.home, "other")


def test_a_path_without_its_slash_is_corrected(cli: Cli) -> None:
    with pytest.raises(UsageError, match="write conf:/nginx"):
        parse_target(cli.home, "conf:nginx")


@pytest.mark.parametrize("text", ["conf", "conf:/"])
def test_the_whole_filesystem(cli: Cli, text: str) -> None:
    assert parse_name(cli.home, text) == "conf"


def test_a_path_where_the_whole_filesystem_is_meant(cli: Cli) -> None:
    with pytest.raises(UsageError, match=r"not a path: write conf$"):
        parse_name(cli.home, "conf:/a")


def test_links_and_dots_are_followed_above_the_last_component_only(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.base / "real").mkdir()
    (cli.base / "link").symlink_to("real")
    monkeypatch.chdir(cli.base / "real")
    assert resolve("../link") == cli.base / "link"
    assert resolve("../link/x") == cli.base / "real" / "x"
    assert resolve(".") == resolve("./x/..") == cli.base / "real"
    assert resolve("..") == cli.base
    assert resolve("/") == cli.base.parent.parent.parent


@pytest.mark.fuse
def test_paths_in_a_mount(node: Node, conf: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    point = node.mount("conf", point="mount \\ point")
    os.makedirs(os.fsencode(point) + b"/a/\xff\n")
    (point / "a" / "link").symlink_to("/etc")
    (conf.base / "to").symlink_to(point / "a")
    assert mount_at(str(point)) == Mount("conf", point)
    assert Mount("conf", point) in mounts()
    assert mount_at(str(point / "a")) is None
    for text, expected in (
        (str(point), "/"),
        (f"{point}/", "/"),
        (f"{point}/.cluster", "/.cluster"),
        (f"{point}/a/..", "/"),
        (f"{point}/a/link", "/a/link"),
        (f"{point}/a/missing", "/a/missing"),
        (f"{point}/a/\udcff\n", "/a/\udcff\n"),
        (f"{conf.base}/to/link", "/a/link"),
        (f"{conf.base}/to", "/a"),
    ):
        assert parse_target(conf.home, text) == Target("conf", expected)
    monkeypatch.chdir(point / "a")
    for text, expected in ((".", "/a"), ("..", "/"), ("link", "/a/link"), ("../.cluster", "/.cluster")):
        assert parse_target(conf.home, text) == Target("conf", expected)
    monkeypatch.chdir("/")


@pytest.mark.fuse
def test_commands_take_either(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    (point / "a").mkdir()
    conf("grant", point / "a", "alice", ALICE.public.hex())
    assert conf("keys", point / "a") == conf("keys", "conf:/a")
    assert conf("show", point / ".cluster") == conf("show", "conf:/.cluster")
    assert conf("revoke", point / "a", "alice") == "revoked: alice at /a\n"


@pytest.mark.fuse
def test_a_filesystem_and_a_path_of_one_name(node: Node, conf: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks takes the filesystem; what changes something guesses nothing."""
    point = node.mount("conf")
    (point / "conf").mkdir()
    (point / "other").mkdir()
    monkeypatch.chdir(point)
    assert parse_target(conf.home, "conf") == Target("conf", "/")
    assert parse_name(conf.home, "conf") == "conf"
    assert parse_target(conf.home, "./conf") == Target("conf", "/conf")
    assert parse_changed(conf.home, "other") == Target("conf", "/other")
    for command in (
        ("grant", "conf", "alice", ALICE.public.hex()),
        ("revoke", "conf", "alice"),
        ("revert", "conf", "--at", "now"),
    ):
        said = conf.fails(*command, code=2)
        assert "write conf:/ for all of the filesystem, ./conf for the path" in said
    conf("grant", "./conf", "alice", ALICE.public.hex())
    conf("grant", "conf:/", "alice", ALICE.public.hex())
    assert "revoked: alice at /\n" in conf("revoke", "conf:/", "alice")
    monkeypatch.chdir(conf.base)
    assert parse_changed(conf.home, "conf") == Target("conf", "/")
    monkeypatch.chdir("/")


@pytest.mark.fuse
def test_a_path_that_is_gone_is_named_from_inside_of_a_mount(
    node: Node, conf: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = node.mount("conf")
    (point / "file").write_text("x")
    first = node.query("log", "conf:/file")[0]["entry"]
    (point / "file").unlink()
    monkeypatch.chdir(point)
    assert conf("revert", "file", first) == "1 created\n"
    # An empty variable of a script is not the working directory.
    assert "is not a filesystem name" in conf.fails("revert", "", "--at", "now", code=2)
    assert "there is no filesystem nosuch" in conf.fails("status", "nosuch")
    monkeypatch.chdir("/")
