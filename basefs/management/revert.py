"""`basefs revert`: bring back what was."""

from __future__ import annotations

import click

from basefs.daemon.api.messages import Revert
from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.management.output import examples, json_option, parse_moment, print_json
from basefs.management.progress import waiting
from basefs.management.session import ask
from basefs.management.target import parse_target, require_path


@click.command(
    epilog=examples(
        "basefs revert etc:/hosts 5f3a09c1d2e4",
        "basefs revert /cluster/nginx --at 15m",
        "basefs revert etc:/ --at '2026-01-31 12:00'",
    )
)
@click.argument("target", metavar="NAME:/PATH")
@click.argument("entry", metavar="[HASH]", required=False)
@click.option("--at", "moment", metavar="TIME", help="Bring back what this node had at a time, with all below.")
@json_option
def revert(target: str, entry: str | None, moment: str | None, as_json: bool) -> None:
    """Restore a path to a revision that 'basefs log' lists, or to a time.

    A deleted path comes back, and so does a revision that lost a conflict. To bring back a directory with all below it,
    give the HASH of an entry below it, or a TIME such as '2026-01-31 12:00' or 15m (that long ago): what has
    arrived on this node since then is undone there, also what is new. A revert is itself a change that can be reverted.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    path = require_path(parsed)
    if (entry is None) == (moment is None):
        raise UsageError("give either the HASH of a revision or --at TIME")
    request = Revert(path, entry, None if moment is None else parse_moment(moment))
    with waiting("looking for what differs"):
        entries = ask(home, parsed.name, request)
    if as_json:
        print_json({"entries": entries})
    elif not entries:
        click.echo("that is what is there now: nothing to do", err=True)
