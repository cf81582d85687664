"""`basefs bootstrap`: make a new filesystem."""

from __future__ import annotations

from pathlib import Path

import click

from basefs.daemon.api.creation import create
from basefs.daemon.config import Home, NodeAddress, is_ip, parse_address
from basefs.errors import UsageError
from basefs.management.output import examples, json_option, print_json
from basefs.management.session import notify
from basefs.management.signing import ask_passphrase


@click.command(
    epilog=examples(
        "basefs bootstrap etc",
        "basefs bootstrap etc -i 10.0.0.1 -i 10.0.0.2:18400",
        "basefs bootstrap etc -k admin.key -k second.key",
    )
)
@click.argument("name")
@click.option(
    "-i",
    "--ip",
    "addresses",
    multiple=True,
    metavar="IP[:PORT]",
    help="Address of a node that new nodes join; may be given again.",
)
@click.option(
    "-k",
    "--key",
    "keypaths",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Root key; may be given again, the first one signs.",
)
@click.option("--open", "is_open", is_flag=True, help="Whoever reaches a node reads everything, without a key.")
@click.option("-f", "--force", is_flag=True, help="Replace a filesystem of that name: its log is deleted.")
@json_option
def bootstrap(
    name: str, addresses: tuple[str, ...], keypaths: tuple[Path, ...], is_open: bool, force: bool, as_json: bool
) -> None:
    """Create the filesystem NAME, with its root keys and the addresses at which new nodes join.

    Without -k a root key is made, $BASEFS_HOME/NAME.root.key, and the node's own key is granted everything by it. The
    root key cannot be revoked, nor replaced: move it to a safe place. 'basefs grant', 'revoke' and 'expel' take it with
    -k.

    Its nodes talk TLS, and with members only: keys that are granted or admitted. With --open whoever reaches the sync
    port of a node reads everything. The choice is part of the filesystem's identity, and cannot be changed.
    """
    parsed = [_parse_ip(address) for address in addresses]
    home = Home.from_environment()
    identity = create(home, name, keypaths, parsed, replaces=force, is_open=is_open, passphrase=ask_passphrase)
    if as_json:
        print_json({"name": name, "identity": identity})
    else:
        click.echo(f"{name} {identity}")
    notify(f"mount it:    basefs mount {name} DIR")
    notify(f"add others:  basefs invite {name}")
    if keypaths:
        notify(f"keep safe:   {keypaths[0]}, the root key of {name}, which nothing can replace")
    else:
        notify(f"move away:   {home.root_key(name)}, the root key of {name}, which nothing can replace")


def _parse_ip(text: str) -> NodeAddress:
    address = parse_address(text)
    if not is_ip(address.host):
        raise UsageError(f"-i takes an IP address, not {address.host!r}: 'getent hosts {address.host}' may know it")
    return address
