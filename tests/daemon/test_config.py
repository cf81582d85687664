"""Homes, names and addresses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from basefs.daemon.config import DEFAULT_PORT, Home, parse_address
from basefs.errors import NotFound, UsageError
from basefs.gossip.members import join_host_port


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", ("10.0.0.1", DEFAULT_PORT)),
        ("10.0.0.1:5", ("10.0.0.1", 5)),
        ("node.example.org:7000", ("node.example.org", 7000)),
        ("[fd00::1]:7000", ("fd00::1", 7000)),
        ("[fd00::1]", ("fd00::1", DEFAULT_PORT)),
        ("fd00::1", ("fd00::1", DEFAULT_PORT)),
        ("host:65534", ("host", 65534)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected
    assert parse_address(join_host_port(*expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", ":5", "host:", "host:x", "host:0", "host:65535", "host:-1", "[]:5"),
        *("10.0.0.300", "10.0.0", "10.0.0.1.1:5", "10", "10.0.0.1 10.0.0.2", "a b:5"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    # 65535 leaves no port for sync, which takes the next one.
    with pytest.raises(UsageError):
        parse_address(text)


@pytest.mark.parametrize("name", ["etc", "a", "A-1_b.c", "x" * 64])
def test_names(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path)
    assert home.directory(name) == tmp_path / "fs" / name
    with pytest.raises(NotFound, match="basefs bootstrap"):
        home.existing(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", ".hidden", "x" * 65, "a b", "a\n", "é"])
def test_what_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        Home(tmp_path).directory(name)


def test_the_node_name_stays_and_differs_between_homes(tmp_path: Path) -> None:
    one, two = Home(tmp_path / "one"), Home(tmp_path / "two")
    assert one.node_name() == one.node_name()
    assert one.node_name() != two.node_name()


def test_a_home_that_was_copied_has_another_node_name(tmp_path: Path) -> None:
    name = Home(tmp_path / "one").node_name()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    other = Home(tmp_path / "two").node_name()
    assert other != name
    assert Home(tmp_path / "two").node_name() == other
    assert Home(tmp_path / "one").node_name() == name
    # The same place on another machine.
    another = tmp_path / "machine-id"
    another.write_text("another")
    assert Home(tmp_path / "one").node_name(another) != name


def test_a_node_name_of_before_is_kept(tmp_path: Path) -> None:
    (tmp_path / "node").write_text("abc123")
    assert Home(tmp_path).node_name().endswith("-abc123")
    assert Home(tmp_path).node_name().endswith("-abc123")
    (tmp_path / "node").write_text("")
    assert Home(tmp_path).node_name() == Home(tmp_path).node_name()


def test_the_environment_names_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASEFS_HOME", str(tmp_path / "here"))
    assert Home.from_environment().path == tmp_path / "here"
    monkeypatch.delenv("BASEFS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Home.from_environment().path == tmp_path / ".basefs"


def test_root_has_the_home_of_the_package_unless_it_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BASEFS_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("basefs.daemon.config.SYSTEM_HOME", tmp_path / "system")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert Home.from_environment().path == tmp_path / ".basefs"
    (tmp_path / "system").mkdir()
    assert Home.from_environment().path == tmp_path / "system"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert Home.from_environment().path == tmp_path / ".basefs"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (tmp_path / ".basefs").mkdir()
    assert Home.from_environment().path == tmp_path / ".basefs"
