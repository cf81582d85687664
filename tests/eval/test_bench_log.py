"""The benchmarks of the log and of contents run, and say what their documents say they say."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import ROOT


def run(module: str, *arguments: object) -> str:
    """What a benchmark prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.process
def test_the_log(tmp_path: Path) -> None:
    out = run("eval.bench_log", "--counts", 100, 400, "--csv", tmp_path / "log.csv")
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["entries"] for row in rows] == ["100", "400"]
    assert all(float(row["apply/verify"]) > 0 and int(row["live paths"]) > 10 for row in rows)
    assert "apply/verify" in out


@pytest.mark.process
def test_contents(tmp_path: Path) -> None:
    out = run("eval.bench_contents", "--megabytes", 5, "--csv", tmp_path / "contents.csv")
    with (tmp_path / "contents.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["MB"], row["kind"]) for row in rows] == [("5", "noise"), ("5", "text")]
    assert all(float(row["peak MiB"]) > 10 for row in rows)
    edits = [line.split() for line in out.splitlines()[-3:]]
    assert all(line[5::2] == ["1", "1", "1"] for line in edits), "an edit of a line is one block"
