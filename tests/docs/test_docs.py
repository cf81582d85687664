"""Commands, options, files and links in the documents exist, and their prose keeps to the column limit."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from basefs.management.main import COMMANDS, basefs
from eval.captures import COMMANDS_DOCUMENT, with_help
from eval.transcript import parse
from tests.support.project import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])

#: The longest line of prose; tables, code and a single word may be longer.
COLUMNS = 120

#: `basefs COMMAND ...` in a code span or after a prompt
_COMMAND = re.compile(r"(?:`|^[a-z]*[#$] )basefs ([a-z]+)([^`|;>\n]*)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_ANCHOR = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
_PATH = re.compile(r"`((?:basefs|tests|docs|eval|\.ci)/[\w./-]+)`")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")
_MAKE = re.compile(r"`?make ([a-z-]+)`?(?:$|`)", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])(--?[a-z][\w-]*)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_their_options_exist(document: Path) -> None:
    for name, rest in _COMMAND.findall(document.read_text()):
        if name in ("help", "version"):  # other ways to write options of basefs itself
            continue
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


def test_each_attacker_is_held_by_tests_that_exist() -> None:
    """Each cell of what an attacker cannot do names one at least, as a file or `FILE::TEST`."""
    section = (ROOT / "docs" / "security.md").read_text().partition("\n## Attackers\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if re.match(r"\| [^-]", line)]
    (heading, *attackers) = rows
    assert heading == ["attacker", "can", "cannot"] and len(attackers) > 10
    for attacker, *_, cannot in attackers:
        assert _TEST.search(cannot), f"no test holds what this attacker cannot do: {attacker}"
    for file, test in _TEST.findall(section):
        text = (ROOT / file).read_text()
        assert re.search(r"^ *def " + (test or r"test_\w+") + r"\(", text, re.MULTILINE), (
            f"security.md names {file}::{test}"
        )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_exist(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in _MAKE.findall(document.read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document.name} names make {target}"


def test_every_command_has_a_section_with_the_help_text_of_today() -> None:
    text = COMMANDS_DOCUMENT.read_text()
    for name in COMMANDS:
        section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, f"{COMMANDS_DOCUMENT.name} has no section {name}"
        assert f"<!-- help: {name} -->" in section[1]
        shown = [step.command for block in parse(section[1]) for step in block.steps]
        assert any(f"basefs {name}" in command for command in shown), f"the section {name} has no example"
    assert with_help(text) == text, "make captures writes the help texts anew"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_headings_that_exist(document: Path) -> None:
    for link, heading in _ANCHOR.findall(document.read_text()):
        target = document.parent / link if link else document
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        assert heading in {_anchor(text) for text in headings}, f"{document.name} links to {link}#{heading}"


def _anchor(heading: str) -> str:
    """The anchor of a heading on code hosts."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_prose_keeps_to_the_column_limit(document: Path) -> None:
    prose = re.sub(r"^(```.*?^```|<!-- console.*?^-->)$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    long = [line for line in prose.splitlines() if len(line) > COLUMNS and not line.startswith(("|", "    "))]
    assert not [line for line in long if " " in line.strip()], f"{document.name} has lines of more than {COLUMNS}"


def test_the_walk_names_modules_that_exist_and_each_once() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    walk = re.search(r"^## The walk .*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert walk is not None
    modules = re.findall(r"`([a-z]+/[a-z/_]+)`", walk[0])
    assert len(modules) == len(set(modules)) > 40
    assert [name for name in modules if not (ROOT / "basefs" / f"{name}.py").exists()] == []


def test_every_document_is_in_the_index() -> None:
    index = set(_LINK.findall((ROOT / "docs" / "README.md").read_text()))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} == index


#: What no sentence begins with: as its subject, a clause makes it hard to read.
_CLAUSE = re.compile(r"(?:^|[.;:!] +)(?:what|who|whoever|whatever|whichever) ", re.IGNORECASE)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_sentence_of_a_help_text_has_a_clause_as_its_subject(name: str) -> None:
    command = basefs.get_command(click.Context(basefs), name)
    assert command is not None and command.help is not None
    paragraphs = [" ".join(text.split()) for text in command.help.split("\n\n")]
    options = [parameter.help or "" for parameter in command.params if isinstance(parameter, click.Option)]
    assert [text for text in (*paragraphs, *options) if _CLAUSE.search(text)] == []
