"""`basefs check`: whether a log is whole."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from basefs.daemon.api.inspection import LogFile
from basefs.daemon.api.messages import CheckView
from basefs.daemon.config import Home
from basefs.management.output import examples, json_option, print_json, print_table
from basefs.management.progress import count_bar
from basefs.management.session import ask


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
    log = LogFile(home, name)
    with count_bar("check", log.count_rows()) as progress:
        found = log.repair(progress) if repair else log.check(progress)
    differing = [] if found.findings and found.aside is None else ask(home, name, CheckView())
    rows = [dataclasses.asdict(finding) for finding in found.findings]
    rows += [
        {"table": "view", "row": path, "problem": "it shows something else than the log", "lost": False}
        for path in differing
    ]
    if as_json:
        print_json({"findings": rows, "repaired": None if found.aside is None else str(found.aside)})
    else:
        _print(name, rows, found.aside)
    if rows and (found.aside is None or differing):
        sys.exit(1)


def _print(name: str, rows: list[dict[str, Any]], aside: Path | None) -> None:
    cells = [
        (row["table"], row["row"], row["problem"], "from a peer" if row["lost"] else "from the log") for row in rows
    ]
    print_table(("TABLE", "ROW", "PROBLEM", "REMEDY"), cells, f"{name} is whole")
    if aside is not None:
        click.echo(f"repaired: run {name}, and its peers bring what is missing; the old log is {aside}", err=True)
    elif rows:
        click.echo(f"basefs: {name} is damaged, {len(rows)} findings: 'basefs check {name} --repair'", err=True)
