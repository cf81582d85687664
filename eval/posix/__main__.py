"""`make posix`: public test programs on a BaseFS mount and on the plain disk.

A case that passes on the disk and fails on the mount is a deviation; docs/posix.md lists each with its reason.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from eval.benchmark import Benchmark
from eval.places import PLACES
from eval.posix.deviations import is_known
from eval.posix.outcome import Outcome, Status
from eval.posix.python import python
from eval.posix.rust import find, fsx, pjdfstest
from eval.posix.stress import stress
from eval.posix.tools import git, make, sqlite
from eval.rows import Row

Program = Callable[[Path, Path], list[Outcome]]

#: Quick ones first.
PROGRAMS: dict[str, Program] = {
    "git": git,
    "make": make,
    "sqlite": sqlite,
    "python": python,
    "pjdfstest": pjdfstest,
    "stress-ng": stress,
    "fsx": fsx,
}
#: Programs that cargo brings: they cannot run without it.
_FROM_CARGO = ("pjdfstest", "fsx")


def main() -> None:
    """Run what was asked for, write tables of the programs and of every deviation as CSV, and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PROGRAMS, help="run this program; repeatable")
    with Benchmark(parser) as benchmark:
        rows = benchmark.rows("posix", ("program",))
        deviations = benchmark.rows("posix_deviations", ("program", "case"))
        for name in benchmark.options.only or PROGRAMS:
            if rows.has(program=name):
                continue
            if name in _FROM_CARGO and find(name) is None:
                print(f"{name} is not here: 'cargo install {name}' brings it", file=sys.stderr)
                continue
            with benchmark.going_on(name), rows.recording(program=name):
                row, found = compare(name, PROGRAMS[name])
                rows.add({"program": name, **row})
                deviations.add_all({"program": name, **deviation} for deviation in found)


def compare(name: str, program: Program) -> tuple[Row, list[Row]]:
    """One program on the disk and on a mount: counts, and the cases that fail on the mount alone."""
    results: dict[str, dict[str, Outcome]] = {}
    seconds: dict[str, float] = {}
    for place in ("disk", "BaseFS"):
        results[place], seconds[place] = _run(program, place)
    disk, ours = results["disk"], results["BaseFS"]
    found: list[Row] = [
        {"case": case, "listed": "yes" if is_known(name, case) else "no", "detail": outcome.detail}
        for case, outcome in ours.items()
        if outcome.status is Status.FAILED and (case not in disk or disk[case].status is not Status.FAILED)
    ]
    row: Row = {}
    for place, outcomes in results.items():
        for status in Status:
            row[f"{place} {status.value}"] = sum(outcome.status is status for outcome in outcomes.values())
        row[f"{place} s"] = round(seconds[place], 1)
    row["deviations"] = len(found)
    row["not listed"] = sum(deviation["listed"] == "no" for deviation in found)
    return row, found


def _run(program: Program, place: str) -> tuple[dict[str, Outcome], float]:
    with tempfile.TemporaryDirectory(prefix="basefs-posix-") as text:
        directory = Path(text)
        # Programs that change their user must get there.
        directory.chmod(0o755)
        scratch = directory / "scratch"
        scratch.mkdir()
        with PLACES[place](directory / "place") as root:
            where = root / "here"
            where.mkdir()
            start = time.monotonic()
            outcomes = program(where, scratch)
            return {outcome.case: outcome for outcome in outcomes}, time.monotonic() - start


if __name__ == "__main__":
    main()
