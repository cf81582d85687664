"""`basefs genkey`: make a key pair."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from basefs.daemon.config import Home
from basefs.daemon.keyfiles import make_key
from basefs.management.output import examples, json_option, print_json


@click.command(epilog=examples("basefs genkey", "basefs genkey admin.key"))
@click.argument("keypath", type=click.Path(path_type=Path), required=False)
@click.option("-f", "--force", is_flag=True, help="Replace an existing key.")
@json_option
def genkey(keypath: Path | None, force: bool, as_json: bool) -> None:
    """Make an Ed25519 key pair: KEYPATH (private) and KEYPATH.pub.

    Without KEYPATH it becomes the default key, $BASEFS_HOME/key.
    """
    made = make_key(keypath or Home.from_environment().default_key, overwrite=force)
    if as_json:
        print_json(dataclasses.asdict(made))
    else:
        click.echo(f"{made.path}\npublic key {made.public}\nfingerprint {made.fingerprint}")
