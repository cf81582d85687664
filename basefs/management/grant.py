"""`basefs grant`: let a key write."""

from __future__ import annotations

from pathlib import Path

import click

from basefs.daemon.api.messages import GrantKey, GrantOutcome, PathChange, PathState, encode
from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.management.output import SHORT, examples, json_option, print_json, print_table, printable
from basefs.management.session import ask
from basefs.management.target import parse_target, require_path

dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="List what would change, and change nothing.")


@click.command(epilog=examples("basefs grant etc:/ two two.pub", "basefs grant --dry-run /cluster/nginx web web.pub"))
@click.argument("target", metavar="NAME:/PATH")
@click.argument("keyname")
@click.argument("key", metavar="PUBKEY|KEYFILE")
@dry_run_option
@json_option
def grant(target: str, keyname: str, key: str, dry_run: bool, as_json: bool) -> None:
    """Let a key write at a path and everywhere below it.

    PUBKEY is the public key in hex; KEYFILE a .pub file of 'basefs genkey'. Where the new key would tip the balance of
    a conflict, what is there now is acknowledged first, so that nothing changes.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    path, public = require_path(parsed), _public_key(key)
    plan = ask(home, parsed.name, GrantKey(path, keyname, public, dry_run))
    if as_json:
        print_json(encode(plan))
    elif not plan.entries:
        click.echo("that key is granted there already: nothing to do", err=True)
    else:
        print_plan(plan, dry_run=dry_run)


def _public_key(text: str) -> str:
    path = Path(text)
    if not path.is_file():
        return text
    try:
        content = path.read_text()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no public key: give the .pub file of 'basefs genkey'") from None
    if "PRIVATE KEY" in content:
        raise UsageError(f"{path} is a private key, which must stay where it is: give {path}.pub")
    return content.strip()


def print_plan(plan: GrantOutcome, *, dry_run: bool) -> None:
    """What a grant or revoke does; once it is done, only what the user would not expect, on stderr."""
    if not dry_run:
        for change in plan.changed:
            click.echo(f"{printable(change.path)} has changed: {_sides(change)}", err=True)
        return
    rows = [("acknowledged", path, "") for path in plan.acks]
    rows += [("changed", change.path, _sides(change)) for change in plan.changed]
    for what, grants in (("grant fallen", plan.fallen), ("grant gained", plan.gained)):
        rows += [(what, one.path, f"{one.name} {one.fingerprint}") for one in grants]
    print_table(("WHAT", "PATH", "DETAIL"), rows, "nothing would change")


def _sides(change: PathChange) -> str:
    return f"{_side(change.before)} -> {_side(change.after)}"


def _side(side: PathState | None) -> str:
    if side is None:
        return "nothing"
    size = f" of {side.size} B" if side.kind == "file" else ""
    return f"{side.kind}{size} ({side.entry[:SHORT]})"
