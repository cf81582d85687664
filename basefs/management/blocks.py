"""`basefs blocks`: contents on their way (paper, section 4.2)."""

from __future__ import annotations

import click

from basefs.daemon.api.messages import GetContentState, encode
from basefs.daemon.config import Home
from basefs.management.output import SHORT, counted, examples, json_option, print_json, print_table, size, span
from basefs.management.session import ask
from basefs.management.target import parse_name


@click.command(epilog=examples("basefs blocks etc", "basefs blocks etc --json"))
@click.argument("target", metavar="NAME")
@json_option
def blocks(target: str, as_json: bool) -> None:
    """List the contents of NAME that are incomplete on this node, and how much of each has arrived.

    PROGRESS: receiving; stalled (no block has arrived for a while); no room (max_log_bytes or min_free is reached);
    withheld (no file shows it, because its key is not valid there); spoiled (a block of another size than the entry
    states). Until a content is complete, the file shows the previous one.

    BLOCKS and BYTES have arrived so far; SIZE is that of the file. BYTES may stay below it, because blocks are
    compressed, or are differences from an earlier content. LAST is the time since the last block. Complete contents are
    only counted.
    """
    home = Home.from_environment()
    found = ask(home, parse_name(home, target), GetContentState())
    if as_json:
        print_json(encode(found))
        return
    rows = [
        (
            row.path,
            row.progress,
            row.blocks,
            size(row.bytes),
            size(row.size),
            f"{span(row.quiet)} ago",
            row.entry[:SHORT],
        )
        for row in found.contents
    ]
    titles = ("PATH", "PROGRESS", "BLOCKS", "BYTES", "SIZE", "LAST", "ENTRY")
    print_table(titles, rows, f"all contents of the log are complete: {counted(found.blocks, 'block')}")
