"""`basefs check`: whether a log is whole."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from basefs.config import Home
from basefs.lock import exclusive
from basefs.log.check import check as check_log
from basefs.log.check import count_rows, open_log
from basefs.log.rebuild import Finding
from basefs.log.repair import repair as repair_log
from basefs.management.output import json_option, print_json, print_table
from basefs.management.session import ask
from basefs.replica import LOG_FILE


@click.command()
@click.argument("name")
@click.option("--repair", is_flag=True, help="Drop what is damaged; the other nodes bring it back.")
@json_option
def check(name: str, repair: bool, as_json: bool) -> None:
    """Verify every hash, signature and derived row of a log, and that the tree shown is the tree logged.

    Ends with 0 if all is well or was repaired, with 1 if not. Works while the filesystem is mounted; --repair does not.
    A repair keeps the damaged log under another name.
    """
    home = Home.from_environment()
    path = home.existing(name) / LOG_FILE
    aside: Path | None = None
    if repair:
        with exclusive(path.parent, name), _progress(path) as progress:
            findings, aside = repair_log(path, progress)
    else:
        with _progress(path) as progress:
            findings = check_log(path, progress)
    differing = [] if findings and aside is None else ask(home, name, "check_view")
    findings += [Finding("view", path, "it shows something else than the log") for path in differing]
    rows = [dataclasses.asdict(finding) for finding in findings]
    if as_json:
        print_json({"findings": rows, "repaired": None if aside is None else str(aside)})
    else:
        _print(name, rows, aside)
    if rows and (aside is None or differing):
        sys.exit(1)


def _print(name: str, rows: list[dict[str, Any]], aside: Path | None) -> None:
    for row in rows:
        row["remedy"] = "from a peer" if row["lost"] else "from the log"
    print_table({"TABLE": "table", "ROW": "row", "PROBLEM": "problem", "REMEDY": "remedy"}, rows, f"{name} is whole")
    if aside is not None:
        click.echo(f"repaired: run {name}, and its peers bring what is missing; the old log is {aside}", err=True)
    elif rows:
        click.echo(f"basefs: {name} is damaged, {len(rows)} findings: 'basefs check {name} --repair'", err=True)


@contextlib.contextmanager
def _progress(path: Path) -> Iterator[Callable[[int], None]]:
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        with contextlib.closing(open_log(path)) as source:
            task = progress.add_task("check", total=count_rows(source))
        yield lambda rows: progress.advance(task, rows)
