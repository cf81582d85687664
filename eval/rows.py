"""Rows of measurements in a CSV file, written as they come: what was measured counts, however the run ends."""

from __future__ import annotations

import argparse
import contextlib
import csv
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.origin import COLUMNS, Origin
from eval.tables import print_table, write_csv
from tests.support.node import CommandFailed

Row = dict[str, Any]

#: Rows of one's own; those that the project keeps are in eval/results.
RESULTS = Path("build/eval")

#: The column of a measurement that failed, which says why.
FAILED = "failed"


class Rows:
    """The rows of one kind of measurement, those of earlier runs, other code and other machines included."""

    def __init__(self, path: Path, keys: Sequence[str], origin: Origin, *, again: bool = False) -> None:
        """Rows in a file.

        Args:
            path: of the file; read if it is there.
            keys: the columns that tell rows of one origin apart.
            origin: of the rows that are added.
            again: what was measured before is measured again.

        Raises:
            UncommittedCode: the rows would be kept, and could not be measured again.
        """
        origin.check(path)
        self._path = path
        self._keys = (*keys, *COLUMNS)
        self._origin = origin.columns()
        self._rows: dict[tuple[str, ...], Row] = {}
        if path.exists():
            with path.open(newline="") as file:
                self._rows = {self._key(row): dict(row) for row in csv.DictReader(file)}
        self._done = set() if again else {key for key, row in self._rows.items() if not row.get(FAILED)}

    def has(self, **key: Any) -> bool:
        """Whether this was measured, by this code on this machine in this run, and need not be measured again."""
        return self._key({**key, **self._origin}) in self._done

    @contextlib.contextmanager
    def recording(self, **key: Any) -> Iterator[None]:
        """While something is measured: what fails, or takes too long, is a row as well, and is raised again.

        What has a row before it fails, as when a cluster does not end in good order, keeps that.
        """
        try:
            yield
        except (OSError, CommandFailed, subprocess.SubprocessError) as error:
            if not self.has(**key):
                self.add({**key, FAILED: " ".join(str(error).split()) or type(error).__name__})
            raise

    def add(self, row: Row, *, quiet: bool = False) -> None:
        """Take in a row, instead of an older one of the same key; write the file, and unless `quiet` print the row."""
        if not quiet:
            print("  ".join(f"{name}={_short(value)}" for name, value in row.items()), flush=True)
        self.add_all([row])

    def add_all(self, rows: Iterable[Row]) -> None:
        """Take in rows without a word, and write the file once."""
        last: Row = {}
        for row in rows:
            last = {**row, **self._origin}
            key = self._key(last)
            self._rows[key] = last
            if not last.get(FAILED):
                self._done.add(key)
        if last:
            # Columns may have come since the file was begun.
            columns = list(last) + sorted({name for old in self._rows.values() for name in old} - set(last))
            write_csv(self._path, [{name: old.get(name, "") for name in columns} for old in self._rows.values()])

    def show(self) -> None:
        """Print the rows of this origin as a table."""
        mine = [row for row in self._rows.values() if all(str(row.get(c)) == str(v) for c, v in self._origin.items())]
        if mine:
            columns = [name for name in mine[-1] if name not in COLUMNS]
            print_table([{name: row.get(name, "") for name in columns} for row in mine])
            print(f"\n{self._path}\n")

    def _key(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(_comparable(row.get(name, "")) for name in self._keys)


class Tables:
    """Whole tables of measurements, a CSV file each, with their origin."""

    def __init__(self, directory: Path, *, run: int = 1) -> None:
        """Tables in a directory, which is made; those of several runs of one code stand beside each other.

        Raises:
            UncommittedCode: the rows would be kept, and could not be measured again.
        """
        self._directory = directory
        self._origin = Origin.here(run=run)
        self._origin.check(directory)

    def keep(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a table, at least one row, beside those of other runs of this code on this machine."""
        path = self._directory / f"{name}.csv"
        mine = self._origin.columns()
        written: list[Mapping[str, Any]] = [{**row, **mine} for row in rows]
        others: list[Mapping[str, Any]] = []
        if path.exists():
            with path.open(newline="") as file:
                others = [row for row in csv.DictReader(file) if self._is_of_another_run(row)]
        columns = list(dict.fromkeys(column for row in [*written, *others] for column in row))
        write_csv(path, [{column: row.get(column, "") for column in columns} for row in [*others, *written]])
        print(f"\n{path}\n", flush=True)

    def _is_of_another_run(self, row: Mapping[str, str]) -> bool:
        mine = {name: str(value) for name, value in self._origin.columns().items()}
        return row.get("run") != mine.pop("run") and all(row.get(name) == value for name, value in mine.items())


def tables_option(parser: argparse.ArgumentParser) -> None:
    """`--results DIR` and `--run N`, which `Tables` takes."""
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the CSV files (%(default)s)")
    parser.add_argument("--run", type=int, default=1, help="number of a repetition: its rows stand beside the others")


def _comparable(value: Any) -> str:
    """As text, in which 60, 60.0 and "60" are the same."""
    text = str(value)
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
