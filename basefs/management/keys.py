"""`basefs keys`: who may write where."""

from __future__ import annotations

import dataclasses

import click

from basefs.daemon.config import Home
from basefs.daemon.keyfiles import own_key_files
from basefs.management.output import examples, json_option, print_json, print_table
from basefs.management.session import ask
from basefs.management.target import parse_target


@click.command(epilog=examples("basefs keys", "basefs keys etc", "basefs keys etc:/nginx --all"))
@click.argument("target", metavar="[NAME[:/PATH]]", required=False)
@click.option("-d", "--directories", is_flag=True, help="Order by directory instead of by key.")
@click.option("-a", "--all", "every", is_flag=True, help="List also the grants that do not count any more.")
@json_option
def keys(target: str | None, directories: bool, every: bool, as_json: bool) -> None:
    """List the keys granted in a filesystem, or those that count at a path; without NAME, this node's own key.

    DEPTH is the authority of the key there: 0 for a key granted on '/', the highest, 1 for one granted on '/x', and so
    on. STATE tells whether the grant counts: valid; revoked; fallen, because who granted it lost his own; gone with its
    path.
    """
    home = Home.from_environment()
    if target is None:
        rows = [dataclasses.asdict(key) for key in own_key_files(home)]
        columns = {"KEY": "path", "FINGERPRINT": "fingerprint", "PUBLIC": "public"}
        empty = f"there is no key at {home.default_key}: 'basefs genkey' makes one"
    else:
        parsed = parse_target(home, target)
        rows = ask(home, parsed.name, "keys", path=parsed.path, every=every)
        if not directories:
            rows.sort(key=lambda row: (row["name"], row["fingerprint"]))
        columns = {
            "NAME": "name",
            "FINGERPRINT": "fingerprint",
            "OWN": "own",
            "DEPTH": "depth",
            "STATE": "standing",
            "GRANTED BY": "by",
            "PATH": "path",
        }
        if directories:
            columns = {"PATH": columns.pop("PATH"), **columns}
        empty = "no key is granted there"
    if as_json:
        print_json(rows)
    else:
        shown = [{**row, "by": row.get("granted_by_name") or row.get("granted_by")} for row in rows]
        print_table(columns, shown, empty)
