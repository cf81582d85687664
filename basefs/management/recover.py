"""`basefs recover`: replace a lost or stolen root key."""

from __future__ import annotations

from pathlib import Path

import click

from basefs.daemon.api.messages import GetRecovery, GrantOutcome, RecoverRootKey, encode
from basefs.daemon.config import Home
from basefs.daemon.share import make_share, number_of, public_half
from basefs.errors import NotPermitted, UsageError
from basefs.management.grant import dry_run_option, print_plan, public_key
from basefs.management.output import SHORT, examples, json_option, note, print_json, printable, say
from basefs.management.session import ask
from basefs.management.signing import key_at, other_keys, recovery_key_option
from basefs.management.target import parse_name


@click.command(
    epilog=examples(
        "basefs recover etc new.key -k ann.key -k bob.key --dry-run",
        "basefs recover etc new.key -k ann.key -k bob.key --drop thief",
        "basefs recover etc new.key.pub --sign -k ann.key",
        "basefs recover etc new.key -k bob.key --share share1-...",
    )
)
@click.argument("target", metavar="NAME")
@click.argument("newkey", metavar="NEWKEY")
@recovery_key_option
@click.option("--share", "shares", multiple=True, metavar="LINE", help="The share of a recovery key that is elsewhere.")
@click.option("--sign", "only_sign", is_flag=True, help="Print the shares of these recovery keys, and change nothing.")
@click.option("--drop", multiple=True, metavar="KEYNAME|FINGERPRINT", help="Do not grant this key anew: a thief's.")
@click.option("--discard", is_flag=True, help="Drop the changes of these keys, unless another key built on them.")
@dry_run_option
@json_option
def recover(
    target: str,
    newkey: str,
    shares: tuple[str, ...],
    only_sign: bool,
    drop: tuple[str, ...],
    discard: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make NEWKEY the root key of NAME, with the signatures of enough recovery keys.

    NEWKEY is the file of a key that 'basefs genkey' has made. It grants anew the keys that the former root key has
    granted, and acknowledges the files that only that one has signed, so that the machines go on and the files stay.
    From then on nothing that the former root key signs has an effect. Name the keys of a thief with --drop; --dry-run
    lists all that are granted. Changes of a thief stay: see 'basefs log -r' and 'basefs revert'.

    Recovery keys that are on different machines sign there: with --sign the command prints a line, which is no secret,
    for --share. NEWKEY may be a .pub file then.
    """
    home = Home.from_environment()
    name = parse_name(home, target)
    state = ask(home, name, GetRecovery())
    if not state.keys:
        raise NotPermitted(f"{name} was made without recovery keys, so nothing replaces its root key")
    if only_sign and (shares or drop or discard):
        raise UsageError("--sign takes recovery keys alone: leave --share, --drop and --discard out")
    new = None if only_sign else key_at(Path(newkey))
    public = public_key(newkey) if new is None else public_half(new)
    number = number_of(shares)
    signed = [make_share(state, public, key, number) for key in other_keys()]
    if only_sign and not signed:
        raise UsageError("no recovery key signs: give one with -k")
    if new is None:
        for line in signed:
            click.echo(line)
        note(
            f"each line is a share for recovery {state.last + 1} of {name}: 'basefs recover {name} NEWKEY --share LINE'"
        )
        return
    plan = ask(home, name, RecoverRootKey(new, [*shares, *signed], list(drop), discard, dry_run))
    if as_json:
        print_json(encode(plan))
    elif dry_run:
        print_plan(plan, dry_run=True)
    else:
        _print_done(home, name, plan)


def _print_done(home: Home, name: str, plan: GrantOutcome) -> None:
    state = ask(home, name, GetRecovery())
    say(f"root key of {name}: {state.root_key.fingerprint[:SHORT]}, by recovery {state.last}")
    for one in plan.gained:
        if one.fingerprint != state.root_key.fingerprint:
            say(f"granted again: {printable(one.name)} at {printable(one.path)}")
    for one in plan.fallen:
        say(f"revoked: {printable(one.name)} at {printable(one.path)}")
    print_plan(plan, dry_run=False)
