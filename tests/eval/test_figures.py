"""The tables of measurements in the documents are those of the rows that the project keeps."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from eval import figures
from eval.figures import NoFigures, Table, Target, documents, with_figures


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


def test_a_table_has_the_last_row_of_each_measurement_its_spread_and_its_origin(results: Path) -> None:
    first = {"nodes": 5, "s": 1.0, "s least": 1.0, "s most": 1.0, "commit": "aaa", "machine": "m"}
    again = {"nodes": 5, "s": 2.0, "s least": 1.5, "s most": 2.25, "commit": "bbb", "machine": "m"}
    other = {"nodes": 9, "s": 3.0, "commit": "bbb", "machine": "m", "failed": "too late"}
    keep(results / "spread.csv", first, again, other)
    table = Table("spread.csv", {"nodes": "nodes", "s": figures.spread("s")}, keys=("nodes",))
    assert table.lines() == [
        "| nodes | s |",
        "| --- | --- |",
        "| 5 | 2.00 (1.50 to 2.25) |",
        "",
        "*Rows:* `eval/results/spread.csv`, commit `bbb`, m.",
    ]
    assert "Not measured" in Table("none.csv", {"nodes": "nodes"}).lines()[0]


def test_a_target_is_judged_by_its_worst_row(results: Path) -> None:
    keep(results / "target.csv", {"s": 1.0}, {"s": 3.0})
    assert Target("t", "target.csv", {}, "s", 2.0).cells() == ["t", "3", "no"]
    assert Target("t", "target.csv", {}, "s", 3.0).cells() == ["t", "3", "yes"]
    assert Target("t", "target.csv", {}, "s", 1.0, at_least=True).cells() == ["t", "1", "yes"]
    assert Target("t", "target.csv", {"s": "7"}, "s", 3.0).cells() == ["t", "not measured", "unknown"]
