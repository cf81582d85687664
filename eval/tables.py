"""Tables on a terminal, and the same rows as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def print_table(rows: Sequence[Row]) -> None:
    """Rows with the same keys, one column each; numbers to the right."""
    if not rows:
        return
    titles = list(rows[0])
    cells = [[_cell(row[title]) for title in titles] for row in rows]
    widths = [max(len(line[column]) for line in [titles, *cells]) for column in range(len(titles))]
    for line, row in [(titles, None), *zip(cells, rows, strict=True)]:
        texts = [
            text.rjust(width) if row is not None and isinstance(row[title], int | float) else text.ljust(width)
            for text, width, title in zip(line, widths, titles, strict=True)
        ]
        print("  ".join(texts).rstrip())


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Rows with the same keys, at least one, into a file whose directory is made; numbers to their last digit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def markdown(rows: Sequence[Row]) -> str:
    """Rows with the same keys, at least one, as a table of Markdown."""
    titles = list(rows[0])
    lines = [titles, ["---"] * len(titles), *([_cell(row[title]) for title in titles] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
