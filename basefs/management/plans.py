"""How the plan of a grant or revoke looks to people."""

from __future__ import annotations

from typing import Any

import click

from basefs.management.output import print_table

dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="List what would change, and change nothing.")


def print_plan(told: dict[str, Any], *, dry_run: bool) -> None:
    """What a plan does; once it is done, only what the user would not expect, on stderr."""
    if not dry_run:
        for change in told["changed"]:
            before, after = (change[side] or "nothing" for side in ("before", "after"))
            click.echo(f"{change['path']} has changed: {before} -> {after}", err=True)
        return
    rows = [{"what": "acknowledged", "path": path} for path in told["acks"]]
    rows += [
        {"what": "changed", "path": change["path"], "detail": f"{change['before']} -> {change['after']}"}
        for change in told["changed"]
    ]
    for what in ("fallen", "gained"):
        rows += [
            {"what": f"grant {what}", "path": grant["path"], "detail": f"{grant['name']} {grant['fingerprint']}"}
            for grant in told[what]
        ]
    for row in rows:
        row.setdefault("detail", "")
    print_table({"WHAT": "what", "PATH": "path", "DETAIL": "detail"}, rows, "nothing would change")
