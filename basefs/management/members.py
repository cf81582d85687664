"""`basefs members`: who is in the cluster."""

from __future__ import annotations

from typing import Any

import click

from basefs.config import Home
from basefs.management.output import examples, json_option, print_json, print_table
from basefs.management.session import ask_daemon
from basefs.management.target import parse_target


@click.command(epilog=examples("basefs members etc", "basefs members etc --json"))
@click.argument("target", metavar="NAME")
@json_option
def members(target: str, as_json: bool) -> None:
    """List the members of a running filesystem's cluster.

    COMPARED tells when this node's log and theirs were last compared, and whether they were equal then; LAG, how many
    entries a member is behind or ahead of this node, at least, as far as it has told; PUSH, whether a session stays
    open over which news goes at once; SENT and RECEIVED, the bytes of all sessions that have ended.
    """
    home = Home.from_environment()
    # Serf lists them in no order.
    rows = sorted(ask_daemon(home, parse_target(home, target).name, "members"), key=lambda row: row["name"])
    if as_json:
        print_json(rows)
        return
    columns = {
        "NAME": "name",
        "ADDRESS": "address",
        "STATUS": "status",
        "COMPARED": "when",
        "LAG": "lag",
        "PUSH": "standing",
        "SENT": "sent",
        "RECEIVED": "received",
        "": "note",
    }
    print_table(columns, [_told(row) for row in rows], "no members yet")


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A row in words."""
    if row["own"]:
        return {"name": row["name"], "address": row["address"], "status": row["status"], "note": "this node"}
    when = None
    if row["compared"] is not None:
        when = f"{row['compared']:.0f} s ago{'' if row['equal'] else ', differed'}"
    note = row["trouble"] if row["same_filesystem"] else "another filesystem"
    return {**row, "when": when, "lag": _lag(row["lag"]), "note": note}


def _lag(lag: dict[str, Any] | None) -> str | None:
    """How far the logs are apart: numbers where they tell it."""
    if lag is None:
        return None
    for side in ("behind", "ahead"):
        if lag[side]:
            return f"{lag[side]} {side}"
    return "differs" if lag["differs"] else "0"
