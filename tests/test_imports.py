"""Imports go one way (docs/architecture.md): read from the sources, so that a lazy import counts as well."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.project import ROOT

PACKAGE = ROOT / "basefs"

#: What each room may import of basefs besides itself, the five modules at the top included: the rooms, from the ground
#: up.  There is no exemption: an import inside a function or for type checking alone counts.
ALLOWED = {
    "errors": set(),
    "path": {"errors"},
    "durable": {"errors"},
    "notify": {"errors", "path"},
    "tasks": set(),
    "log": {"errors", "path", "durable"},
    "view": {"errors", "path", "log"},
    "replica": {"errors", "path", "durable", "log", "view"},
    "sync": {"errors", "path", "tasks", "log"},
    "gossip": {"errors", "durable", "tasks"},
    "fs": {"errors", "path", "durable", "notify", "tasks", "log", "view", "replica"},
    "replication": {"errors", "path", "tasks", "log", "replica", "sync", "gossip"},
    "daemon": {
        *("errors", "path", "durable", "notify", "tasks"),
        *("log", "view", "replica", "sync", "gossip", "fs", "replication"),
    },
    "management": {"errors", "path", "durable", "tasks", "daemon"},
    "__main__": {"management"},
    "__init__": set(),
}


def _modules(path: Path) -> set[str]:
    """The modules and names of basefs that a module imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        found |= {name for name in names if name.startswith("basefs.")}
    return found


def _imports(path: Path) -> set[str]:
    """The rooms that a module imports."""
    own = {"__version__": "__init__"}
    rooms = {name.split(".")[1] for name in _modules(path)}
    return {own.get(room, room) for room in rooms} - {"__init__"}


def _room(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    room = _room(path)
    assert _imports(path) - {room} <= ALLOWED[room]


def test_every_room_has_its_place_and_none_is_without_a_use() -> None:
    assert {_room(path) for path in MODULES} == ALLOWED.keys()


@pytest.mark.parametrize("room", ALLOWED)
def test_the_rooms_have_an_order(room: str) -> None:
    """What a room may import may not, by any way round, import that room."""
    reached, todo = set(), list(ALLOWED[room])
    while todo:
        other = todo.pop()
        if other not in reached:
            reached.add(other)
            todo += ALLOWED[other]
    assert room not in reached


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions and for type checking alone count: two modules of a circle are one."""
    names = {path: _name(path) for path in MODULES}
    known = set(names.values())
    graph = {name: {one for one in _modules(path) if one in known} - {name} for path, name in names.items()}
    # Whatever is on no circle can be taken away from the ends, again and again.
    while ends := {name for name, imported in graph.items() if not imported & graph.keys()}:
        for name in ends:
            del graph[name]
    while starts := graph.keys() - {one for imported in graph.values() for one in imported}:
        for name in starts:
            del graph[name]
    assert not graph


def test_no_two_classes_have_one_name() -> None:
    """A reader who meets the name of a class knows which one it is."""
    found: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(_name(module))
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


def _name(path: Path) -> str:
    """The name by which a module is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
