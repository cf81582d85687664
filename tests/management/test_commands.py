"""What every command has in common: walked over in click's own tree, so that a new one is held to it as well."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import click
import pytest

from basefs.management.main import COMMANDS, basefs
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.node import Node

#: Commands that have nothing to tell but that it is done, or print what is not theirs.
WITHOUT_JSON = {"mount", "unmount", "remove", "run", "serf", "completion", "rekey"}
#: Commands that make what they name, or name no filesystem.
WITHOUT_NAME = {"genkey", "bootstrap", "get", "join", "import", "list", "installserf", "completion"}
#: What to give for the arguments behind the first one.
_REST: dict[str, list[str]] = {
    "mount": ["/"],
    "grant": ["key", "ab" * 32],
    "revoke": ["key"],
    "expel": ["key"],
    "recover": ["newkey"],
    "revert": ["abcdef"],
    "serf": ["members"],
    "export": ["-"],
}
_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9\d|10\d)(?:;\d+)*m")


def command_of(name: str) -> click.Command:
    """A command of the tree."""
    command = basefs.get_command(click.Context(basefs), name)
    assert command is not None
    return command


def examples_of(name: str) -> list[str]:
    """The command lines at the end of a command's help."""
    epilog = command_of(name).epilog
    assert epilog is not None, f"basefs {name} has no examples"
    assert epilog.startswith("\b\nExamples:\n")
    return [line.strip() for line in epilog.splitlines()[2:]]


def unknown(name: str) -> list[str]:
    """Arguments that name a filesystem which is not there."""
    needs_path = name in ("grant", "revoke", "revert", "log", "diff", "cat")
    return [name, "nosuch:/x" if needs_path else "nosuch", *_REST.get(name, [])]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_it_does_and_shows_how(cli: Cli, name: str) -> None:
    printed = cli(name, "--help")
    first = next(line for line in (command_of(name).help or "").splitlines() if line)
    assert first[0].isupper()
    assert "\n  Examples:\n" in printed
    for parameter in command_of(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"basefs {name} {parameter.opts[0]} has no help"
    for line in examples_of(name):
        assert f"    {line}\n" in printed


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_command_lines_that_it_understands(name: str) -> None:
    for line in examples_of(name):
        match = re.search(r"basefs (\w+)([^|)]*)", line)
        assert match is not None and match[1] == name, line
        parent = click.Context(basefs, **basefs.context_settings)
        # Raises where an option or an argument does not exist, is missing, or makes no sense.
        command_of(name).make_context(name, shlex.split(match[2]), parent=parent)


@pytest.mark.parametrize("name", COMMANDS)
def test_there_is_json(name: str) -> None:
    options = {option for parameter in command_of(name).params for option in parameter.opts}
    assert ("--json" in options) == (name not in WITHOUT_JSON)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_NAME))
def test_a_name_that_is_not_there_is_one_line(cli: Cli, name: str) -> None:
    said = cli.fails(*unknown(name))
    assert "there is no filesystem nosuch" in said
    # And the way out.
    assert "basefs bootstrap nosuch" in said and "basefs get nosuch" in said


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_NAME))
def test_a_name_that_is_none_is_wrong_usage(cli: Cli, name: str) -> None:
    _, target, *rest = unknown(name)
    path = target.partition(":")[2]
    said = cli.fails(name, "no?such" + (f":{path}" if path else ""), *rest, code=2)
    assert "is not a filesystem name" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_wrong_usage(cli: Cli, name: str) -> None:
    assert "no such option" in cli.misused(name, "--no-such-option").lower()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("list", "status", "doctor")])
def test_a_missing_argument_is_wrong_usage(cli: Cli, name: str) -> None:
    if any(parameter.required for parameter in command_of(name).params):
        code, out, err = cli.run(name)
        assert (code, out) == (2, "")
        assert "missing argument" in err and "Traceback" not in err


#: Listings, with arguments under which they have something to list.
LISTINGS: dict[str, list[str]] = {
    "list": [],
    "status": ["conf"],
    "show": ["conf"],
    "log": ["conf:/f"],
    "diff": ["conf:/f"],
    "conflicts": ["conf"],
    "keys": ["conf"],
    "check": ["conf"],
}


@pytest.fixture
def filled(conf: Cli) -> Cli:
    """A filesystem with a name that would do harm on a terminal."""
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write((b"f",), b"x"))
        replica.commit(lambda author: author.write((b"\x1b[31mred\n",), b"x"))
    return conf


@pytest.mark.parametrize("name", LISTINGS)
def test_listings_are_plain_in_a_pipe_and_json_on_request(filled: Cli, name: str) -> None:
    code, out, err = filled.run(name, *LISTINGS[name])
    assert code == 0
    assert "\x1b" not in out + err
    found: Any = json.loads(filled(name, *LISTINGS[name], "--json"))
    assert isinstance(found, list | dict)


@pytest.mark.parametrize("name", LISTINGS)
def test_a_terminal_gets_a_table_and_colours_only_where_they_are_wanted(filled: Cli, node: Node, name: str) -> None:
    shown = on_a_terminal(node, name, *LISTINGS[name], code=None)
    assert "\t" not in shown and "\x1b[31mred" not in shown
    assert not _COLOUR.search(on_a_terminal(node, name, *LISTINGS[name], code=None, NO_COLOR="1"))


def test_doctor_has_colours_and_obeys(filled: Cli, node: Node) -> None:
    filled.home.default_key.chmod(0o644)
    assert _COLOUR.search(on_a_terminal(node, "doctor", code=None))
    plain = on_a_terminal(node, "doctor", code=None, NO_COLOR="1")
    assert not _COLOUR.search(plain) and "is readable by other users" in plain


def test_making_things_tells_what_was_made(cli: Cli) -> None:
    key = json.loads(cli("genkey", "--json"))
    made = json.loads(cli("bootstrap", "conf", "--json"))
    assert made["identity"] == json.loads(cli("list", "--json"))[0]["identity"]
    assert json.loads(cli("keys", "--json"))[0]["fingerprint"] == key["fingerprint"]
    written = json.loads(cli("export", "conf", cli.base / "file", "--json"))
    assert written["bytes"] == (cli.base / "file").stat().st_size
    read = json.loads(cli("import", "copy", cli.base / "file", "--json"))
    assert (read["identity"], read["new"], read["problems"]) == (made["identity"], written["entries"], [])
