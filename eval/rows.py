"""Rows of measurements in a CSV file, written as they come: what was measured counts, however the run ends."""

from __future__ import annotations

import contextlib
import csv
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.origin import COLUMNS, STRAIN, Moment, Origin
from eval.tables import print_table, write_csv
from tests.support.node import CommandFailed

Row = dict[str, Any]

#: Seconds below which rows are of the same measurement, which one strain is said of.
_SHORTEST = 0.5
#: The column of a measurement that failed, which says why.
FAILED = "failed"
#: How measurements fail that say nothing of the others: nodes, programs and time.
FAILURES = (OSError, CommandFailed, subprocess.SubprocessError)


class Rows:
    """The rows of one kind of measurement, those of earlier runs, other code and other machines included.

    Attributes:
        failures: measurements that failed since then.
    """

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
        self._since = Moment.now()
        self._strain: Row = {}
        self.failures = 0

    def has(self, **key: Any) -> bool:
        """Whether this was measured, by this code on this machine in this run, and need not be measured again."""
        return self._key({**key, **self._origin}) in self._done

    @contextlib.contextmanager
    def recording(self, **key: Any) -> Iterator[None]:
        """While something is measured: what fails, or takes too long, is a row as well, and is raised again.

        What has a row before it fails, as when a cluster does not end in good order, keeps that.
        """
        self._since, self._strain = Moment.now(), {}
        try:
            yield
        except Exception as error:
            self.failures += 1
            if not self.has(**key):
                self.add({**key, FAILED: " ".join(str(error).split()) or type(error).__name__})
            raise

    def measure(self, work: Callable[[], Row], **key: Any) -> None:
        """Measure what has no row yet: `work` returns the other columns.

        What fails, or takes too long, is a row, and the measurements behind it go on.
        """
        if not self.has(**key):
            with contextlib.suppress(*FAILURES), self.recording(**key):
                self.add({**key, **work()})

    def add(self, row: Row, *, quiet: bool = False) -> None:
        """Take in a row, instead of an older one of the same key; write the file, and unless `quiet` print the row."""
        if not quiet:
            print("  ".join(f"{name}={_short(value)}" for name, value in row.items()), flush=True)
        self.add_all([row])

    def add_all(self, rows: Iterable[Row]) -> None:
        """Take in rows of one measurement without a word, and write the file once."""
        now = Moment.now()
        if not self._strain or now.at - self._since.at > _SHORTEST:
            self._strain, self._since = now.strain(self._since), now
        last: Row = {}
        for row in rows:
            last = {**row, **self._strain, **self._origin}
            key = self._key(last)
            self._forget_unknown(key)
            self._rows[key] = last
            if not last.get(FAILED):
                self._done.add(key)
        if last:
            # Columns may have come since the file was begun.
            columns = list(last) + sorted({name for old in self._rows.values() for name in old} - set(last))
            write_csv(self._path, [{name: old.get(name, "") for name in columns} for old in self._rows.values()])

    def _forget_unknown(self, key: tuple[str, ...]) -> None:
        """Remove rows of the same measurement that name no commit, now that there is one that does."""
        own = len(self._keys) - len(COLUMNS)
        if self._origin["commit"]:
            unknown = [old for old, row in self._rows.items() if old[:own] == key[:own] and not row.get("commit")]
            for old in unknown:
                del self._rows[old]

    def show(self) -> None:
        """Print the rows of this origin as a table."""
        mine = [row for row in self._rows.values() if all(str(row.get(c)) == str(v) for c, v in self._origin.items())]
        if mine:
            columns = dict.fromkeys(name for row in mine for name in row if name not in (*COLUMNS, *STRAIN))
            print_table([{name: row.get(name, "") for name in columns} for row in mine])
            print(f"\n{self._path}\n", flush=True)

    def _key(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(_comparable(row.get(name, "")) for name in self._keys)


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
