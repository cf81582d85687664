"""`basefs get`: fetch a filesystem from a node that has it."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator

import click
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from basefs.daemon.api.creation import Fetched, fetch, parse_identity
from basefs.daemon.config import Home
from basefs.daemon.keyfiles import ensure_default_key
from basefs.management.output import examples, json_option, print_json


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
    Every hash and signature is verified.  Without --id the first identity that the node tells is taken, so compare what
    is printed with what 'basefs list' shows on a node that you trust.

    A key is made if this node has none; what it may write is up to others, see 'basefs grant'.
    """
    home = Home.from_environment()
    pinned = None if identity is None else parse_identity(identity)
    with _progress() as progress:
        found = fetch(home, name, address, pinned, progress, lambda reason: click.echo(reason, err=True))
    if as_json:
        print_json({"name": name, "identity": found.identity, "entries": found.entries, "blocks": found.blocks})
    else:
        click.echo(f"{name} {found.identity} {found.entries} entries")
    if sys.stderr.isatty():
        key = ensure_default_key(home).public
        click.echo(f"mount it:    basefs mount {name} DIR", err=True)
        click.echo(f"to write:    basefs grant {name}:/ {socket.gethostname()} {key}   (on a node that may)", err=True)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Fetched], None]]:
    columns = (
        TextColumn("{task.fields[entries]} entries, {task.fields[blocks]} blocks,"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("get", total=None, entries=0, blocks=0)

        def show(so_far: Fetched) -> None:
            progress.update(task, entries=so_far.entries, blocks=so_far.blocks, completed=so_far.bytes)

        yield show
