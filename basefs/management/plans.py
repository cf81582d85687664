"""How the plan of a grant or revoke looks to people."""

from __future__ import annotations

from typing import Any

import click

from basefs.management.output import print_table, printable
from basefs.management.rows import SHORT

dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="List what would change, and change nothing.")


def print_plan(told: dict[str, Any], *, dry_run: bool) -> None:
    """What a plan does; once it is done, only what the user would not expect, on stderr."""
    if not dry_run:
        for change in told["changed"]:
            click.echo(f"{printable(change['path'])} has changed: {_sides(change)}", err=True)
        return
    rows = [{"what": "acknowledged", "path": path} for path in told["acks"]]
    rows += [{"what": "changed", "path": change["path"], "detail": _sides(change)} for change in told["changed"]]
    for what in ("fallen", "gained"):
        rows += [
            {"what": f"grant {what}", "path": grant["path"], "detail": f"{grant['name']} {grant['fingerprint']}"}
            for grant in told[what]
        ]
    for row in rows:
        row.setdefault("detail", "")
    print_table({"WHAT": "what", "PATH": "path", "DETAIL": "detail"}, rows, "nothing would change")


def _sides(change: dict[str, Any]) -> str:
    return f"{_side(change['before'])} -> {_side(change['after'])}"


def _side(side: dict[str, Any] | None) -> str:
    if side is None:
        return "nothing"
    size = f" of {side['size']} B" if side["kind"] == "file" else ""
    return f"{side['kind']}{size} ({side['entry'][:SHORT]})"
