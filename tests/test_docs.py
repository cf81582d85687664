"""What the documents name exists: commands, options, files and links."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from basefs.management.main import COMMANDS, basefs

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])

#: `basefs COMMAND ...` in a code span or after a prompt
_COMMAND = re.compile(r"(?:`|^[a-z]*[#$] )basefs ([a-z]+)([^`\n]*)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"`((?:basefs|tests|docs|eval|\.ci)/[\w./-]+)`")
_MAKE = re.compile(r"`?make ([a-z-]+)`?(?:$|`)", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])(--?[a-z][\w-]*)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_their_options_exist(document: Path) -> None:
    for name, rest in _COMMAND.findall(document.read_text()):
        assert name in COMMANDS, f"{document.name} names basefs {name}"
        command = basefs.get_command(click.Context(basefs), name)
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert set(_OPTION.findall(rest)) <= known, f"{document.name}: basefs {name}{rest}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_and_links_exist(document: Path) -> None:
    text = document.read_text()
    for path in _PATH.findall(text):
        assert (ROOT / path).exists(), f"{document.name} names {path}"
    for link in _LINK.findall(text):
        assert (document.parent / link).exists(), f"{document.name} links to {link}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_exist(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in _MAKE.findall(document.read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document.name} names make {target}"


def test_the_readme_names_every_command() -> None:
    named = {name for name, _ in _COMMAND.findall((ROOT / "README.md").read_text())}
    assert set(COMMANDS) <= named
