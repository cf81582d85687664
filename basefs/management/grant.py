"""`basefs grant`: let a key write."""

from __future__ import annotations

from pathlib import Path

import click

from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.management.output import examples, json_option, print_json
from basefs.management.plans import dry_run_option, print_plan
from basefs.management.session import ask
from basefs.management.target import parse_target, require_path


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
    told = ask(home, parsed.name, "grant", path=path, name=keyname, public=public, dry_run=dry_run)
    if as_json:
        print_json(told)
    elif not told["entries"]:
        click.echo("that key is granted there already: nothing to do", err=True)
    else:
        print_plan(told, dry_run=dry_run)


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
