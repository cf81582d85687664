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
from basefs.management.grant import dry_run_option, print_plan
from basefs.management.output import SHORT, examples, json_option, note, print_json, printable, say
from basefs.management.revoke import print_fallen, require_meant
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
@click.option("--discard", is_flag=True, help="Drop the changes of the key, unless another key built on them.")
@dry_run_option
@key_option
@json_option
def expel(target: str, key: str, discard: bool, dry_run: bool, as_json: bool) -> None:
    """Revoke a key on every path of NAME, removed ones included, and print the grants that fall with it.

    Its holder is no member then: nodes end its sessions within two seconds of the revoke's arrival, and gossip has
    another key. Files that the key has written stay, see 'basefs revoke', and so do the copies that the holder has
    already fetched.
    """
    home = Home.from_environment()
    name, signer = parse_name(home, target), other_key()
    found = _find(name, key, ask(home, name, ListKeys()))
    fingerprint = found[0].fingerprint
    require_meant(found[0], key)
    gone: list[ChangedGrant] = []
    for path in sorted({one.path for one in found}):
        if any((one.path, one.fingerprint) == (path, fingerprint) for one in gone):
            continue
        try:
            revoked = ask(home, name, RevokeKey(path, fingerprint, discard, dry_run, signer))
        except NotFound:
            continue  # it has fallen with one of those before
        except BaseFSError as error:
            note(f"basefs: {error}")
            continue
        gone += revoked.plan.fallen
        if dry_run and not as_json:
            print_plan(revoked.plan, dry_run=True)
        elif not as_json:
            print_fallen(revoked)
    if as_json:
        print_json({"fingerprint": fingerprint, "fallen": encode(gone)})
    if dry_run:
        return
    left = sorted({one.path for one in ask(home, name, ListKeys()) if one.fingerprint == fingerprint})
    if left:
        raise NotPermitted(f"{printable(found[0].name)} is still granted at {', '.join(map(printable, left))}")
    if not as_json and not ask(home, name, GetSummary()).open:
        say(
            f"{printable(found[0].name)} ({fingerprint[:SHORT]}) is no member of {name} any more; its machine is "
            "forgotten once gossip has lost it"
        )


def _find(name: str, key: str, granted: list[GrantedKey]) -> list[GrantedKey]:
    """The grants of a key, by its name or the beginning of its fingerprint.

    Who has a key for one directory can grant any key there under any name: those nearest to '/' name it, if they agree.
    """
    rows: dict[str, list[GrantedKey]] = {}
    for one in granted:
        rows.setdefault(one.fingerprint, []).append(one)
    meant = set()
    for fingerprint, ones in rows.items():
        nearest = min(_depth(one) for one in ones)
        names = {one.name for one in ones if _depth(one) == nearest}
        if names == {key} or (len(key) >= LEAST_DIGITS and fingerprint.startswith(key.lower())):
            meant.add(fingerprint)
    if not meant:
        near = suggestion(key, (one.name for one in granted if one.name != key))
        raise NotFound(f"no key {key} is granted in {name}{near}: give a fingerprint of 'basefs keys {name}'")
    if len(meant) > 1:
        raise UsageError(f"more than one key is named {key} in {name}: give the fingerprint")
    return [one for one in granted if one.fingerprint in meant]


def _depth(one: GrantedKey) -> int:
    return 0 if one.path == "/" else one.path.count("/")
