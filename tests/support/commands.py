"""What the tests of the command need: a home of their own, and the command in this process or as users start it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.daemon.config import Home
from basefs.daemon.keyfiles import default_keys
from basefs.log.keys import SigningKey
from basefs.management.main import main
from basefs.replica.replica import Replica
from tests.support.logs import check_daemons
from tests.support.mounts import temporary_directory
from tests.support.node import Node


class Cli:
    """The command line, run in this process; for what does not start a daemon.

    Attributes:
        base: an empty directory, for whatever a test needs.
        home: its BASEFS_HOME.
    """

    def __init__(self, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.base = base
        self.home = Home(base / "home")
        self.capsys = capsys

    def run(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command."""
        self.capsys.readouterr()
        code: object = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        out, err = self.capsys.readouterr()
        assert isinstance(code, int)
        return code, out, err

    def __call__(self, *arguments: object) -> str:
        """What a command prints that succeeds without a word on stderr."""
        code, out, err = self.run(*arguments)
        assert (code, err) == (0, "")
        assert "\x1b" not in out
        return out

    def empty(self, *arguments: object) -> str:
        """What a command says on stderr that succeeds and has nothing to print."""
        code, out, err = self.run(*arguments)
        assert (code, out, err.count("\n")) == (0, "", 1), err
        return err

    def fails(self, *arguments: object, code: int = 1) -> str:
        """The one line with which a command fails."""
        found, out, err = self.run(*arguments)
        assert (found, out, err.count("\n")) == (code, "", 1), err
        assert err.startswith("basefs: ")
        return err

    def misused(self, *arguments: object) -> str:
        """What a command says about a command line that it cannot read."""
        code, out, err = self.run(*arguments)
        assert (code, out) == (2, "")
        assert "Traceback" not in err
        return err.splitlines()[-1]

    @contextlib.contextmanager
    def replica(self, name: str, *keys: SigningKey) -> Iterator[Replica]:
        """The log of a filesystem that is not running, with these keys or the default one."""
        replica = Replica(self.home.existing(name), keys or default_keys(self.home))
        try:
            yield replica
        finally:
            replica.close()


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory, with BASEFS_HOME in it."""
    with temporary_directory() as directory:
        monkeypatch.setenv("BASEFS_HOME", str(directory / "home"))
        yield directory


@pytest.fixture
def cli(base: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """The command line in this process."""
    before = signal.getsignal(signal.SIGPIPE)
    yield Cli(base, capsys)
    signal.signal(signal.SIGPIPE, before)


@pytest.fixture
def conf(cli: Cli) -> Cli:
    """The command line, and a filesystem `conf` whose only key is the node's."""
    cli("genkey")
    cli("bootstrap", "conf", "-k", cli.home.default_key)
    return cli


@pytest.fixture
def node(base: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """The command as users start it, in the same home; whatever it starts has an end."""
    with Node.temporary(base) as made:
        yield made
    check_daemons(request, [made])
