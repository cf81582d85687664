"""`basefs blocks`: contents on their way (paper, section 4.2)."""

from __future__ import annotations

import click

from basefs.daemon.api.messages import GetContentState, encode
from basefs.daemon.config import Home
from basefs.management.output import SHORT, counted, examples, json_option, print_json, print_table, span
from basefs.management.session import ask
from basefs.management.target import parse_target


@click.command(epilog=examples("basefs blocks etc", "basefs blocks etc --json"))
@click.argument("target", metavar="NAME")
@json_option
def blocks(target: str, as_json: bool) -> None:
    """List the contents of NAME that are incomplete on this node, and how much of each has arrived.

    A content is 'receiving' while its blocks arrive, and 'stalled' when none has arrived for a while. BLOCKS and BYTES
    have arrived, of a file of SIZE bytes: blocks are compressed, or differences to an earlier content, and may be
    smaller. LAST shows when the last block arrived. Complete contents are only counted.
    """
    home = Home.from_environment()
    found = ask(home, parse_target(home, target).name, GetContentState())
    if as_json:
        print_json(encode(found))
        return
    rows = [
        (row.path, row.state, row.blocks, row.bytes, row.size, f"{span(row.since)} ago", row.entry[:SHORT])
        for row in found.incomplete
    ]
    titles = ("PATH", "STATE", "BLOCKS", "BYTES", "SIZE", "LAST", "ENTRY")
    print_table(titles, rows, f"all contents are complete: {counted(found.blocks, 'block')}")
