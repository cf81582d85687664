"""`basefs list`: the filesystems of this node."""

from __future__ import annotations

from typing import Any

import click

from basefs.daemon.api.client import Look
from basefs.daemon.api.messages import GetSummary, Summary, encode
from basefs.daemon.config import Home
from basefs.management.output import examples, json_option, note, print_json, print_table, size
from basefs.management.session import client

#: What is said where a list of filesystems is empty.
NONE_HERE = "no filesystem here: 'basefs bootstrap NAME' makes one, 'basefs join' or 'basefs get NAME ADDR' brings one"


@click.command(epilog=examples("basefs list", "basefs list --json"))
@json_option
def list(as_json: bool) -> None:
    """List the filesystems on this node, with their state and size."""
    home = Home.from_environment()
    found = [client(home, name).look(GetSummary()) for name in home.names()]
    if as_json:
        print_json(encode(found))
        return
    hint_other_home(home)
    print_table(
        ("NAME", "STATE", "MOUNTPOINT", "ENTRIES", "SIZE", "IDENTITY"), [_cells(look) for look in found], NONE_HERE
    )
    for look in found:
        if look.failure is not None:
            note(f"basefs: {look.name}: {look.failure.error}")


def hint_other_home(home: Home) -> None:
    """Name the other home of this machine, if there are filesystems in it."""
    other = home.other()
    if other is not None:
        names = ", ".join(other.names())
        note(f"this is {home.path}; for {names} set BASEFS_HOME={other.path}")


def _cells(look: Look[Summary]) -> tuple[Any, ...]:
    summary = look.answer
    if summary is None:
        return (look.name, look.state, look.mountpoint, None, None, None)
    return (look.name, look.state, look.mountpoint, summary.entries, size(summary.bytes), summary.identity)
