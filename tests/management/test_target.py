"""Targets: NAME:/PATH, or a path in a mounted tree."""

from __future__ import annotations

import os

import pytest

from basefs.daemon.mounts import Mount, mount_at, mounts, resolve
from basefs.errors import UsageError
from basefs.management.target import Target, parse_target, require_path
from tests.support.commands import Cli
from tests.support.node import Node


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("conf", Target("conf", None)),
        ("conf:/", Target("conf", "/")),
        ("conf:/a/b", Target("conf", "/a/b")),
        ("conf:/a:/b", Target("conf", "/a:/b")),
        ("conf:/\udcff\n", Target("conf", "/\udcff\n")),
        ("c.o_n-f", Target("c.o_n-f", None)),
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
    assert parse_target(conf.home, "conf") == Target("conf", None)
    with pytest.raises(UsageError):
        parse_target(conf.home, "other")


def test_a_path_is_required() -> None:
    assert require_path(Target("conf", "/a")) == "/a"
    with pytest.raises(UsageError, match="write conf:/PATH"):
        require_path(Target("conf", None))


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
    conf("grant", point / "a", "alice", "11" * 32)
    assert conf("keys", point / "a") == conf("keys", "conf:/a")
    assert conf("show", point / ".cluster") == conf("show", "conf:/.cluster")
    assert conf("revoke", point / "a", "alice") == "alice\t/a\n"
