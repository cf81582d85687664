"""`basefs blocks`: contents on their way (paper, section 4.2)."""

from __future__ import annotations

from typing import Any

import click

from basefs.daemon.config import Home
from basefs.management.output import examples, json_option, print_json, print_table
from basefs.management.session import ask
from basefs.management.target import parse_target
from basefs.management.units import counted, span


@click.command(epilog=examples("basefs blocks etc", "basefs blocks etc --json"))
@click.argument("target", metavar="NAME")
@json_option
def blocks(target: str, as_json: bool) -> None:
    """List the contents of NAME that are not complete here, with the blocks that have come.

    A content is 'receiving' while its blocks arrive, and 'stalled' when none has come for a while. BLOCKS and BYTES are
    here, of a file of SIZE bytes: what travels is compressed, or a difference to what was there, and may be less. LAST
    tells when the last block came. What is complete is counted only.
    """
    home = Home.from_environment()
    found: dict[str, Any] = ask(home, parse_target(home, target).name, "blocks")
    if as_json:
        print_json(found)
        return
    columns = {
        "PATH": "path",
        "STATE": "state",
        "BLOCKS": "blocks",
        "BYTES": "bytes",
        "SIZE": "size",
        "LAST": "since",
        "ENTRY": "entry",
    }
    rows = [{**row, "entry": row["entry"][:12], "since": f"{span(row['since'])} ago"} for row in found["incomplete"]]
    complete = f"all contents are complete: {counted(found['blocks'], 'block')}"
    print_table(columns, rows, complete)
