"""Imports go one way (docs/architecture.md): read from the sources, so that a lazy import counts as well."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "basefs"

#: package -> what it may import of basefs besides itself
ALLOWED = {
    "log": {"errors"},
    "view": {"errors", "log"},
    "sync": {"errors", "log"},
    "gossip": {"errors"},
    "fs": {"errors", "log", "view", "replica"},
    "applied": {"errors", "log", "view"},
    "queries": {"errors", "log", "view", "sync"},
    "replica": {"applied", "errors", "log", "publisher", "queries", "view", "sync"},
    "bootstrap": {"errors", "log", "view", "replica"},
    "errors": set(),
    "config": {"errors", "log"},
    "discovery": {"errors", "config"},
    "gaps": {"sync"},
    "settings": {"errors", "config"},
    "addresses": {"errors", "config"},
    "options": {"handlers", "log", "settings"},
    "reconnect": {"errors", "gossip"},
    "lock": {"errors"},
    "notify": set(),
    "publisher": set(),
    "handlers": {"errors", "log", "view"},
    "journal": {"errors", "log", "view"},
    "resources": set(),
    "installation": {"errors", "gossip"},
    "metrics": {"applied", "errors"},
    "diagnosis": {"config", "errors", "gossip", "log", "settings"},
    "archive": {"errors", "log", "sync"},
}
#: Between gossip, sync and the replica.
PROPAGATION = {"announcing", "fetching", "hearing", "propagation", "pushing"}
#: What composes: these may import everything, and nothing in ALLOWED may import them.
COMPOSING = {"daemon", "parts", "management", *PROPAGATION, "__main__", "__init__"}


def _imports(path: Path) -> set[str]:
    """The parts of basefs that a module imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "basefs" else [module]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("basefs.")}
    return found


def _part(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    part = _part(path)
    if part in COMPOSING:
        return
    assert _imports(path) - {part} <= ALLOWED[part]


def test_every_part_has_its_place() -> None:
    assert {_part(path) for path in MODULES} == ALLOWED.keys() | COMPOSING
