"""`make bench-fs` and `make bench-mount`: their steps, small ones, and that the targets name them."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from eval import figures
from eval.bench_fs import make_files, make_repository, measure, measure_programs
from tests.support.patience import DEADLINE
from tests.support.project import ROOT

#: The program is not everywhere.
DBENCH = "dbench, 2 clients, 100 MB"


def targeted(file: str, column: str, **where: str) -> set[str]:
    """What the targets name of a file in a column."""
    table = figures.TABLES["performance"]
    assert isinstance(table, figures.Targets)
    return {
        target.where[column]
        for target in table.targets
        if target.file == file and all(target.where[name] == value for name, value in where.items())
    }


@pytest.mark.root
def test_each_step_on_a_tree_that_has_a_target_is_measured(tmp_path: Path) -> None:
    make_files(tmp_path / "tree", 2, 3)
    (tmp_path / "place").mkdir()
    steps = measure(tmp_path / "tree", tmp_path / "place")
    assert all(seconds > 0 for seconds in steps.values())
    assert targeted("bench_fs.csv", "step", tree="5000 files") <= steps.keys()
    assert not list((tmp_path / "place").iterdir())


def test_each_program_that_has_a_target_is_measured(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    steps = measure_programs(make_repository(tmp_path / "repository"), place)
    assert targeted("bench_fs.csv", "step", tree="programs") - {DBENCH} <= steps.keys()
    log = subprocess.run(["git", "log", "--format=%s"], cwd=place / "clone", capture_output=True, check=True)
    assert log.stdout.split() == [b"changed", b"other", b"main"]


@pytest.mark.fuse
@pytest.mark.process
def test_a_part_of_bench_mount_makes_rows_that_targets_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eval.bench_mount", "--scenario", "descriptors", "--repeat", "1"]
    subprocess.run([*command, "--results", tmp_path], cwd=ROOT, check=True, capture_output=True, timeout=DEADLINE)
    with (tmp_path / "bench_mount.csv").open(newline="") as file:
        rows = {row["what"]: row for row in csv.DictReader(file)}
    named = targeted("bench_mount.csv", "what") & rows.keys()
    assert len(named) == 1
    assert all(row["rounds"] == "1" and float(row["BaseFS"]) >= 0 for row in rows.values())
