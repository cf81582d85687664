"""Rows that the project keeps are of code that everybody can have."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest

from tests.support.project import ROOT

RESULTS = ROOT / "eval" / "results"
#: Files whose old rows name no commit; docs/evaluation.md and eval/REPORT.md say so.
OLDER = RESULTS / "lab"


def git(*arguments: str) -> str:
    """What git prints, empty where this is no repository."""
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False).stdout.strip()


@pytest.fixture(scope="module")
def commits() -> str:
    """All commits of the history, a line each."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("it takes a repository with its whole history to know its commits")
    return git("rev-list", "HEAD")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.csv")), ids=lambda path: path.stem)
def test_the_commit_of_each_row_is_in_the_history(path: Path, commits: str) -> None:
    named = {row["commit"] for row in rows(path) if row.get("commit")}
    assert not [commit for commit in named if len(commit) != 12 or f"\n{commit}" not in f"\n{commits}"]


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.csv")), ids=lambda path: path.stem)
def test_a_row_says_where_it_comes_from(path: Path) -> None:
    for row in rows(path):
        assert path.parent == OLDER or {"run", "seed", "commit", "machine"} <= row.keys(), row
        # Of a commit that nobody knows the report and the tables say so.
        assert not row.get("commit") or (row["machine"] and row["run"]), row
