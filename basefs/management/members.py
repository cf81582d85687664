"""`basefs members`: who is in the cluster."""

from __future__ import annotations

from typing import Any

import click

from basefs.daemon.config import Home
from basefs.management.output import examples, json_option, print_json, print_table, printable
from basefs.management.session import ask_daemon
from basefs.management.target import parse_target
from basefs.management.units import span


@click.command(epilog=examples("basefs members etc", "basefs members etc --json"))
@click.argument("target", metavar="NAME")
@json_option
def members(target: str, as_json: bool) -> None:
    """List the members of a running filesystem's cluster.

    STATUS is what Serf believes. COMPARED tells when this node's log and theirs were last compared, and whether they
    were equal then; LAG, how many entries a member is behind or ahead of this node, at least, as far as it has told;
    PUSH, whether a session stays open over which news goes at once; SENT and RECEIVED, the bytes of all sessions with
    it. Behind them is what went wrong last, or for how long the member is banned because it broke a rule.
    """
    home = Home.from_environment()
    name = parse_target(home, target).name
    # Serf lists them in no order.
    rows = sorted(ask_daemon(home, name, "members"), key=lambda row: row["name"])
    network = ask_daemon(home, name, "network")
    if not network["serf_connected"]:
        click.echo("the Serf agent does not run at the moment: STATUS is what it told last", err=True)
    elif network["serf_trouble"] and not any(row["same_filesystem"] and not row["own"] for row in rows):
        click.echo(f"nobody else has joined: {printable(network['serf_trouble'])}", err=True)
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
    if not row["same_filesystem"]:
        return {"name": row["name"], "address": row["address"], "status": row["status"], "note": "another filesystem"}
    when = None
    if row["compared"] is not None:
        when = f"{span(row['compared'])} ago{'' if row['equal'] else ', differed'}"
    note = row["trouble"]
    if row["banned"] is not None:
        # Whole seconds, of which the last one counts.
        note = f"banned for {span(row['banned'] + 1)}" + (f": {note}" if note else "")
    return {**row, "when": when, "lag": _lag(row), "note": note}


def _lag(row: dict[str, Any]) -> str | None:
    """How far the logs are apart: numbers where they tell it."""
    lag = row["lag"]
    if lag is None:
        return None
    for side in ("behind", "ahead"):
        if lag[side]:
            return f"{lag[side]} {side}"
    if lag["differs"]:
        return "differs"
    # Who cannot be reached may have written what nobody has heard of.
    return "0" if row["reachable"] and row["status"] == "alive" else "unknown"
