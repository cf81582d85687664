"""The `basefs` command as a whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import click
import pytest

from basefs import __version__
from basefs.daemon.config import Home
from basefs.errors import NotFound
from basefs.management.main import COMMANDS, GROUPS, load
from tests.support.commands import Cli
from tests.support.node import COMMAND, Node


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_with_a_command_of_its_name(name: str) -> None:
    command = load(name)
    assert isinstance(command, click.Command)
    assert command.name == name


#: Commands that people and scripts type again and again, and what they do without: it takes longer to import than they
#: take on a running daemon.
OFTEN = ("list", "status", "members", "show", "log", "diff", "cat", "watch", "keys", "grant", "revoke", "unmount")
HEAVY = ("asyncio", "sqlite3", "psutil", "basefs.replica", "basefs.sync")


@pytest.mark.process
def test_commands_on_a_running_daemon_import_little() -> None:
    program = (
        "import json, sys; from basefs.management.main import load; "
        f"[load(name) for name in {OFTEN}]; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_explains_itself(cli: Cli, name: str, option: str) -> None:
    printed = cli(name, option)
    assert printed.startswith(f"Usage: basefs {name} ")
    assert len(printed.splitlines()) > 3


def test_the_command_lists_all_of_them_in_groups(cli: Cli) -> None:
    help = cli("--help")
    for title, names in GROUPS.items():
        listed = help.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in listed.splitlines() if line[2] != " "] == list(names)
        # A text that does not fit goes on in the next line.
        assert "..." not in listed
    assert "Revoke the grants of a key on a path, and print the grants that fall with them" in " ".join(help.split())


@pytest.mark.parametrize("word", ["--version", "-v", "version"])
def test_the_version(cli: Cli, word: str) -> None:
    assert cli(word) == f"basefs {__version__}\n"


def test_the_help(cli: Cli) -> None:
    assert cli() == cli("help") == cli("-h")
    assert cli("help", "log") == cli("log", "--help")


def test_umount_is_unmount(cli: Cli) -> None:
    assert "Stop a filesystem" in cli("umount", "--help")


def test_an_error_is_one_line_whatever_it_says(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(home: object) -> None:
        raise NotFound("first line\nsecond\tline")

    monkeypatch.setattr(Home, "names", fail)
    assert cli.fails("list") == "basefs: first line second line\n"


def test_an_error_of_the_system_is_one_line(conf: Cli) -> None:
    run = conf.home.run_directory()
    run.rmdir()
    run.touch()
    assert conf.fails("list") == f"basefs: File exists: {run}\n"


def test_a_bug_has_its_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(home: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Home, "names", fail)
    with pytest.raises(ZeroDivisionError):
        cli("list")


@pytest.mark.parametrize("arguments", [("show", "conf:/nothing"), ("unmount", "conf"), ("grant", "conf", "a", "b")])
def test_the_installed_command_fails_with_one_line(node: Node, conf: Cli, arguments: tuple[str, ...]) -> None:
    done = node.spawn(*arguments)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.startswith("basefs: ")
    assert done.stderr.count("\n") == 1


def test_an_environment_without_a_home_is_in_the_users(conf: Cli, node: Node) -> None:
    environment = {**node.environment, "HOME": str(conf.base / "user")}
    del environment["BASEFS_HOME"]
    (conf.base / "user").mkdir()
    subprocess.run([COMMAND, "genkey"], env=environment, stdout=subprocess.DEVNULL, check=True)
    assert (conf.base / "user" / ".basefs" / "key.pub").exists()


def test_sigpipe_is_restored(cli: Cli) -> None:
    cli.empty("list")
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL


def test_help_of_a_command_and_of_itself(cli: Cli) -> None:
    assert cli("help") == cli("--help") == cli("help", "help") == cli("help", "version")
    assert cli("help", "grant") == cli("grant", "--help")
    assert cli("help", "umount").splitlines()[1:] == cli("unmount", "--help").splitlines()[1:]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_output_and_no_error(node: Node, closed: str) -> None:
    for command in ("list", "status", "doctor --help"):
        done = subprocess.run(
            ["sh", "-c", f"{COMMAND} {command} {closed}"],
            env=node.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        assert "Traceback" not in done.stderr


def test_an_output_without_room_is_called_that(node: Node) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{COMMAND} list --help > /dev/full"],
        env=node.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "basefs: No space left on device: standard output\n")
