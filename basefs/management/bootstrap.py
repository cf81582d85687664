"""`basefs bootstrap`: make a new filesystem."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from basefs.daemon.config import Home, parse_address
from basefs.daemon.lock import is_held
from basefs.errors import AlreadyRunning, Exists, UsageError
from basefs.gossip.members import join_host_port
from basefs.log.keys import SigningKey
from basefs.management.newplace import new_place
from basefs.management.output import examples, json_option, print_json
from basefs.replica.bootstrap import bootstrap as make


@click.command(
    epilog=examples(
        "basefs bootstrap etc",
        "basefs bootstrap etc -i 10.0.0.1 -i 10.0.0.2:18400",
        "basefs bootstrap etc -k admin.key -k second.key",
    )
)
@click.argument("name")
@click.option("-i", "--ip", "addresses", multiple=True, metavar="IP[:PORT]", help="Address that newcomers join.")
@click.option(
    "-k", "--key", "keypaths", multiple=True, type=click.Path(path_type=Path), help="Root key; the first one signs."
)
@click.option("-f", "--force", is_flag=True, help="Replace a filesystem of that name: its log is deleted.")
@json_option
def bootstrap(name: str, addresses: tuple[str, ...], keypaths: tuple[Path, ...], force: bool, as_json: bool) -> None:
    """Make the new filesystem NAME, with its root keys and the addresses that newcomers join.

    Without -k the default key becomes the root key; it is made if there is none.
    """
    home = Home.from_environment()
    directory = home.directory(name)
    parsed = [join_host_port(*parse_address(address)) for address in addresses]
    if (directory / "log.db").exists() and not force:
        raise Exists(f"there is a filesystem {name} already: -f deletes it, with all its history on this node")
    if is_held(directory):
        raise AlreadyRunning(f"{name} is running: 'basefs unmount {name}' first")
    paths = keypaths or (home.default_key,)
    if not keypaths and not home.default_key.exists():
        SigningKey.generate().save(home.default_key)
    keys = [(_key_name(path, home), SigningKey.load(path)) for path in paths]
    if len({key.fingerprint for _, key in keys}) < len(keys):
        raise UsageError("the same key was given twice with -k")
    # A crash leaves the old filesystem or the new one.
    with new_place(directory) as fresh:
        replica = make(fresh, keys, parsed)
        identity = replica.identity.hex()
        replica.close()
    if as_json:
        print_json({"name": name, "identity": identity})
    else:
        click.echo(f"{name} {identity}")


def _key_name(path: Path, home: Home) -> bytes:
    """Keys are named after their file; the default key, which is named alike everywhere, after the host."""
    text = socket.gethostname() if path == home.default_key else path.name
    return text.encode("utf-8", "surrogateescape")[:255]
