"""`python -m eval`: the experiments of the paper, and a report with its figures beside ours.

Measurements are rows in CSV files.  What this code has measured on this machine in this run, with this seed, is not
measured again, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from eval.ending import end_cleanly
from eval.lab.clusters import BACKENDS
from eval.lab.experiments import EXPERIMENTS
from eval.lab.plan import Plan
from eval.origin import Origin, UncommittedCode
from eval.report.data import Results
from eval.report.text import write_report
from eval.rows import Rows
from tests.support.node import CommandFailed

#: Size of a quick run: 4 nodes, the same code.
QUICK = 0.02
#: Rows that the project keeps and reports on; by default a run has a directory of its own.
KEPT = Path("eval/results/lab")


def main() -> None:
    """Run what was asked for, then write the report."""
    arguments = _parse()
    if unknown := set(arguments.experiment) - set(EXPERIMENTS):
        sys.exit(f"there is no experiment {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    if not 0 < arguments.size <= 10:
        sys.exit("the size is a number from 0 to 10: 1 is the paper's")
    end_cleanly()
    plan = Plan(
        size=QUICK if arguments.quick else arguments.size,
        backend=arguments.backend,
        nodes=arguments.nodes,
        seed=arguments.seed,
        patience=arguments.patience,
        results=arguments.results,
        deadline=time.monotonic() + 60 * arguments.minutes,
        profiles=arguments.results / "profiles" if arguments.profile else None,
    )
    try:
        complete = arguments.report or _measure(plan, arguments)
    except UncommittedCode as error:
        sys.exit(str(error))
    report = (KEPT.parent.parent if arguments.results == KEPT else arguments.results) / "REPORT.md"
    write_report(Results(arguments.results), report, arguments.results / "figures")
    print(f"\nwritten: {report}")
    sys.exit(0 if complete else 1)


def _measure(plan: Plan, arguments: argparse.Namespace) -> bool:
    """Run the experiments that were asked for; whether none ended early."""
    complete, here = True, Origin.here(run=arguments.run, seed=plan.seed)
    for number, name in enumerate(names := arguments.experiment or EXPERIMENTS, start=1):
        experiment = EXPERIMENTS[name]
        print(f"\n[{number}/{len(names)}] {name}: {experiment.about}", flush=True)
        rows = {
            file: Rows(plan.results / f"{file}.csv", keys, here, again=arguments.again)
            for file, keys in experiment.files.items()
        }
        try:
            experiment.run(plan, rows)
        except (OSError, CommandFailed, subprocess.SubprocessError) as error:
            # What was measured is kept, and the others do not depend on this one.
            print(f"{name} ended early: {error}", flush=True)
            complete = False
    if plan.over:
        print("\nthe time is up: the same command goes on from here")
    return complete


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m eval",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="experiments:\n" + "\n".join(f"  {name:10} {item.about}" for name, item in EXPERIMENTS.items()),
    )
    parser.add_argument("experiment", nargs="*", metavar="EXPERIMENT", help="default: all of them")
    parser.add_argument("--quick", action="store_true", help=f"--size {QUICK}: half an hour")
    parser.add_argument("--size", type=float, default=1.0, help="1 is the paper's: 30 nodes, 560 writes (default)")
    parser.add_argument("--nodes", type=int, default=0, help="instead of what the size says")
    parser.add_argument("--backend", choices=BACKENDS, default="namespaces", help="what nodes are made of")
    parser.add_argument("--seed", type=int, default=1, help="of contents, orders and bad networks (default: 1)")
    parser.add_argument("--run", type=int, default=1, help="number of a repetition: its rows stand beside the others")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds for a change to be everywhere")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which nothing new is begun")
    parser.add_argument("--again", action="store_true", help="measure again what was measured")
    parser.add_argument("--results", type=Path, default=Plan.results, help="directory of the rows (%(default)s)")
    parser.add_argument("--report", action="store_true", help="only write the report about the rows that are there")
    parser.add_argument("--profile", action="store_true", help="keep profiles of two daemons")
    return parser.parse_args()


if __name__ == "__main__":
    main()
