"""What the modules of the package may import: the wire format and the sessions do no I/O and read no clock."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import basefs.sync

FOLDER = Path(basefs.sync.__file__).parent
FORBIDDEN = {"asyncio", "socket", "time", "threading", "random", "selectors", "datetime", "secrets"}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            yield node.module


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_imports(path):
    pure = path.parent.name != "net"
    shared = {"basefs.errors", "basefs.path"} | (set() if pure else {"basefs.tasks"})
    for name in imported(path):
        if name.startswith("basefs"):
            assert name in shared or name.startswith(("basefs.log.", "basefs.sync.")), name
            assert not (pure and name.startswith("basefs.sync.net")), name
        else:
            package = name.split(".")[0]
            assert package in sys.stdlib_module_names or (not pure and package == "cryptography"), name
            assert not (pure and package in FORBIDDEN), name
