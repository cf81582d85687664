"""With what each command ends, as the table of docs/commands.md has it."""

from __future__ import annotations

import pytest

from basefs.log.keys import SigningKey
from basefs.management.errors import ExitCode
from basefs.management.main import COMMANDS
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.helpers import ALICE, BOB, path
from tests.support.node import Node

DONE, FAILED, WRONG = ExitCode.DONE, ExitCode.FAILED, ExitCode.WRONG_USAGE

#: Each command -> command lines, with the code with which they end.  `conf` is there, with a file /f in two revisions,
#: and does not run; alice may write; the working directory is empty but for `junk`.
LINES: dict[str, list[tuple[str, ExitCode]]] = {
    "genkey": [("genkey other", DONE), ("genkey -f nowhere/key", FAILED), ("genkey a b", WRONG)],
    "bootstrap": [("bootstrap new", DONE), ("bootstrap conf", FAILED), ("bootstrap a/b", WRONG)],
    "get": [("get conf 127.0.0.1:1", FAILED), ("get x 127.0.0.1:1", FAILED), ("get x 127.0.0.1 --id 12", WRONG)],
    "join": [("join x ./nowhere", WRONG), ("join x ./junk", WRONG), ("join a/b c/d", WRONG)],
    "mount": [("mount conf nowhere", FAILED), ("mount nosuch .", FAILED), ("mount conf . --wait -s", WRONG)],
    "unmount": [("unmount conf", FAILED), ("unmount nosuch", FAILED), ("unmount conf --timeout x", WRONG)],
    "run": [("run nosuch", FAILED), ("run conf -b example.org", WRONG)],
    "remove": [("remove conf -y", DONE), ("remove nosuch -y", FAILED), ("remove conf", WRONG)],
    "list": [("list", DONE), ("list conf", WRONG)],
    "status": [("status", DONE), ("status conf", DONE), ("status nosuch", FAILED), ("status conf:/f", WRONG)],
    "doctor": [("doctor nosuch", FAILED), ("doctor conf:/f", WRONG)],
    "members": [("members conf", FAILED), ("members conf:/f", WRONG)],
    "resources": [("resources conf", FAILED), ("resources conf -n 0", WRONG)],
    "blocks": [("blocks conf", DONE), ("blocks nosuch", FAILED), ("blocks conf:/f", WRONG)],
    "show": [("show conf", DONE), ("show conf:/nothing", FAILED), ("show conf:f", WRONG)],
    "log": [("log conf:/f", DONE), ("log conf:/nothing", FAILED), ("log conf:/f --since someday", WRONG)],
    "diff": [("diff conf:/f", DONE), ("diff conf:/f 00000000", FAILED), ("diff conf:/f 0000", WRONG)],
    "cat": [("cat conf:/f", DONE), ("cat conf:/nothing", FAILED), ("cat conf:/f --at 2106-01-01", WRONG)],
    "revert": [
        ("revert conf:/f FIRST", DONE),
        ("revert conf:/f --at now", DONE),
        ("revert conf:/f 00000000", FAILED),
        ("revert conf:/nothing FIRST", FAILED),
        ("revert conf:/f", WRONG),
    ],
    "conflicts": [("conflicts conf", DONE), ("conflicts conf:/nothing", FAILED), ("conflicts conf --accept", WRONG)],
    "watch": [("watch conf", FAILED), ("watch nosuch", FAILED), ("watch", WRONG)],
    "keys": [("keys", DONE), ("keys conf", DONE), ("keys conf:/nothing", FAILED), ("keys conf:f", WRONG)],
    "invite": [
        ("invite conf --list", DONE),
        ("invite conf:/nothing", WRONG),
        ("invite conf --cancel nobody", FAILED),
        ("invite conf --expires never", WRONG),
    ],
    "grant": [
        ("grant conf:/f bob BOB", DONE),
        ("grant conf:/ alice ALICE", DONE),
        ("grant conf:/ alice BOB", FAILED),
        ("grant conf:/nothing bob BOB", FAILED),
        ("grant conf:/ bob junk", WRONG),
    ],
    "revoke": [
        ("revoke conf:/ alice", DONE),
        ("revoke conf:/ nobody", FAILED),
        ("revoke conf:/ ROOT", FAILED),
        ("revoke conf:/", WRONG),
    ],
    "expel": [("expel conf nobody", FAILED), ("expel conf", WRONG), ("expel nosuch alice", FAILED)],
    "rekey": [("rekey conf", DONE), ("rekey nosuch", FAILED), ("rekey conf:/f", WRONG)],
    "recover": [("recover conf junk", FAILED), ("recover nosuch junk", FAILED), ("recover conf", WRONG)],
    "check": [("check conf", DONE), ("check nosuch", FAILED), ("check conf:/f", WRONG)],
    "export": [("export conf file", DONE), ("export conf nowhere/file", FAILED), ("export conf", WRONG)],
    "import": [("import new junk", FAILED), ("import new nowhere", FAILED), ("import a/b junk", WRONG)],
    "serf": [("serf conf members", FAILED), ("serf conf", WRONG)],
    "installserf": [("installserf --sha256 12", WRONG)],
    "completion": [("completion bash", DONE), ("completion tcsh", WRONG)],
}


@pytest.fixture
def full(conf: Cli, monkeypatch: pytest.MonkeyPatch) -> tuple[Cli, dict[str, str]]:
    """What `LINES` says, and what stands for the words in capitals."""
    with conf.replica("conf") as replica:
        (first,) = replica.commit(lambda author: author.write(path("/f"), b"one")).entries
        replica.commit(lambda author: author.write(path("/f"), b"two"))
    conf("grant", "conf:/", "alice", ALICE.public.hex())
    (conf.base / "here").mkdir()
    (conf.base / "here" / "junk").write_text("junk")
    monkeypatch.chdir(conf.base / "here")
    root = SigningKey.load(conf.home.default_key).fingerprint.hex()
    return conf, {"FIRST": first.hash.hex(), "ALICE": ALICE.public.hex(), "BOB": BOB.public.hex(), "ROOT": root}


def test_every_command_is_held_to_it() -> None:
    assert set(LINES) == set(COMMANDS)
    assert all(line.split()[0] == name for name, lines in LINES.items() for line, _ in lines)


@pytest.mark.parametrize(("line", "code"), [pair for lines in LINES.values() for pair in lines], ids=str)
def test_the_code_of_a_command(full: tuple[Cli, dict[str, str]], line: str, code: ExitCode) -> None:
    cli, words = full
    found, _, err = cli.run(*(words.get(word, word) for word in line.split()))
    assert found == code, err
    if code is not DONE:
        assert err.splitlines()[-1].startswith("basefs: ")


@pytest.mark.process
@pytest.mark.parametrize("line", ["revert conf:/ --at FIRST", "remove conf"])
def test_a_no_is_neither_done_nor_an_error(node: Node, full: tuple[Cli, dict[str, str]], line: str) -> None:
    cli, words = full
    with cli.replica("conf") as replica:
        for number in range(21):
            replica.commit(lambda author, n=number: author.write(path(f"/{n}"), b""))
    shown = on_a_terminal(node, *(words.get(word, word) for word in line.split()), typed="n\n", code=ExitCode.DECLINED)
    assert "basefs: " not in shown
    assert "/20" in cli("show", "conf")
