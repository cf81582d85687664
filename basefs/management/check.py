"""`basefs check`: whether a log is whole."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from basefs.daemon.config import Home
from basefs.daemon.lock import exclusive
from basefs.log.check import check as check_log
from basefs.log.check import count_rows, open_log
from basefs.log.rebuild import Finding
from basefs.log.repair import repair as repair_log
from basefs.management.output import examples, json_option, print_json, print_table
from basefs.management.progress import count_bar
from basefs.management.session import ask
from basefs.replica.replica import LOG_FILE


@click.command(epilog=examples("basefs check etc", "basefs check etc --repair"))
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
        with exclusive(path.parent, name), count_bar("check", _row_count(path)) as progress:
            findings, aside = repair_log(path, progress)
    else:
        with count_bar("check", _row_count(path)) as progress:
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


def _row_count(path: Path) -> int | None:
    with contextlib.closing(open_log(path)) as source:
        return count_rows(source)
