"""Rows that are written as they are measured, with their origin, and need not be measured again."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eval.origin import Moment, Origin, UncommittedCode
from eval.report.data import Results
from eval.rows import Rows
from tests.support.project import ROOT

HERE = Origin(run=1, seed=1, commit="0123456789ab", machine="2 x processor, 24 GiB, Linux 6.1")
COLUMNS = {"run": "1", "seed": "1", "commit": HERE.commit, "machine": HERE.machine}


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_is_in_the_file_at_once_to_its_last_digit_and_counts_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.csv"
    rows = Rows(path, ("nodes", "mode"), HERE)
    assert not rows.has(nodes=5, mode="push")
    rows.add({"nodes": 5, "mode": "push", "seconds": 1.23456789012345})
    (row,) = _read(path)
    assert row.items() >= {"nodes": "5", "mode": "push", "seconds": "1.23456789012345", **COLUMNS}.items()
    assert Rows(path, ("nodes", "mode"), HERE).has(nodes=5, mode="push")
    assert not Rows(path, ("nodes", "mode"), HERE).has(nodes=15, mode="push")


@pytest.mark.parametrize("written", [60, 60.0, 0.05])
def test_a_number_is_found_again_however_it_is_written(tmp_path: Path, written: float) -> None:
    path = tmp_path / "rows.csv"
    Rows(path, ("window",), HERE).add({"window": written})
    assert Rows(path, ("window",), HERE).has(window=float(written))


@pytest.mark.parametrize(
    "other", [{"run": 2}, {"seed": 2}, {"commit": "ba9876543210"}, {"machine": "64 x processor, 256 GiB, Linux 6.1"}]
)
def test_other_code_runs_seeds_and_machines_measure_for_themselves(tmp_path: Path, other: dict[str, object]) -> None:
    path = tmp_path / "rows.csv"
    Rows(path, ("nodes",), HERE).add({"nodes": 5, "seconds": 1})
    there = Rows(path, ("nodes",), replace(HERE, **other))  # type: ignore[arg-type]
    assert not there.has(nodes=5)
    there.add({"nodes": 5, "seconds": 2})
    assert [row["seconds"] for row in _read(path)] == ["1", "2"], "both stand beside each other"


def test_the_report_is_about_all_runs_of_the_code_and_machine_that_came_last(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for origin in (replace(HERE, machine="another"), replace(HERE, commit="older"), HERE, replace(HERE, run=2, seed=2)):
        Rows(path, ("nodes",), origin).add({"nodes": 5, "run of": f"{origin.run}"})
    assert [row["run of"] for row in Results(tmp_path).rows("rows")] == ["1", "2"]


def test_what_failed_is_a_row_that_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    rows = Rows(path, ("nodes",), HERE)
    with pytest.raises(TimeoutError), rows.recording(nodes=100):
        raise TimeoutError("a small change has not reached all 100 nodes in 30 s")
    assert _read(path)[0]["failed"] == "a small change has not reached all 100 nodes in 30 s"
    assert not Rows(path, ("nodes",), HERE).has(nodes=100)
    assert Results(tmp_path).rows("rows") == [] and len(Results(tmp_path).failed("rows")) == 1
    rows.add({"nodes": 100, "seconds": 3})
    assert not any(row.get("failed") for row in _read(path)) and rows.has(nodes=100)


def test_a_failure_after_the_measurement_does_not_replace_it(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.csv", ("nodes",), HERE)
    with pytest.raises(TimeoutError), rows.recording(nodes=5):
        rows.add({"nodes": 5, "seconds": 3})
        raise TimeoutError("the cluster has not ended")
    assert rows.has(nodes=5) and [row["seconds"] for row in _read(tmp_path / "rows.csv")] == ["3"]


def test_what_is_measured_again_replaces_its_row_only(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    rows = Rows(path, ("nodes",), HERE)
    rows.add({"nodes": 5, "seconds": 1})
    rows.add({"nodes": 15, "seconds": 2})
    again = Rows(path, ("nodes",), HERE, again=True)
    assert not again.has(nodes=5)
    again.add({"nodes": 5, "seconds": 3})
    assert again.has(nodes=5)
    assert [(row["nodes"], row["seconds"]) for row in _read(path)] == [("5", "3"), ("15", "2")]


def test_columns_may_come_later(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    Rows(path, ("nodes",), HERE).add({"nodes": 5, "old": 1})
    Rows(path, ("nodes",), HERE).add({"nodes": 15, "new": 2})
    assert [(row["nodes"], row["new"], row["old"]) for row in _read(path)] == [("5", "", "1"), ("15", "2", "")]


def test_rows_of_uncommitted_code_are_not_kept(tmp_path: Path) -> None:
    kept = ROOT / "eval" / "results" / "no-such-rows.csv"
    for commit in ("", "0123456789ab-dirty"):
        with pytest.raises(UncommittedCode, match="not committed"):
            Rows(kept, ("nodes",), replace(HERE, commit=commit))
        Rows(tmp_path / "rows.csv", ("nodes",), replace(HERE, commit=commit)).add({"nodes": 5})
    assert not kept.exists()


def test_what_fails_is_a_row_and_does_not_keep_the_rest_from_being_measured(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    rows = Rows(path, ("nodes",), HERE)

    def fail() -> dict[str, object]:
        raise TimeoutError("not within 30 s")

    rows.measure(fail, nodes=5)
    rows.measure(lambda: {"seconds": 1}, nodes=15)
    assert [(row["nodes"], row["seconds"], row["failed"]) for row in _read(path)] == [
        ("5", "", "not within 30 s"),
        ("15", "1", ""),
    ]
    assert rows.failures == 1
    rows.measure(fail, nodes=15)
    assert rows.failures == 1, "what was measured is not measured again"


def test_a_mistake_of_ours_is_a_row_and_ends_the_run(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.csv", ("nodes",), HERE)
    with pytest.raises(ZeroDivisionError):
        rows.measure(lambda: {"seconds": 1 / 0}, nodes=5)
    assert _read(tmp_path / "rows.csv")[0]["failed"] == "division by zero"


def test_each_row_says_what_the_machine_did_meanwhile(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.csv", ("nodes",), HERE)
    rows.measure(lambda: {"seconds": 1}, nodes=5)
    (row,) = _read(tmp_path / "rows.csv")
    assert float(row["load"]) >= 0 and float(row["steal %"]) >= 0
    earlier, later = Moment(10.0, 1.0, 2.0), Moment(20.0, 1.5, 4.5)
    strain = later.strain(earlier)
    assert strain["steal %"] == round(5 / (os.cpu_count() or 1), 1) and strain["waiting %"] == 25.0
    assert replace(later, waiting=None).strain(earlier)["waiting %"] == "", "not every kernel counts it"


def test_a_row_of_an_unknown_commit_goes_when_its_measurement_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for nodes in (5, 15):
        Rows(path, ("nodes",), replace(HERE, commit="", machine="another")).add({"nodes": nodes, "seconds": 1})
    Rows(path, ("nodes",), HERE).add({"nodes": 5, "seconds": 2})
    assert [(row["nodes"], row["commit"]) for row in _read(path)] == [("15", ""), ("5", HERE.commit)]


def test_a_clone_with_changed_code_is_told_apart_and_one_with_new_rows_is_not(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True)
    # The code that looks is this one, whatever of it is committed.
    (clone / "eval" / "origin.py").write_bytes((ROOT / "eval" / "origin.py").read_bytes())
    git = ("git", "-C", clone, "-c", "user.name=test", "-c", "user.email=test@localhost")
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "test"], check=True)

    def commit() -> str:
        program = "from eval.origin import Origin; print(Origin.here().commit)"
        return subprocess.run(
            [sys.executable, "-c", program], cwd=clone, check=True, capture_output=True, text=True
        ).stdout.strip()

    clean = commit()
    assert len(clean) == 12
    (clone / "eval" / "results" / "bench_log.csv").write_text("entries\n1\n")
    assert commit() == clean
    with (clone / "basefs" / "errors.py").open("a") as file:
        file.write("# changed\n")
    assert commit() == f"{clean}-dirty"
