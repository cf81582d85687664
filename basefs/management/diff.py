"""`basefs diff`: what differs between two moments of a path."""

from __future__ import annotations

import click

from basefs.daemon.api.messages import ListDifferences
from basefs.daemon.config import Home
from basefs.management.differences import differences, print_difference
from basefs.management.output import examples, json_option, note, print_json
from basefs.management.session import ask
from basefs.management.target import parse_target
from basefs.management.times import parse_moment


@click.command(
    epilog=examples(
        "basefs diff etc:/nginx",
        "basefs diff etc:/nginx yesterday",
        "basefs diff /cluster/hosts 5f3a09c1d2e4 a334fa7301be",
        "basefs diff etc:/ '2 hours ago' 1h",
    )
)
@click.argument("target", metavar="NAME:/PATH")
@click.argument("old", metavar="[A]", required=False)
@click.argument("new", metavar="[B]", required=False)
@json_option
def diff(target: str, old: str | None, new: str | None, as_json: bool) -> None:
    """Show what differs at and below a path between A and B; without B, between A and now.

    A and B are times (15m, '2 hours ago', 18:56, yesterday, '2026-01-31 12:00') or hashes that 'basefs log' lists. A
    time stands for what this node had then; a hash for that revision of the path, or for the moment at which another
    entry arrived here. Without A and B, the last change there is shown. 'patch -p1' applies the output to text files.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    moments = (None if text is None else parse_moment(text) for text in (old, new))
    found = ask(home, parsed.name, ListDifferences(parsed.path, *moments))
    compared = differences(home, parsed.name, found)
    if as_json:
        print_json([one.encoded() for one in compared])
    elif not found:
        note("no differences")
    else:
        for one in compared:
            print_difference(one)
