"""The glossary and the code use the same words, and every package says what it is in these words."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.project import ROOT
from tests.test_imports import ALLOWED

PACKAGE = ROOT / "basefs"
GLOSSARY = ROOT / "docs" / "glossary.md"
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))

_ROW = re.compile(r"^\| (?!term|---)(?P<term>[^|]+) \| [^|]+ \| [^|]*\| (?P<code>[^|]+) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
#: Where one word of an identifier ends and the next one begins.
_SEAM = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


def terms() -> dict[str, str]:
    """Term -> its column of code."""
    return {row["term"].strip(): row["code"] for row in _ROW.finditer(GLOSSARY.read_text())}


def _words(text: str) -> str:
    """A text or an identifier as lower-case words, each with a space behind it."""
    return "".join(f"{word.lower()} " for word in _SEAM.split(text) if word)


def _identifiers(tree: ast.AST) -> set[str]:
    """Every name that the code defines or uses."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def _docstrings(tree: ast.AST) -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]


@cache
def _trees() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]


@cache
def _code() -> tuple[frozenset[str], str]:
    """All identifiers of basefs, and all of them and the docstrings as words."""
    identifiers: set[str] = set()
    texts: list[str] = []
    for tree in _trees():
        identifiers |= _identifiers(tree)
        texts += _docstrings(tree)
    return frozenset(identifiers), " ".join(f"| {_words(text)}" for text in (*texts, *identifiers))


def _singular(words: str) -> str:
    return re.sub(r"ies $", "y ", words) if words.endswith("ies ") else re.sub(r"s $", " ", words)


def _plural(words: str) -> str:
    return re.sub(r"y $", "ies ", words) if words.endswith("y ") else re.sub(r" $", "s ", words)


@pytest.mark.parametrize("term", terms())
def test_every_term_is_in_the_code(term: str) -> None:
    identifiers, text = _code()
    words = _words(term)
    assert f" {words}" in text or f" {_plural(words)}" in text, (
        f"no identifier and no docstring of basefs has the term {term!r}"
    )
    for name in _CODE.findall(terms()[term]):
        known = (ROOT / name).exists() if name.startswith("basefs/") else set(name.split(".")) <= identifiers
        assert known, f"{term}: there is no {name}"


def test_terms_are_in_alphabetical_order_and_once() -> None:
    for section in GLOSSARY.read_text().split("\n## ")[1:]:
        found = [row["term"].strip().lower() for row in _ROW.finditer(section)]
        assert found == sorted(set(found)), section.partition("\n")[0]
    assert len(terms()) == len(_ROW.findall(GLOSSARY.read_text()))


@cache
def _public() -> frozenset[str]:
    """The packages, modules, classes and functions of basefs."""
    found = {path.stem for path in PACKAGE.rglob("*.py")} | {path.name for path in PACKAGES}
    for tree in _trees():
        found |= {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    return frozenset(found)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_says_what_it_is_in_defined_words(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    assert 3 <= len(docstring.splitlines()) <= 10, "a package has a docstring of 3 to 10 lines"
    defined = {_singular(_words(term)) for term in terms()}
    for word in _CODE.findall(docstring):
        is_command = word.partition(" ")[0] == "basefs"
        known = is_command or _singular(_words(word)) in defined or word in _public()
        assert known, f"{word!r} is defined nowhere"


@pytest.mark.parametrize("room", sorted(room for room in ALLOWED if (PACKAGE / room).is_dir()))
def test_a_room_says_what_it_imports(room: str) -> None:
    docstring = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or ""
    last = re.search(r"Imports ([a-z, ]+)\.$", " ".join(docstring.split()))
    assert last is not None, "the last sentence of a room's docstring names what it imports"
    assert set(re.split(r", | and ", last[1])) == ALLOWED[room]
