"""`basefs revoke`: take a grant back."""

from __future__ import annotations

import click

from basefs.daemon.api.messages import GrantedKey, ListKeys, RevokeKey, RevokeOutcome, encode
from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.management.grant import dry_run_option, print_plan
from basefs.management.output import SHORT, examples, json_option, print_json, printable, say
from basefs.management.session import ask
from basefs.management.signing import key_option, other_key
from basefs.management.target import parse_changed


@click.command(
    epilog=examples(
        "basefs revoke etc:/ two", "basefs revoke --dry-run etc:/nginx web", "basefs revoke --discard etc:/ two"
    )
)
@click.argument("target", metavar="NAME[:/PATH]")
@click.argument("key", metavar="KEYNAME|FINGERPRINT")
@click.option("--discard", is_flag=True, help="Drop the changes of the key, unless another key built on them.")
@dry_run_option
@key_option
@json_option
def revoke(target: str, key: str, discard: bool, dry_run: bool, as_json: bool) -> None:
    """Revoke the grants of a key on a path, and print the grants that fall with them.

    NAME alone means its root, '/'; grants on a path below stay. Files that the key has written stay: each path whose
    current state it signed is acknowledged first, unless --discard is given. A key that revokes itself also takes its
    files away. To keep them, sign with another key (-k).
    """
    home = Home.from_environment()
    parsed = parse_changed(home, target)
    signer = other_key()
    if signer is None:
        for one in ask(home, parsed.name, ListKeys()):
            if (one.path, one.name) == (parsed.path, key):
                require_meant(one, key)
    revoked = ask(home, parsed.name, RevokeKey(parsed.path, key, discard, dry_run, signer))
    if as_json:
        print_json(encode(revoked))
        return
    if not dry_run:
        print_fallen(revoked)
    if dry_run or not discard:
        print_plan(revoked.plan, dry_run=dry_run)


def require_meant(granted: GrantedKey, key: str) -> None:
    """Raise `UsageError` where the key of this node was given by its name."""
    if granted.own and not granted.fingerprint.startswith(key.lower()):
        raise UsageError(
            f"{printable(key)} is the key of this node: give its fingerprint, {granted.fingerprint[:SHORT]}, if it is "
            "meant"
        )


def print_fallen(revoked: RevokeOutcome) -> None:
    """What does not count any more after a revoke."""
    for fallen in revoked.plan.fallen:
        what = "revoked" if fallen.fingerprint == revoked.fingerprint else "fallen with it"
        say(f"{what}: {printable(fallen.name)} at {printable(fallen.path)}")
