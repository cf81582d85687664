"""What the modules of the package may import."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import basefs.sync

FOLDER = Path(basefs.sync.__file__).parent
SHELLS = {"connection", "keeper", "opening", "seeker", "server", "shared", "shell", "service"}
FORBIDDEN = {"asyncio", "socket", "time", "threading", "random", "selectors", "datetime", "secrets"}
#: Delays that differ from node to node; and a log, which is no part of the core, has a lock.
ALLOWED = {("schedule", "random"), ("memory", "threading")}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            yield node.module


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_imports(path):
    for name in imported(path):
        if name.startswith("basefs"):
            assert name == "basefs.errors" or name.startswith(("basefs.log.", "basefs.sync.")), name
            if path.stem not in SHELLS:
                assert name.rsplit(".", 1)[-1] not in SHELLS
        else:
            assert name.split(".")[0] in sys.stdlib_module_names, name
            if path.stem not in SHELLS and (path.stem, name) not in ALLOWED:
                assert name.split(".")[0] not in FORBIDDEN, name


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_size(path):
    assert len(path.read_text().splitlines()) < 300
