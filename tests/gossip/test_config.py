"""The agent's configuration file, finding the binary, and its log lines."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import pytest

from basefs.errors import AgentError
from basefs.gossip.agent import parse_line
from basefs.gossip.binary import find_serf
from basefs.gossip.config import AgentConfig, write_config


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        path = write_config(tmp_path, {"rpc_auth": "old"})
        path.chmod(0o644)
        path = write_config(tmp_path, {"rpc_auth": "new"})
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {"rpc_auth": "new"}
    assert os.listdir(tmp_path) == ["serf.json"]


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "serf.json.new").symlink_to(victim)
    (tmp_path / "serf.json").symlink_to(victim)
    write_config(tmp_path, {"rpc_auth": "secret"})
    assert victim.read_text() == "mine"
    assert not (tmp_path / "serf.json").is_symlink()


def test_options_that_are_not_set_are_left_out() -> None:
    values = AgentConfig("a", "127.0.0.1:1").as_serf(5, "key", Path("/run"))
    assert values["rpc_addr"] == "127.0.0.1:5"
    assert not {"advertise", "interface", "keyring_file", "snapshot_path"} & values.keys()
    full = AgentConfig("a", "127.0.0.1:1", "1.2.3.4:5", "lo", encrypt_key="k", snapshot_path=Path("/s"))
    wanted = {"advertise": "1.2.3.4:5", "interface": "lo", "keyring_file": "/run/serf.keyring", "snapshot_path": "/s"}
    assert wanted.items() <= full.as_serf(5, "key", Path("/run")).items()


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(AgentError, match="profile"):
        AgentConfig("a", "127.0.0.1:1", profile="moon")


def test_no_binary_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentError, match="apt-get install serf") as caught:
        find_serf()
    assert "\n" not in str(caught.value)
    with pytest.raises(AgentError, match="/nowhere/serf"):
        find_serf("/nowhere/serf")
    binary = tmp_path / "serf"
    binary.touch(mode=0o755)
    assert find_serf() == find_serf(str(binary)) == str(binary)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("    2026/11/20 11:07:47 [WARN] agent: x\n", (logging.WARNING, "agent: x")),
        ("    2026/11/20 11:07:47 [ERR] serf: y [INFO] z\n", (logging.ERROR, "serf: y [INFO] z")),
        ("    2026/11/20 11:07:47 [NEW] serf: y\n", (logging.INFO, "serf: y")),
        (
            "    2026/11/20 11:07:47 [ERR] agent.ipc: Failed to stream query end to ipc.client: 127.0.0.1:1: x\n",
            (logging.DEBUG, "agent.ipc: Failed to stream query end to ipc.client: 127.0.0.1:1: x"),
        ),
        ("==> Serf agent running!\n", (logging.DEBUG, "Serf agent running!")),
        ("\t* Failed to join\n", (logging.CRITICAL, "* Failed to join")),
        ("\n", (logging.CRITICAL, "")),
    ],
)
def test_levels(line: str, expected: tuple[int, str]) -> None:
    assert parse_line(line, logging.CRITICAL) == expected
