"""The benchmarks of the log and of contents run, and say what their documents say they say."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from eval.bench_hostile import SHAPES
from tests.support.patience import DEADLINE
from tests.support.project import ROOT


def run(module: str, *arguments: object) -> str:
    """What a benchmark prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=5 * DEADLINE).stdout


@pytest.mark.fuse
@pytest.mark.serf
def test_the_log(tmp_path: Path) -> None:
    out = run("eval.bench_log", "--counts", 100, 400, "--rounds", 2, "--results", tmp_path)
    with (tmp_path / "bench_log.csv").open() as file:
        empty, *rows = list(csv.DictReader(file))
    assert [row["entries"] for row in (empty, *rows)] == ["0", "100", "400"]
    assert all(row["rounds"] == "2" and float(row["daemon MiB"]) > 10 for row in (empty, *rows))
    for row in rows:
        for share in ("apply/verify", "apply/OpenSSL", "apply/OpenSSL wall"):
            assert 0 < float(row[f"{share} least"]) <= float(row[share]) <= float(row[f"{share} most"])
        assert 0 < float(row["mount s"]) < float(row["first read s"])
        assert int(row["live files"]) > 10
    assert "apply/verify" in out


@pytest.mark.fuse
@pytest.mark.serf
def test_files_that_come_and_go(tmp_path: Path) -> None:
    run("eval.bench_churn", "--entries", 100, "--files", 30, "--results", tmp_path)
    with (tmp_path / "bench_churn.csv").open() as file:
        (row,) = csv.DictReader(file)
    # The directory, and each file once made and once removed.
    assert float(row["entries after"]) == 100 + 1 + 2 * 30
    assert float(row["daemon MiB before"]) > 10 and 10 < float(row["daemon MiB"]) <= float(row["peak MiB"])


@pytest.mark.process
def test_contents(tmp_path: Path) -> None:
    run("eval.bench_contents", "--megabytes", 5, "--results", tmp_path)
    with (tmp_path / "bench_contents.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["MB"], row["kind"]) for row in rows] == [("5", "noise"), ("5", "text")]
    assert all(float(row["peak MiB"]) > 10 for row in rows)
    with (tmp_path / "bench_contents_edits.csv").open() as file:
        edits = list(csv.DictReader(file))
    blocks = [[edit[f"{what}: blocks"] for what in ("changed", "more", "less")] for edit in edits]
    assert blocks == [["1", "1", "1"]] * 3, "an edit of a line is one block"


def test_hostile_entries(tmp_path: Path) -> None:
    out = run("eval.bench_hostile", "--count", 40, "--rounds", 2, "--results", tmp_path)
    with (tmp_path / "bench_hostile.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["shape"] for row in rows] == list(SHAPES)
    assert all(row["entries"] == "80" and row["rounds"] == "2" and float(row["take ms"]) > 0 for row in rows)
    assert all(float(row["look 2n/n least"]) <= float(row["look 2n/n most"]) for row in rows)
    assert "elsewhere 2n/n" in out
