"""Rows that are written as they are measured, and need not be measured again."""

from __future__ import annotations

import csv
from pathlib import Path

from eval.rows import Rows


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_is_in_the_file_at_once_and_counts_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.csv"
    rows = Rows(path, ("nodes", "mode"))
    assert not rows.has(nodes=5, mode="push")
    rows.add({"nodes": 5, "mode": "push", "seconds": 1.23456})
    assert _read(path) == [{"nodes": "5", "mode": "push", "seconds": "1.235"}]
    assert Rows(path, ("nodes", "mode")).has(nodes=5, mode="push")
    assert not Rows(path, ("nodes", "mode")).has(nodes=15, mode="push")


def test_what_is_measured_again_replaces_its_row_only(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    rows = Rows(path, ("nodes",))
    rows.add({"nodes": 5, "seconds": 1})
    rows.add({"nodes": 15, "seconds": 2})
    again = Rows(path, ("nodes",), again=True)
    assert not again.has(nodes=5)
    again.add({"nodes": 5, "seconds": 3})
    assert again.has(nodes=5)
    assert _read(path) == [{"nodes": "5", "seconds": "3"}, {"nodes": "15", "seconds": "2"}]


def test_columns_may_come_later(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    Rows(path, ("nodes",)).add({"nodes": 5, "old": 1})
    Rows(path, ("nodes",)).add({"nodes": 15, "new": 2})
    assert _read(path) == [{"nodes": "5", "new": "", "old": "1"}, {"nodes": "15", "new": "2", "old": ""}]
