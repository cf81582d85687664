"""`basefs get`: fetch a filesystem from a node that has it."""

from __future__ import annotations

import click

from basefs.daemon.api.creation import Fetched, fetch, parse_identity
from basefs.daemon.config import Home
from basefs.daemon.keyfiles import ensure_default_key
from basefs.management.grant import grant_line
from basefs.management.output import counted, examples, json_option, note, print_json, say, size
from basefs.management.progress import progress_line
from basefs.management.session import connections, notify


@click.command(
    epilog=examples(
        "basefs get etc 10.0.0.1",
        "basefs get etc cluster.example.org --id 1d0c3c64ea72abffaf0e65d7e6ff2f2d21c7a92c4b66f42b3e2d58c3",
    )
)
@click.argument("name")
@click.argument("address", metavar="ADDR[:PORT]")
@click.option("--id", "identity", metavar="ROOTHASH", help="Identity that the filesystem must have, in hex.")
@json_option
def get(name: str, address: str, identity: str | None, as_json: bool) -> None:
    """Fetch a filesystem from the node at ADDR[:PORT] and call it NAME here.

    ADDR may be a DNS name with TXT records 'basefs=IP:PORT'; the nodes that they name are tried one after another.
    Every hash and signature is verified. Without --id any identity is accepted: compare the printed one with 'basefs
    list' on a node that you trust.

    A node without a key gets one. It can write as soon as another node has granted that key; see 'basefs grant'. A
    closed filesystem is sent to its members only, so there the key comes first: 'basefs genkey' here, 'basefs grant' on
    a node that has the filesystem. A key that is not known there yet is tried again for 10 seconds. Nothing proves that
    the node at ADDR is a member: --id proves that the filesystem is the right one.
    """
    home = Home.from_environment()
    pinned = None if identity is None else parse_identity(identity)
    ensure_default_key(home)
    with progress_line() as show, connections():
        found = fetch(
            home,
            name,
            address,
            pinned,
            lambda so_far: show(f"{amounts(so_far)}, {size(so_far.bytes)}"),
            note,
            # That filesystem may have another name there.
            f"this machine is no member: ask for an invitation ('basefs invite NAME' there, 'basefs join' here), or "
            f"for: {grant_line(home, 'NAME')}",
        )
    if as_json:
        print_json({"name": name, "identity": found.identity, "entries": found.entries, "blocks": found.blocks})
    else:
        say(f"{name} {found.identity} {amounts(found)}")
    notify(f"mount it:    basefs mount {name} DIR")
    if found.open:
        notify(f"to write, on a node that may grant: {grant_line(home, name)}")


def amounts(found: Fetched) -> str:
    """What was fetched, in words."""
    return f"{counted(found.entries, 'entry')}, {counted(found.blocks, 'block')}"
