"""Commands that tests fork do what those do that users start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.support.commands import Cli
from tests.support.forked import CommandServer
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import COMMAND, Node, has_ended
from tests.support.patience import DEADLINE


@pytest.fixture(scope="module")
def server() -> Iterator[CommandServer]:
    with CommandServer() as made:
        yield made


@pytest.mark.process
@pytest.mark.parametrize(
    "words",
    [
        ["show", "conf"],
        ["list", "--json"],
        ["bootstrap", "conf"],
        ["genkey", "some.key", "--bogus"],
        ["log", "conf:/not \udcff there"],
        ["status", "nothing"],
        ["--help"],
    ],
)
def test_streams_and_exit_code_are_those_of_a_started_one(
    server: CommandServer, conf: Cli, words: Sequence[str]
) -> None:
    environment = {**os.environ, "BASEFS_HOME": str(conf.home.path)}
    started = subprocess.run(
        [COMMAND, *words],
        env=environment,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=DEADLINE,
    )
    assert server.suits(environment)
    forked = server.run(words, str(conf.home.path), None, DEADLINE)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


@pytest.mark.process
def test_directory_and_umask_are_those_of_the_caller(
    server: CommandServer, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base)
    before = os.umask(0)
    modes = []
    try:
        for mask in (0o022, 0o077):
            os.umask(mask)
            # Directories above a home have the modes that the umask leaves.
            assert server.run(["genkey"], f"above{mask}/home", None, DEADLINE).returncode == 0
            modes.append((base / f"above{mask}").stat().st_mode & 0o777)
    finally:
        os.umask(before)
    assert modes == [0o755, 0o700]


@pytest.mark.process
def test_a_command_that_hangs_is_ended(server: CommandServer, base: Path) -> None:
    os.mkfifo(base / "pipe")
    with pytest.raises(subprocess.TimeoutExpired):
        server.run(["bootstrap", "conf", "-k", str(base / "pipe")], str(base / "home"), None, 0.5)
    assert server.run(["list"], str(base / "home"), None, DEADLINE).returncode == 0


@pytest.mark.process
def test_a_daemon_shows_the_home_that_it_has(server: CommandServer, conf: Cli) -> None:
    node, other = Node(conf.base), Node(conf.base / "other")
    try:
        assert server.run(["run", "conf", "-s"], str(node.home), None, DEADLINE).returncode == 0
        pid = node.daemon("conf")
        environment = psutil.Process(pid).environ()
        assert environment.pop("BASEFS_HOME") == str(node.home)
        assert environment.keys() == os.environ.keys() - {"BASEFS_HOME", "PYTEST_CURRENT_TEST"}
        # By which nodes find what they have to end.
        other.clean_up()
        assert not has_ended(pid)
    finally:
        node.clean_up()
    assert has_ended(pid)


def test_another_environment_is_not_forked(server: CommandServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.suits(os.environ)
    monkeypatch.setenv("PYTHONPATH", "elsewhere", prepend=":")
    assert not server.suits(os.environ)


@pytest.mark.cluster
def test_it_runs_in_the_network_of_its_node(tmp_path: Path) -> None:
    with NamespaceNetwork(tmp_path, 1) as network:
        (node,) = network.nodes
        assert node.address is not None and node.namespace is not None
        started = Node(node.base, node.address, namespace=node.namespace)
        said = started.spawn("get", "conf", "10.77.9.9:18374").stderr
        assert "No route to host" in said
        network.unplug(node)
        assert "Network is unreachable" in started.spawn("get", "conf", "10.77.9.9:18374").stderr
