"""`basefs keys`: which key may write where."""

from __future__ import annotations

from typing import Any

import click

from basefs.daemon.api.messages import GetRecovery, ListKeys, encode
from basefs.daemon.config import Home
from basefs.daemon.keyfiles import own_key_files
from basefs.management.output import (
    SHORT,
    examples,
    json_option,
    print_json,
    print_table,
    say,
)
from basefs.management.session import ask
from basefs.management.target import parse_target


@click.command(epilog=examples("basefs keys", "basefs keys etc", "basefs keys etc:/nginx --all"))
@click.argument("target", metavar="[NAME[:/PATH]]", required=False)
@click.option("-d", "--directories", is_flag=True, help="Order by directory instead of by key.")
@click.option("-a", "--all", "every", is_flag=True, help="Also list grants that are no longer valid.")
@json_option
def keys(target: str | None, directories: bool, every: bool, as_json: bool) -> None:
    """List the keys granted in a filesystem, or those valid at a path; without NAME, this node's own key.

    DEPTH is the authority of the key there: 0 for a key granted on '/', the highest, 1 for one granted on '/x', and so
    on; a key without one may only read. STANDING is valid; reads (the path was deleted, and the key may still read);
    revoked; fallen (the granter's own grant was revoked); or gone (the path was deleted). Recovery keys, if the
    filesystem has any, are listed below, with the present root key.
    """
    home = Home.from_environment()
    if target is None:
        _print_own(home, as_json)
        return
    parsed = parse_target(home, target)
    granted = ask(home, parsed.name, ListKeys(None if parsed.path == "/" else parsed.path, every))
    if not directories:
        granted.sort(key=lambda one: (one.name, one.fingerprint))
    if as_json:
        print_json(encode(granted))
        return
    rows: list[tuple[Any, ...]] = [
        (
            one.name,
            one.fingerprint[:SHORT],
            one.own,
            one.depth,
            one.standing,
            one.granted_by_name or one.granted_by[:SHORT],
            one.path,
        )
        for one in granted
    ]
    titles: tuple[str, ...] = ("NAME", "FINGERPRINT", "OWN", "DEPTH", "STANDING", "GRANTED BY", "PATH")
    if directories:
        titles, rows = titles[-1:] + titles[:-1], [row[-1:] + row[:-1] for row in rows]
    print_table(titles, rows, "no key is granted there")
    if parsed.path == "/":
        _print_recovery(home, parsed.name)


def _print_recovery(home: Home, name: str) -> None:
    """The root key and the recovery keys, in a filesystem that has any."""
    state = ask(home, name, GetRecovery())
    if state.keys:
        keys = ", ".join(key.fingerprint[:SHORT] for key in state.keys)
        since = f", by recovery {state.last}" if state.last else ""
        click.echo()
        say(f"{state.root_key.fingerprint[:SHORT]}{since}", label="root key:      ")
        say(f"{state.threshold} of {keys}", label="recovery keys: ")


def _print_own(home: Home, as_json: bool) -> None:
    found = own_key_files(home)
    if as_json:
        print_json(encode(found))
        return
    rows = [(key.file, key.fingerprint[:SHORT], key.public) for key in found]
    empty = f"there is no key at {home.default_key}: 'basefs genkey' makes one"
    print_table(("KEY", "FINGERPRINT", "PUBLIC"), rows, empty)
