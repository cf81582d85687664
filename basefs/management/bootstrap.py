"""`basefs bootstrap`: make a new filesystem."""

from __future__ import annotations

from pathlib import Path

import click

from basefs.daemon.api.creation import create, recovery_keys
from basefs.daemon.config import Home, NodeAddress, is_ip, parse_address
from basefs.errors import UsageError
from basefs.management.grant import public_key
from basefs.management.output import examples, json_option, note, print_json
from basefs.management.session import notify
from basefs.management.signing import ask_passphrase


@click.command(
    epilog=examples(
        "basefs bootstrap etc",
        "basefs bootstrap etc -i 10.0.0.1 -i 10.0.0.2:18400",
        "basefs bootstrap etc -k admin.key -k second.key",
        "basefs bootstrap etc --recovery a.pub --recovery b.pub --recovery c.pub",
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
    help="Key granted on '/'; may be given again, the first is the root key.",
)
@click.option(
    "--recovery",
    "recovery",
    multiple=True,
    metavar="PUBKEY|KEYFILE",
    help="Public key of a recovery key; may be given again.",
)
@click.option(
    "--threshold",
    type=int,
    metavar="M",
    help="Number of recovery keys that together replace the root key (default: more than half of them).",
)
@click.option("--open", "is_open", is_flag=True, help="Anyone who can reach a node reads everything, without a key.")
@click.option("-f", "--force", is_flag=True, help="Replace a filesystem of that name: its log is deleted.")
@json_option
def bootstrap(
    name: str,
    addresses: tuple[str, ...],
    keypaths: tuple[Path, ...],
    recovery: tuple[str, ...],
    threshold: int | None,
    is_open: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Create the filesystem NAME, with a root key and the addresses at which new nodes join.

    Without -k a root key is made, $BASEFS_HOME/NAME.root.key, which grants the node's own key on '/'. With -k the first
    key is the root key, and grants the others. The root key cannot be revoked: move it to a safe place. 'basefs
    grant', 'revoke' and 'expel' take it with -k.

    If it is lost or stolen, more than half of the recovery keys (or M of them) can replace it: see 'basefs recover'.
    They cannot be added or changed later, and do nothing else. Only their public keys are needed here.

    Nodes connect by TLS, and to members only: keys that are granted or admitted. With --open anyone who can reach the
    sync port of a node reads everything. The choice is part of the filesystem's identity, and cannot be changed.
    """
    parsed = [_parse_ip(address) for address in addresses]
    home = Home.from_environment()
    keys = recovery_keys([public_key(one) for one in recovery], threshold)
    created = create(
        home,
        name,
        keypaths,
        parsed,
        replaces=force,
        is_open=is_open,
        passphrase=ask_passphrase,
        recovery=keys,
    )
    replaced = "nothing can replace it"
    if keys is not None:
        replaced = f"its recovery keys can replace it, {keys.threshold} of {len(keys.publics)}"
    if as_json:
        print_json({"name": name, "identity": created.identity})
    else:
        click.echo(f"{name} {created.identity}")
    notify(f"mount it:    basefs mount {name} DIR")
    notify(f"add others:  basefs invite {name}")
    if created.root_key is None:
        notify(f"root key:    {keypaths[0]}; keep it in a safe place, {replaced}")
    else:
        notify(f"root key:    {created.root_key.file}; move it to a safe place, {replaced}")
        if created.root_key.former is not None:
            note(f"kept the former root key as {created.root_key.former}")


def _parse_ip(text: str) -> NodeAddress:
    address = parse_address(text)
    if not is_ip(address.host):
        raise UsageError(f"-i takes an IP address, not {address.host!r}: 'getent hosts {address.host}' may know it")
    return address
