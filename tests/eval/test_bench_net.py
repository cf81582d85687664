"""Benchmarks of the network measure, instead of failing in a row."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import DEADLINE
from tests.support.project import ROOT


@pytest.mark.cluster
@pytest.mark.serf
@pytest.mark.fuse
def test_a_newcomer_fetches_a_history(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eval.bench_net", "--scenario", "newcomer", "--entries", "300"]
    subprocess.run([*command, "--results", tmp_path], cwd=ROOT, check=True, timeout=5 * DEADLINE, capture_output=True)
    with (tmp_path / "bench_net_newcomer.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["entries"], row["entries there"]) == ("300", "300")
    assert float(row["x verify"]) > 0


@pytest.mark.cluster
@pytest.mark.serf
@pytest.mark.fuse
def test_a_closed_filesystem_beside_an_open_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eval.bench_net", "--scenario", "closed", "--nodes", "2", "--repeat", "1"]
    subprocess.run([*command, "--results", tmp_path], cwd=ROOT, check=True, timeout=5 * DEADLINE, capture_output=True)
    with (tmp_path / "bench_net_closed.csv").open(newline="") as file:
        rows = {row["what"]: row for row in csv.DictReader(file)}
    assert all(float(row["closed"]) > 0 for row in rows.values())
    assert [what for what, row in rows.items() if not row["open"]] == ["join, s", "join and mount, s"]
