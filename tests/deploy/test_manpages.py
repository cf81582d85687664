"""The manual pages: one for each command, with all that --help says, and such that man takes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click
import pytest

from basefs.management.main import COMMANDS, basefs
from deploy.manpages import escape, pages


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("man")
    for name, text in pages():
        (made / name).write_text(text)
    return made


def test_every_command_has_one(directory: Path) -> None:
    wanted = {"basefs.1", "mount.fuse.basefs.8", *(f"basefs-{name}.1" for name in COMMANDS)}
    assert {path.name for path in directory.iterdir()} == wanted


@pytest.mark.process
@pytest.mark.parametrize("tool", [["mandoc", "-T", "lint", "-W", "warning"], ["man", "--warnings", "-l"]])
def test_readers_of_manual_pages_have_nothing_to_say(directory: Path, tool: list[str]) -> None:
    assert shutil.which(tool[0]) is not None, f"apt-get install {tool[0]}"
    command = [*tool, *sorted(map(str, directory.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    if tool[0] == "mandoc":
        assert done.stdout == ""


@pytest.mark.process
@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_has_what_the_help_has(directory: Path, name: str) -> None:
    command = basefs.get_command(click.Context(basefs), name)
    assert command is not None
    shown = subprocess.run(
        ["man", "-l", directory / f"basefs-{name}.1"],
        capture_output=True,
        text=True,
        check=True,
        env={"MANWIDTH": "1000", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    ).stdout
    words = " ".join(shown.split())
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert all(option in words for option in parameter.opts)
            assert " ".join((parameter.help or "").split()) in words
    for paragraph in (command.help or "").split("\n\n"):
        assert " ".join(paragraph.replace("\b", "").split()) in words
    for line in (command.epilog or "").replace("\b", "").replace("Examples:", "").splitlines():
        assert " ".join(line.split()) in words


def test_what_roff_would_take_for_its_own() -> None:
    assert escape(".x\n'y\na.b \\n -o ~") == "\\&.x\n\\&'y\na.b \\en \\-o \\(ti"
