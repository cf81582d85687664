"""`basefs expel`: take everything back that a key was given."""

from __future__ import annotations

import click

from basefs.daemon.api.messages import (
    LEAST_DIGITS,
    ChangedGrant,
    GetSummary,
    GrantedKey,
    ListKeys,
    RevokeKey,
    encode,
)
from basefs.daemon.config import Home
from basefs.errors import BaseFSError, NotFound, NotPermitted, UsageError, suggestion
from basefs.management.output import SHORT, examples, json_option, note, print_json, printable
from basefs.management.revoke import print_fallen
from basefs.management.session import ask
from basefs.management.signing import key_option, other_key
from basefs.management.target import parse_name


@click.command(
    epilog=examples(
        "basefs expel etc gamma", "basefs expel etc 3f1c0a9e --discard", "basefs expel etc alpha -k root.key"
    )
)
@click.argument("target", metavar="NAME")
@click.argument("key", metavar="KEYNAME|FINGERPRINT")
@click.option("--discard", is_flag=True, help="Drop what the key has written, unless another key built on it.")
@key_option
@json_option
def expel(target: str, key: str, discard: bool, as_json: bool) -> None:
    """Revoke a key on every path of NAME, removed ones included, and print what falls with it.

    Its holder is no member then: nodes end its sessions within two seconds of the revoke's arrival, and a node with a
    key that is valid at '/' changes the gossip key. What the key has written stays, see 'basefs revoke'. What its
    holder has fetched before, it keeps.
    """
    home = Home.from_environment()
    name, signer = parse_name(home, target), other_key()
    found = _find(name, key, ask(home, name, ListKeys()))
    fingerprint = found[0].fingerprint
    gone: list[ChangedGrant] = []
    for path in sorted({one.path for one in found}):
        try:
            revoked = ask(home, name, RevokeKey(path, fingerprint, discard, False, signer))
        except NotFound:
            continue  # it has fallen with one of those before
        except BaseFSError as error:
            note(f"basefs: {error}")
            continue
        gone += revoked.plan.fallen
        if not as_json:
            print_fallen(revoked)
    if as_json:
        print_json({"fingerprint": fingerprint, "fallen": encode(gone)})
    left = sorted({one.path for one in ask(home, name, ListKeys()) if one.fingerprint == fingerprint})
    if left:
        raise NotPermitted(
            f"{printable(found[0].name)} is still granted at {', '.join(map(printable, left))}: revoke it with a "
            "higher key, on its node or with -k"
        )
    if not as_json and not ask(home, name, GetSummary()).open:
        click.echo(f"{printable(found[0].name)} ({fingerprint[:SHORT]}) is no member of {name} any more")


def _find(name: str, key: str, granted: list[GrantedKey]) -> list[GrantedKey]:
    """The grants of a key, by one of its names or the beginning of its fingerprint."""
    meant = {
        one.fingerprint
        for one in granted
        if key == one.name or (len(key) >= LEAST_DIGITS and one.fingerprint.startswith(key.lower()))
    }
    if not meant:
        near = suggestion(key, (one.name for one in granted))
        raise NotFound(f"no key {key} is granted in {name}{near}: 'basefs keys {name}' lists the keys")
    if len(meant) > 1:
        raise UsageError(f"more than one key is named {key} in {name}: give the fingerprint")
    return [one for one in granted if one.fingerprint in meant]
