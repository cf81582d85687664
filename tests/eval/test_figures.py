"""The tables of measurements in the documents are those of the rows that the project keeps."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from eval import figures
from eval.figures import Growth, NoFigures, Table, Target, documents, with_figures


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_a_document_shows_the_rows_of_today(path: Path) -> None:
    text = path.read_text()
    assert with_figures(text) == text, "python -m eval.figures writes the tables anew"


def test_each_table_stands_in_one_document() -> None:
    text = "".join(path.read_text() for path in documents())
    assert sorted(re.findall(r"<!-- figures: (\S+) -->", text)) == sorted(figures.TABLES)
    with pytest.raises(NoFigures, match="no-such"):
        with_figures("<!-- figures: no-such -->\n<!-- end -->\n")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for rows in place of that of the project."""
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    return tmp_path


def keep(path: Path, *rows: dict[str, object]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, sorted({name for row in rows for name in row}))
        writer.writeheader()
        writer.writerows(rows)


def test_a_table_has_the_runs_of_the_last_commit_their_spread_and_their_origin(results: Path) -> None:
    first = {"nodes": 5, "s": 1.0, "s least": 1.0, "s most": 1.0, "run": 1, "commit": "aaa", "machine": "m"}
    again = {"nodes": 5, "s": 2.0, "s least": 1.5, "s most": 2.25, "run": 1, "commit": "bbb", "machine": "m"}
    second = {"nodes": 5, "s": 4.0, "s least": 3.0, "s most": 5.0, "run": 2, "commit": "bbb", "machine": "m"}
    other = {"nodes": 9, "s": 3.0, "run": 1, "commit": "bbb", "machine": "m", "failed": "too late"}
    keep(results / "spread.csv", first, again, second, other)
    columns: dict[str, figures.Cell] = {"nodes": "nodes", "n": figures.count, "s": figures.spread("s"), "t": "s:.1f"}
    assert Table("spread.csv", columns, keys=("nodes",)).lines() == [
        "| nodes | n | s | t |",
        "| --- | --- | --- | --- |",
        "| 5 | 2 | 3.00 (1.50 to 5.00) | 3.0 |",
        "",
        "*Rows:* `eval/results/spread.csv`, commit `bbb`, m.",
        "Failed: 9, commit `bbb`: too late.",
    ]
    assert "Not measured" in Table("none.csv", {"nodes": "nodes"}).lines()[0]


def test_rows_that_name_no_commit_are_no_runs_and_rounds_count(results: Path) -> None:
    keep(results / "old.csv", {"nodes": 5, "s": 1.0}, {"nodes": 5, "s": 2.0})
    columns: dict[str, figures.Cell] = {"n": figures.count, "s": figures.spread("s")}
    assert Table("old.csv", columns, keys=("nodes",)).lines()[2] == "| - | 2.00 |"
    rows = [{"nodes": 5, "s": 1.0, "rounds": 3, "run": run, "commit": "a", "machine": "m"} for run in (1, 2)]
    keep(results / "rounds.csv", *rows)
    assert Table("rounds.csv", columns, keys=("nodes",)).lines()[2] == "| 6 | 1.00 (1.00 to 1.00) |"


def test_a_table_says_that_it_was_measured_once(results: Path) -> None:
    columns: dict[str, figures.Cell] = {"nodes": "nodes", "n": figures.count, "s": figures.spread("s")}
    once = {"nodes": 5, "s": 1.0, "run": 1, "commit": "a", "machine": "m"}
    keep(results / "once.csv", once)
    lines = Table("once.csv", columns, keys=("nodes",)).lines()
    assert lines[2] == "| 5 | 1 | 1.00 |" and lines[-1].startswith("n is 1")
    keep(results / "once.csv", once, {**once, "nodes": 9}, {**once, "nodes": 9, "s": 2.0, "run": 2})
    lines = Table("once.csv", columns, keys=("nodes",)).lines()
    assert lines[3] == "| 9 | 2 | 1.50 (1.00 to 2.00) |" and lines[-1].startswith("Where n is 1")


def test_growth_is_a_power_and_what_each_doubling_adds(results: Path) -> None:
    rows = [
        {"nodes": nodes, "bytes": nodes**0.5, "s": 0.5 + 0.1 * doublings, "run": 1, "commit": "a", "machine": "m"}
        for doublings, nodes in enumerate((64, 128, 256, 512))
    ]
    growth = Growth("growth.csv", {"bytes": "bytes:.1f", "seconds": "s:.2f"})
    assert growth.lines() == ["Not measured yet: no rows are kept."]
    keep(results / "growth.csv", *rows)
    assert growth.lines()[2:] == [
        "| bytes | 8.0 (64) | 22.6 (512) | x 3.16 | +4.9 |",
        "| seconds | 0.50 (64) | 0.80 (512) | x 1.68 | +0.10 |",
        "",
        "*Rows:* `eval/results/growth.csv`, commit `a`, m.",
    ]


def test_each_table_has_its_n() -> None:
    assert not [name for name, table in figures.TABLES.items() if isinstance(table, Table) and "n" not in table.columns]


def test_a_failure_that_was_made_good_is_no_longer_told(results: Path) -> None:
    failed = {"nodes": 5, "s": "", "run": 1, "commit": "a", "machine": "m", "failed": "too late"}
    keep(results / "good.csv", failed, {**failed, "s": 1.0, "commit": "b", "failed": ""})
    lines = Table("good.csv", {"nodes": "nodes", "n": figures.count}, keys=("nodes",)).lines()
    assert not any("Failed" in line for line in lines)
    keep(results / "good.csv", {**failed, "s": 1.0, "commit": "b", "failed": ""}, failed)
    assert "Failed: 5, commit `a`: too late." in Table("good.csv", {"nodes": "nodes"}, keys=("nodes",)).lines()


def test_a_target_is_judged_by_its_worst_row(results: Path) -> None:
    keep(results / "target.csv", {"s": 1.0}, {"s": 3.0})
    assert Target("t", "target.csv", {}, "s", 2.0).cells() == ["t", "3", "no"]
    assert Target("t", "target.csv", {}, "s", 3.0).cells() == ["t", "3", "yes"]
    assert Target("t", "target.csv", {}, "s", 1.0, at_least=True).cells() == ["t", "1", "yes"]
    assert Target("t", "target.csv", {"s": "7"}, "s", 3.0).cells() == ["t", "not measured", "unknown"]
