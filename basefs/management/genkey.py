"""`basefs genkey`: make a key pair."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import click

from basefs.daemon.api.messages import ListKeys
from basefs.daemon.config import Home
from basefs.daemon.keyfiles import make_key, own_key_files
from basefs.errors import BaseFSError, UsageError
from basefs.management.output import examples, json_option, note, print_json
from basefs.management.session import ask
from basefs.management.signing import new_passphrase


@click.command(epilog=examples("basefs genkey", "basefs genkey admin.key", "basefs genkey --passphrase root.key"))
@click.argument("keypath", type=click.Path(path_type=Path), required=False)
@click.option("-f", "--force", is_flag=True, help="Replace an existing key, which is kept as KEYPATH.old-FINGERPRINT.")
@click.option("--passphrase", "is_protected", is_flag=True, help="Encrypt the key with a passphrase.")
@json_option
def genkey(keypath: Path | None, force: bool, is_protected: bool, as_json: bool) -> None:
    """Make an Ed25519 key pair: KEYPATH (private) and KEYPATH.pub.

    Without KEYPATH it becomes the default key, $BASEFS_HOME/key.

    --passphrase is for a key that is kept apart from the nodes: 'basefs bootstrap', 'grant', 'revoke' and 'expel' ask
    for it where -k names such a key. A daemon cannot ask, so the default key has none. Without a terminal the
    passphrase is the first line of the standard input.
    """
    home = Home.from_environment()
    is_default = keypath is None or keypath.absolute() == home.default_key
    if is_protected and is_default:
        raise UsageError("a daemon cannot ask for the passphrase of the default key: give another KEYPATH")
    if keypath is None:
        home.make()
    replaces = force and is_default
    needed = _writable_by(home) if replaces else []
    passphrase = new_passphrase(keypath) if is_protected and keypath is not None else ""
    made = make_key(keypath or home.default_key, overwrite=force, passphrase=passphrase)
    if as_json:
        print_json(dataclasses.asdict(made))
    else:
        click.echo(f"{made.file}\npublic key {made.public}\nfingerprint {made.fingerprint}")
    if made.former is not None:
        note(f"kept the former key as {made.former}")
    if needed:
        note(
            f"the old key may write in {', '.join(needed)}: grant the new key there with 'basefs grant' before you "
            "restart the daemon or delete the old key",
        )


def _writable_by(home: Home) -> list[str]:
    """The filesystems of this node in which its key may write, as far as they can be asked."""
    try:
        fingerprints = {key.fingerprint for key in own_key_files(home)}
    except UsageError:
        # What is there is no key.
        return []
    found = []
    for name in home.names():
        with contextlib.suppress(BaseFSError):
            if any(one.fingerprint in fingerprints for one in ask(home, name, ListKeys())):
                found.append(name)
    return found
