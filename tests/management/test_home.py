"""The home of a node as commands find it, and addresses as command lines write them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.daemon.config import Home, parse_address
from basefs.errors import UsageError
from basefs.gossip.members import join_host_port
from tests.support.commands import Cli


@pytest.fixture
def home(base: Path) -> Home:
    return Home.from_environment()


@pytest.mark.parametrize("text", ["[]", "[::1", "::1]", "[::1]x:7", "[::1]:", "x[::1]:7"])
def test_brackets_come_in_pairs(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        parse_address(text)


@given(st.ip_addresses(), st.integers(1, 65534))
def test_every_address_survives(address: object, port: int) -> None:
    assert parse_address(join_host_port(str(address), port)) == (str(address), port)


def test_a_relative_home_is_found_from_everywhere(monkeypatch: pytest.MonkeyPatch, base: Path) -> None:
    monkeypatch.chdir(base)
    monkeypatch.setenv("BASEFS_HOME", "relative")
    home = Home.from_environment()
    monkeypatch.chdir("/")
    assert home.path == base / "relative"


def test_what_is_here(home: Home) -> None:
    assert home.names() == []
    for name in ("conf", ".get-unfinished", "a.b"):
        (home.path / "fs" / name).mkdir(parents=True)
        (home.path / "fs" / name / "log.db").touch()
    (home.path / "fs" / "empty").mkdir()
    assert home.names() == ["a.b", "conf"]
    assert home.existing("conf") == home.path / "fs" / "conf"


def test_the_other_home_of_root_is_named(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    system, own = cli.base / "system", cli.base / ".basefs"
    monkeypatch.setenv("HOME", str(cli.base))
    monkeypatch.setattr("basefs.daemon.config.SYSTEM_HOME", system)
    monkeypatch.setenv("BASEFS_HOME", str(system))
    cli("bootstrap", "svc")
    own.mkdir()
    monkeypatch.delenv("BASEFS_HOME")
    assert f"there is no filesystem svc in {own}; it is in {system}: set BASEFS_HOME={system}" in cli.fails(
        "log", "svc:/"
    )
    for command in ("list", "status"):
        assert f"this is {own}; for svc set BASEFS_HOME={system}" in cli.run(command)[2]
    monkeypatch.setenv("BASEFS_HOME", str(own))
    assert "svc" not in cli.run("list")[2], "it was chosen"


def test_directories_are_for_their_owner_only(home: Home) -> None:
    home.log_path("conf")
    for directory in (home.run_directory(), home.path / "logs"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
