"""`basefs get`: fetch a filesystem from a node that has it."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable

import click
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from basefs.daemon.config import SYNC_PORT_OFFSET, Home
from basefs.daemon.discovery import describe, find_nodes
from basefs.errors import BaseFSError, Exists, PeerUnreachable, UsageError
from basefs.gossip.members import join_host_port
from basefs.gossip.peers import PEERS_FILE, PeerBook
from basefs.log.hashes import HASH_SIZE, ZERO_HASH
from basefs.log.keys import SigningKey
from basefs.management.newplace import new_place
from basefs.management.output import examples, json_option, print_json
from basefs.replica.replica import Replica
from basefs.sync.net.transport import Session, sync_with
from basefs.sync.wire.limits import NEWCOMER_LIMITS


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
    directory = home.directory(name)
    if directory.exists():
        raise Exists(f"there is a filesystem {name} already: choose another name, or delete {directory}")
    nodes = find_nodes(address)
    pinned = None if identity is None else parse_identity(identity)
    with new_place(directory) as fresh:
        replica = Replica.create(fresh, pinned)
        source = _fetch_from_any(replica, nodes)
        found, totals = replica.identity, replica.totals()
        replica.close()
        if found == ZERO_HASH:
            raise PeerUnreachable(f"{describe(nodes)} sent nothing: is a filesystem running there?")
        # Where a mount looks for the others first, whatever /.cluster says.
        book = PeerBook(fresh / PEERS_FILE)
        book.add([join_host_port(*source)])
        book.save()
    if not home.default_key.exists():
        SigningKey.generate().save(home.default_key)
    if as_json:
        print_json({"name": name, "identity": found.hex(), "entries": totals["entries"], "blocks": totals["blocks"]})
    else:
        click.echo(f"{name} {found.hex()} {totals['entries']} entries")
    if sys.stderr.isatty():
        key = SigningKey.load(home.default_key).public.hex()
        click.echo(f"mount it:    basefs mount {name} DIR", err=True)
        click.echo(f"to write:    basefs grant {name}:/ {socket.gethostname()} {key}   (on a node that may)", err=True)


def parse_identity(text: str) -> bytes:
    """An identity as people write it.  Raises `UsageError`."""
    try:
        identity = bytes.fromhex(text)
    except ValueError:
        identity = b""
    if len(identity) != HASH_SIZE:
        raise UsageError(f"an identity is {2 * HASH_SIZE} hexadecimal digits, as 'basefs list' prints it")
    return identity


def _fetch_from_any(replica: Replica, nodes: list[tuple[str, int]]) -> tuple[str, int]:
    """Fetch from the first node that can be reached; returns which.  Raises what the last one led to."""
    for host, port in nodes[:-1]:
        try:
            _fetch(replica, host, port + SYNC_PORT_OFFSET)
            return host, port
        except PeerUnreachable as error:
            click.echo(f"{error}; trying the next", err=True)
    host, port = nodes[-1]
    _fetch(replica, host, port + SYNC_PORT_OFFSET)
    return host, port


def _fetch(replica: Replica, host: str, port: int) -> None:
    columns = (
        TextColumn("{task.fields[entries]} entries, {task.fields[blocks]} blocks,"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("get", total=None, entries=0, blocks=0)

        def show(session: Session) -> None:
            counters = session.counters
            progress.update(
                task,
                entries=counters.entries_received,
                blocks=counters.blocks_received,
                completed=counters.bytes_received,
            )

        asyncio.run(_sync_until_equal(replica, host, port, show))


async def _sync_until_equal(replica: Replica, host: str, port: int, show: Callable[[Session], None]) -> None:
    """Sync, again if the peer's log changed meanwhile, as long as that brings anything."""
    while True:
        try:
            result = await sync_with(replica, host, port, limits=NEWCOMER_LIMITS, progress=show)
            result.raise_for_reason()
        except BaseFSError as error:
            raise type(error)(f"{join_host_port(host, port - SYNC_PORT_OFFSET)}: {error}") from None
        if (result.equal and not replica.missing_blocks(1)) or not result.counters.accepted:
            return
