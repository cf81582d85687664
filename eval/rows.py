"""Rows of measurements in a CSV file, written as they come: what was measured counts, however the run ends."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.tables import print_table, write_csv

Row = dict[str, Any]


class Rows:
    """The rows of one kind of measurement, those of earlier runs included."""

    def __init__(self, path: Path, keys: Sequence[str], *, again: bool = False) -> None:
        """`keys`: the columns that tell rows apart.  `again`: what was measured before is measured again."""
        self._path = path
        self._keys = tuple(keys)
        self._rows: dict[tuple[str, ...], Row] = {}
        if path.exists():
            with path.open(newline="") as file:
                self._rows = {self._key(row): dict(row) for row in csv.DictReader(file)}
        self._done = set() if again else set(self._rows)

    def has(self, **key: Any) -> bool:
        """Whether this was measured and need not be measured again."""
        return self._key(key) in self._done

    def add(self, row: Row, *, quiet: bool = False) -> None:
        """Take in a row, instead of an older one of the same key; write the file, and unless `quiet` print the row."""
        if not quiet:
            print("  ".join(f"{name}={_short(value)}" for name, value in row.items()), flush=True)
        self.add_all([row])

    def add_all(self, rows: Iterable[Row]) -> None:
        """Take in rows without a word, and write the file once."""
        last: Row = {}
        for row in rows:
            key, last = self._key(row), row
            self._rows[key] = row
            self._done.add(key)
        if last:
            # Columns may have come since the file was begun.
            columns = list(last) + sorted({name for old in self._rows.values() for name in old} - set(last))
            write_csv(self._path, [{name: old.get(name, "") for name in columns} for old in self._rows.values()])

    def show(self) -> None:
        """Print all rows as a table."""
        if self._rows:
            columns = list(next(reversed(self._rows.values())))
            print_table([{name: row.get(name, "") for name in columns} for row in self._rows.values()])
            print(f"\n{self._path}\n")

    def _key(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self._keys)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
