"""`basefs genkey`: make a key pair."""

from __future__ import annotations

from pathlib import Path

import click

from basefs.daemon.config import Home
from basefs.log.keys import SigningKey
from basefs.management.output import examples, json_option, print_json


@click.command(epilog=examples("basefs genkey", "basefs genkey admin.key"))
@click.argument("keypath", type=click.Path(path_type=Path), required=False)
@click.option("-f", "--force", is_flag=True, help="Replace an existing key.")
@json_option
def genkey(keypath: Path | None, force: bool, as_json: bool) -> None:
    """Make an Ed25519 key pair: KEYPATH (private) and KEYPATH.pub.

    Without KEYPATH it becomes the default key, $BASEFS_HOME/key.
    """
    home = Home.from_environment()
    path = keypath or home.default_key
    key = SigningKey.generate()
    key.save(path, overwrite=force)
    if as_json:
        print_json({"path": str(path), "public": key.public.hex(), "fingerprint": key.fingerprint.hex()})
        return
    click.echo(f"{path}\npublic key {key.public.hex()}\nfingerprint {key.fingerprint.hex()}")
