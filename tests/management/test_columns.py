"""On a terminal of 80 columns nothing is broken up by the terminal itself."""

from __future__ import annotations

import re

import pytest

from basefs.log.keys import SigningKey
from basefs.management.main import COMMANDS
from basefs.view.author import Author
from basefs.view.draft import Draft
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.helpers import make_key, path
from tests.support.node import Node

COLUMNS = 80
#: Control sequences, such as colours.
_CONTROL = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
#: The only lines that may be longer: one word, as a path or a key, and a command to paste.
_WHOLE = re.compile(r"\s*(\S+|'?basefs .*)")


def too_long(shown: str) -> list[str]:
    """The lines that are longer than the terminal and need not be; it shows what came behind the last \\r."""
    lines = [line.rsplit("\r")[-1] for line in _CONTROL.sub("", shown).replace("\r\n", "\n").split("\n")]
    return [line for line in lines if len(line) > COLUMNS and not _WHOLE.fullmatch(line)]


SITE = path("/nginx/sites-enabled/default")


def _write_beside(author: Author, key: SigningKey) -> Draft:
    """A second first version of the site, as another node makes it that has not seen the first one."""
    draft = author.write((*SITE[:-1], b"other"), b"two")
    written = draft.entries[0]
    beside = key.sign(written.parent, written.made, written.action, SITE[-1], written.content, written.extensions)
    return Draft([beside], draft.blocks)


@pytest.fixture
def lively(conf: Cli) -> Cli:
    """A filesystem with a deep tree, a conflict, and a key with a long name."""
    with conf.replica("conf") as replica:
        key = replica.keys[0]
        for text in ("/nginx", "/nginx/sites-enabled"):
            replica.commit(lambda author, text=text: author.make_directory(path(text)))
        replica.commit(lambda author: author.write(SITE, b"one"))
        replica.commit(lambda author: _write_beside(author, key))
    conf("grant", "conf:/nginx", "the webmaster of the whole cooperative", make_key("web").public.hex())
    return conf


#: What people type; each ends with a code that is no matter here.
TYPED = [
    "list",
    "doctor conf",
    "status conf",
    "members conf",
    "keys",
    "keys conf",
    "keys conf --all",
    "keys conf:/nginx -d",
    "show conf",
    "show -l conf",
    "log -r conf:/nginx",
    "log -r conf:/nginx --by nobody",
    "conflicts conf",
    "conflicts conf --diff",
    "conflicts conf --accept --all",
    "revert conf:/nginx --at 1h --dry-run",
    "grant conf:/ webmaster nowhere.pub",
    "revoke conf:/nginx webmaster --dry-run",
    "recover conf nowhere.key",
    "invite conf --expires 400d",
    "check conf",
    "mount conf nowhere",
    "export conf .",
    "nothing",
    "bootstrap other --threshold 2",
    "remove conf",
]


def test_what_commands_print_fits(lively: Cli, node: Node) -> None:
    shown = {typed: on_a_terminal(node, *typed.split(), code=None, COLUMNS=str(COLUMNS)) for typed in TYPED}
    assert {typed: lines for typed, text in shown.items() if (lines := too_long(text))} == {}
    assert all(shown.values())


def test_what_a_new_filesystem_needs_fits(cli: Cli, node: Node) -> None:
    recovery = [word for name in "abc" for word in ("--recovery", make_key(name).public.hex())]
    for arguments in (["genkey"], ["bootstrap", "conf"], ["bootstrap", "big", *recovery], ["keys", "big"]):
        shown = on_a_terminal(node, *arguments, COLUMNS=str(COLUMNS))
        assert shown and not too_long(shown)


def test_what_a_running_filesystem_prints_fits(conf: Cli, node: Node) -> None:
    node.basefs("run", "conf", "-s", "--handler", "/nginx/sites-enabled/**=systemctl reload nginx", "--handler", "true")
    for command in ("list", "status", "doctor", "members", "blocks", "rekey"):
        name = () if command == "list" else ("conf",)
        shown = on_a_terminal(node, command, *name, code=None, COLUMNS=str(COLUMNS))
        assert shown and not too_long(shown)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_fits(cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    shown = cli(command, "--help")
    assert not too_long(shown)
    assert not re.search(r"[a-zA-Z]-$", shown, re.MULTILINE), "a name is broken at its hyphen"
