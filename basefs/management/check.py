"""`basefs check`: whether a log is whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from basefs.daemon.api.logfile import LogFile
from basefs.daemon.api.messages import CheckView, CompareViews, encode
from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.management.output import counted, examples, json_option, note, print_json, print_table
from basefs.management.progress import count_bar
from basefs.management.session import ask, ask_daemon
from basefs.management.target import parse_name


@click.command(epilog=examples("basefs check etc", "basefs check etc --repair", "basefs check etc --peers"))
@click.argument("name")
@click.option("--repair", is_flag=True, help="Drop damaged rows; other nodes send them again.")
@click.option("--peers", is_flag=True, help="Ask the other nodes instead whether they show the same.")
@json_option
def check(name: str, repair: bool, peers: bool, as_json: bool) -> None:
    """Verify every hash and signature of a log, and that its tables and the tree shown follow from its entries.

    Exit code: 0 for an intact or repaired log, 1 for a damaged one. Works while the filesystem is mounted; --repair
    does not. A repair keeps the damaged log under another name.

    --peers compares a hash of all that is shown, by a running daemon, with those of the members that answer and have
    the same log: VIEW is same, differs or unknown. Exit code: 1 if one differs.
    """
    home = Home.from_environment()
    name = parse_name(home, name)
    if peers:
        if repair:
            raise UsageError("--repair and --peers do not go together: give one of them")
        _compare(home, name, as_json)
        return
    log = LogFile(home, name)
    with count_bar("check", log.count_rows()) as progress:
        found = log.repair(progress) if repair else log.check(progress)
    differing = [] if found.findings and found.aside is None else ask(home, name, CheckView())
    rows = [
        {"table": one.table, "row": one.row, "problem": one.problem, "needs_peer": one.lost} for one in found.findings
    ]
    rows += [
        {"table": "view", "row": path, "problem": "it shows something else than the log", "needs_peer": False}
        for path in differing
    ]
    if as_json:
        print_json({"findings": rows, "repaired": None if found.aside is None else str(found.aside)})
    else:
        _print(name, rows, found.aside)
    if rows and (found.aside is None or differing):
        sys.exit(1)


def _compare(home: Home, name: str, as_json: bool) -> None:
    # The largest trees take some seconds, on this node and then on the others.
    found = ask_daemon(home, name, CompareViews(10.0))
    if as_json:
        print_json(encode(found))
    else:
        print_table(("NAME", "VIEW"), [(one.name, one.view) for one in found], "no other member answers")
    if any(one.view == "differs" for one in found):
        sys.exit(1)


def _print(name: str, rows: list[dict[str, Any]], aside: Path | None) -> None:
    cells = [
        (row["table"], row["row"], row["problem"], "from a peer" if row["needs_peer"] else "from the log")
        for row in rows
    ]
    print_table(("TABLE", "ROW", "PROBLEM", "REMEDY"), cells, f"{name} is intact")
    if aside is not None:
        note(f"repaired: run {name}, and its peers bring what is missing; the old log is {aside}")
    elif rows:
        note(f"basefs: {name} is damaged, {counted(len(rows), 'finding')}: 'basefs check {name} --repair'")
