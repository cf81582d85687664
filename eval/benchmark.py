"""The command line of a benchmark: where its rows go, and how it ends."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from eval.ending import end_cleanly
from eval.origin import Origin, UncommittedCode
from eval.rows import FAILURES, Rows

#: Rows of one's own; those that the project keeps are in eval/results.
RESULTS = Path("build/eval")


def scenario_parser(description: str | None, scenarios: Mapping[str, str]) -> argparse.ArgumentParser:
    """The command line of a benchmark with scenarios, which `--scenario` chooses: what each is about, by name."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:10} {about}" for name, about in scenarios.items()),
    )
    parser.add_argument("--scenario", choices=scenarios, action="append", help="default: all of them")
    return parser


class Benchmark:
    """One run of a benchmark; a context manager.

    A signal ends it as Ctrl-C does, so that no mount, process or namespace stays.  At its end it prints the rows, and
    exits with 1 where a measurement failed.

    Attributes:
        options: what the command line says.
    """

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        """Read the command line; the options that all benchmarks have are added to `parser`."""
        parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the CSV files (%(default)s)")
        parser.add_argument(
            "--run", type=int, default=1, help="number of a repetition: its rows stand beside the others"
        )
        parser.add_argument("--again", action="store_true", help="measure again what was measured")
        self.options = parser.parse_args()
        self._origin = Origin.here(run=self.options.run, seed=getattr(self.options, "seed", 1))
        self._files: list[Rows] = []
        self._failed = False
        end_cleanly()

    def rows(self, name: str, keys: Sequence[str]) -> Rows:
        """The rows of a file.  Exits where they would be kept and the code is not committed.

        Args:
            name: of the file, without `.csv`.
            keys: the columns that tell rows of one origin apart.
        """
        path = self.options.results / f"{name}.csv"
        try:
            rows = Rows(path, keys, self._origin, again=self.options.again)
        except UncommittedCode as error:
            sys.exit(str(error))
        self._files.append(rows)
        return rows

    @contextlib.contextmanager
    def going_on(self, what: str) -> Iterator[None]:
        """Measure something; where it fails, the run says so and goes on behind it."""
        try:
            yield
        except FAILURES as error:
            print(f"{what} ended early: {error}", file=sys.stderr, flush=True)
            self._failed = True

    def __enter__(self) -> Benchmark:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for rows in self._files:
            rows.show()
        if kind is KeyboardInterrupt:
            sys.exit(f"interrupted: what was measured is in {self.options.results}")
        if kind is None and (self._failed or any(rows.failures for rows in self._files)):
            sys.exit("some measurements failed: their rows say why")
