"""`basefs watch`: the changes of the tree as they become visible on this node."""

from __future__ import annotations

import json
import signal
import time

import click

from basefs.daemon.api.client import FilesystemClient
from basefs.daemon.api.messages import Watch, WatchItem, encode
from basefs.daemon.config import Home
from basefs.errors import DaemonGone, NotRunning
from basefs.management.output import SHORT, examples, moment, note, printable
from basefs.management.session import client
from basefs.management.target import parse_target


@click.command(
    epilog=examples("basefs watch etc", "basefs watch /cluster/nginx --json", "basefs watch etc --reconnect")
)
@click.argument("target", metavar="NAME[:/PATH]")
@click.option("--since", metavar="TOKEN", help="Start after the change that was printed with this token.")
@click.option("--reconnect", is_flag=True, help="When the daemon ends, wait until it is back, and continue.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
def watch(target: str, since: str | None, reconnect: bool, as_json: bool) -> None:
    """Print the changes of a filesystem, or those at and below a path, until interrupted.

    Each line has time, type (create, modify, attributes, delete), kind, path, the key that signed the change, and a
    token. Every change that becomes visible on this node is printed once; the changes of a path are in order. --since
    includes the changes made since then, even while the daemon was not running.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    daemon = client(home, parsed.name)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # An exception would wait for the next change where the signal comes a moment before that is waited for.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    while True:
        since = _follow(daemon, parsed.path, since, as_json, patient=reconnect)
        if not reconnect:
            break
        time.sleep(0.2)
    raise DaemonGone(
        f"the daemon of {parsed.name} has ended; continue later with: basefs watch {target} --since {since}"
    )


def _follow(daemon: FilesystemClient, path: str, since: str | None, as_json: bool, *, patient: bool) -> str | None:
    """Print changes until the daemon ends; returns the last token."""
    try:
        for item in daemon.follow(Watch(path, since)):
            if since is None and not as_json:
                note(f"from {item.token}")
            since = item.token
            _print(item, as_json)
    except NotRunning:
        if not patient:
            raise
    except DaemonGone:
        pass
    return since


def _print(item: WatchItem, as_json: bool) -> None:
    if as_json:
        line = json.dumps(encode(item))
    elif item.change is not None:
        change = item.change
        key = change.key or (change.fingerprint or "-")[:SHORT]
        cells = (moment(change.seen), change.type, change.kind, change.path, key, item.token)
        line = "\t".join(map(printable, cells))
    else:
        # A token alone: how far nothing has happened that is asked for.
        return
    # A line at a time, also into a pipe: its reader expects each change at once.
    click.echo(line)
