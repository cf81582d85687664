"""`basefs keys`: who may write where."""

from __future__ import annotations

import click

from basefs.config import Home
from basefs.management.output import json_option, print_json, print_table
from basefs.management.session import ask, default_keys
from basefs.management.target import parse_target


@click.command()
@click.argument("target", metavar="[NAME[:/PATH]]", required=False)
@json_option
def keys(target: str | None, as_json: bool) -> None:
    """List the keys granted in a filesystem, or those that count at a path; without NAME, this node's own key."""
    home = Home.from_environment()
    if target is None:
        rows = [
            {"path": str(home.default_key), "fingerprint": key.fingerprint.hex(), "public": key.public.hex()}
            for key in default_keys(home)
        ]
        columns = {"KEY": "path", "FINGERPRINT": "fingerprint", "PUBLIC": "public"}
        empty = f"there is no key at {home.default_key}: 'basefs genkey' makes one"
    else:
        parsed = parse_target(home, target)
        rows = ask(home, parsed.name, "keys", path=parsed.path)
        columns = {
            "NAME": "name",
            "FINGERPRINT": "fingerprint",
            "OWN": "own",
            "GRANTED BY": "granted_by",
            "PATH": "path",
        }
        empty = "no key is granted there"
    if as_json:
        print_json(rows)
    else:
        print_table(columns, rows, empty)
