"""Figures of the report that are drawn from rows of simulations."""

from __future__ import annotations

import csv
from pathlib import Path

from eval.report.data import Results
from eval.report.scale import conflicts, staleness


def keep(path: Path, *rows: dict[str, object]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def drawn(path: Path) -> bytes:
    picture = path.read_bytes()
    assert picture.startswith(b"\x89PNG")
    return picture


def test_staleness_stands_beside_that_of_real_nodes(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert staleness(results, tmp_path, results) is None
    write = {"backend": "namespaces", "nodes": 4, "mode": "push", "condition": "none"}
    keep(tmp_path / "workload.csv", {**write, "each s": "0.1 0.2 0.3"}, {**write, "each s": "0.1 0.1"})
    assert staleness(results, tmp_path, results) is None, "nothing is simulated"
    shares = [{"nodes": 30, "after s": after, "share": share} for after, share in ((0.1, 0.5), (0.2, 1.0))]
    keep(tmp_path / "bench_scale_staleness.csv", *shares)
    assert staleness(results, tmp_path, results) == "staleness.png"
    one = drawn(tmp_path / "staleness.png")
    keep(tmp_path / "bench_scale_staleness.csv", *shares, *({**share, "nodes": 300} for share in shares))
    staleness(results, tmp_path, results)
    assert drawn(tmp_path / "staleness.png") != one


def test_conflicts_are_drawn_by_authors_rate_and_files(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert conflicts(results, tmp_path, results) is None
    rows = [
        {"nodes": 30, "writers": writers, "changes a s": rate, "files": files, "conflicts %": 5, "expected %": 6}
        for writers, rate, files in ((2, 1, 1), (10, 1, 1), (10, 10, 1), (10, 10, 10))
    ]
    keep(tmp_path / "bench_scale_conflicts.csv", *rows)
    assert conflicts(results, tmp_path, results) == "conflicts.png"
    before = drawn(tmp_path / "conflicts.png")
    keep(tmp_path / "bench_scale_conflicts.csv", *rows[:-1], {**rows[-1], "conflicts %": 50})
    conflicts(results, tmp_path, results)
    assert drawn(tmp_path / "conflicts.png") != before
