"""Completion, as the shells themselves do it."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import Cli
from tests.support.helpers import path
from tests.support.node import COMMAND, Node
from tests.support.patience import DEADLINE

Complete = Callable[[str], list[str]]


@pytest.fixture
def tree(conf: Cli) -> Cli:
    """Two filesystems, one with some paths."""
    conf("bootstrap", "cluster")
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/etc")))
        for name in ("/etc/hosts", "/etc/two words", "/etc/\udcff", "/extra"):
            names = tuple(part.encode("utf-8", "surrogateescape") for part in name.split("/")[1:])
            replica.commit(lambda author, n=names: author.write(n, b"x"))  # type: ignore[misc]
    return conf


def environment(cli: Cli) -> dict[str, str]:
    return {
        **os.environ,
        "BASEFS_HOME": str(cli.home.path),
        "HOME": str(cli.base),
        "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
    }


def run(cli: Cli, shell: str, script: str) -> list[str]:
    """The lines that a script prints."""
    tool = shutil.which(shell)
    assert tool is not None, f"apt-get install {shell}"
    options = {"bash": ["--norc", "--noprofile"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [tool, *options, "-c", script], env=environment(cli), capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def in_bash(cli: Cli, line: str) -> list[str]:
    """What bash is offered, with the words divided at colons as bash does it."""
    script = f"""
        eval "$(basefs completion bash)"
        compopt() {{ :; }}
        COMP_LINE={line!r}; COMP_POINT={len(line)}; COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
        _basefs_completion basefs
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return [word for word in run(cli, "bash", script) if word]


def in_fish(cli: Cli, line: str) -> list[str]:
    return run(cli, "fish", f"basefs completion fish | source; complete --do-complete {line!r}")


@pytest.mark.process
def test_bash(tree: Cli) -> None:
    assert in_bash(tree, "basefs conf") == ["conflicts"]
    assert in_bash(tree, "basefs show c") == ["cluster", "conf", "cluster:/", "conf:/"]
    assert in_bash(tree, "basefs log con") == ["conf:/"]
    # What is before the colon is another word to bash.
    assert in_bash(tree, "basefs show conf:/e") == ["/etc/", "/extra"]
    assert in_bash(tree, "basefs show -l conf:/etc/") == ["/etc/hosts", "/etc/two\\ words"]
    assert in_bash(tree, "basefs check ") == ["cluster", "conf"]
    assert in_bash(tree, "basefs mount --profile l") == ["lan", "local"]
    assert in_bash(tree, "basefs show nothing:/") == []
    assert in_bash(tree, "basefs bootstrap c") == []


@pytest.mark.process
def test_fish(tree: Cli) -> None:
    assert in_fish(tree, "basefs conf") == ["conflicts"]
    assert sorted(in_fish(tree, "basefs show con")) == ["conf", "conf:/"]
    assert sorted(in_fish(tree, "basefs show conf:/e")) == ["conf:/etc/", "conf:/extra"]
    (tree.base / "archive").touch()
    assert f"{tree.base}/archive" in in_fish(tree, f"basefs import conf {tree.base}/arch")


def typed_in_zsh(cli: Cli, line: str, wanted: str) -> str:
    """What stands on zsh's screen once it has completed a line, at a terminal of its own."""
    (cli.base / ".zshrc").write_text(
        "PROMPT='> '; unsetopt beep; autoload -Uz compinit; compinit -u\n"
        'eval "$(basefs completion zsh)"\nprint ready\n'
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-i"], {**environment(cli), "ZDOTDIR": str(cli.base), "TERM": "dumb"})
    try:
        _read_until(terminal, "ready")
        os.write(terminal, line.encode() + b"\t")
        return _read_until(terminal, wanted)
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def _read_until(terminal: int, wanted: str) -> str:
    seen = ""
    deadline = time.monotonic() + DEADLINE
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1)[0]:
            # zsh draws what it completes in pieces, with control sequences between them.
            seen += re.sub(
                r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\x08\x07]", "", os.read(terminal, 4096).decode("utf-8", "replace")
            )
    return seen


@pytest.mark.process
def test_zsh(tree: Cli) -> None:
    assert shutil.which("zsh") is not None, "apt-get install zsh"
    typed_in_zsh(tree, "basefs conf", "conflicts")
    assert typed_in_zsh(tree, "basefs log clu", "cluster:/").rstrip("\n").endswith("cluster:/")
    typed_in_zsh(tree, "basefs show conf:/etc/h", "conf:/etc/hosts")
    typed_in_zsh(tree, "basefs show conf:/etc/t", "two\\ words")


def test_a_running_filesystem(node: Node, tree: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert in_bash(tree, "basefs show conf:/etc/h") == ["/etc/hosts"]


def test_without_a_home(cli: Cli) -> None:
    assert in_bash(cli, "basefs show ") == []
    assert not cli.home.path.exists()


def test_errors(cli: Cli) -> None:
    assert "is not one of" in cli.misused("completion", "tcsh")
    assert "fish" in cli.misused("completion")


@pytest.mark.process
def test_scripts_are_complete(cli: Cli, tmp_path: Path) -> None:
    for shell in ("bash", "zsh"):
        script = tmp_path / shell
        script.write_text(cli("completion", shell))
        subprocess.run([shell, "-n", script], check=True)
