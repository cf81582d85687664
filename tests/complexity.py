"""Holds the complexity of functions: `make lint` runs it.

It counts what a reader has to follow, so more than ruff's C901: each `and`, `or`, `assert`, comprehension and
conditional expression as well.  Functions that were more complex when this began are in a list that may only shrink.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.project import ROOT

#: The most that a function may have.
MOST = 12
EXCEPTIONS = Path(__file__).with_name("complexity.txt")

_BRANCHES = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension, ast.Assert),
    ast.match_case,
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def complexity(function: ast.AST) -> int:
    """One, and one for each branch; functions inside of it are counted for themselves."""
    total, todo = 1, list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, _SCOPES):
            continue
        total += isinstance(node, _BRANCHES)
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        todo += ast.iter_child_nodes(node)
    return total


def functions(source: str) -> Iterator[tuple[str, int]]:
    """The name of each function of a module, as in `Class.method`, and its complexity."""
    todo: list[tuple[str, ast.AST]] = [("", ast.parse(source))]
    while todo:
        above, node = todo.pop()
        for child in ast.iter_child_nodes(node):
            name = above
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{above}.{child.name}".lstrip(".")
                if not isinstance(child, ast.ClassDef):
                    yield name, complexity(child)
            todo.append((name, child))


def compare(found: dict[str, int], listed: dict[str, int]) -> list[str]:
    """What is wrong: a function that is more complex than it may be, and a listed number that is too high by now."""
    wrong = []
    for name in sorted({*found, *listed}):
        now, most = found.get(name, 0), listed.get(name, MOST)
        if now > most:
            wrong.append(f"{name} has a complexity of {now}, and may have {most}: split it where that helps a reader")
        elif name in listed and now < most:
            remedy = f"write {now} there" if now > MOST else "remove it there"
            wrong.append(f"{name} is in {EXCEPTIONS.name} with {most} and has {now}: {remedy}")
    return wrong


def check() -> list[str]:
    """What is wrong in the package, a line each."""
    found = {
        f"{path.relative_to(ROOT)} {name}": count
        for path in sorted((ROOT / "basefs").rglob("*.py"))
        for name, count in functions(path.read_text())
    }
    lines = EXCEPTIONS.read_text().splitlines()
    return compare(found, {name: int(count) for name, _, count in (line.rpartition(" ") for line in lines)})


if __name__ == "__main__":
    failures = check()
    print("\n".join(failures) or "Complexity: as it may be")  # noqa: T201
    sys.exit(bool(failures))
