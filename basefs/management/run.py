"""`basefs run`: run a filesystem without mounting it; and what it shares with `basefs mount`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from basefs.daemon import logs
from basefs.daemon.addresses import all_addresses
from basefs.daemon.api.messages import GetSummary
from basefs.daemon.config import DEFAULT_PORT, Home
from basefs.daemon.settings import PROFILES
from basefs.errors import BaseFSError
from basefs.management.output import examples, note
from basefs.management.session import ask_daemon
from basefs.management.target import parse_name

_Command = TypeVar("_Command", bound=Callable[..., Any])


def daemon_options(command: _Command) -> _Command:
    """The options that mount and run share."""
    options = (
        click.option(
            "-k", "--key", "keypaths", multiple=True, type=click.Path(path_type=Path), help="Key to sign with."
        ),
        click.option(
            "-b",
            "--bind",
            default=all_addresses,
            metavar="IP[:PORT]",
            help=f"Address to listen on (default: all addresses, port {DEFAULT_PORT}).",
        ),
        click.option("--iface", "interface", metavar="NAME", help="Listen on the address of this network interface."),
        click.option(
            "-j", "--join", multiple=True, metavar="IP:PORT,...", help="Nodes to join, besides those in /.cluster."
        ),
        click.option("-n", "--hostname", metavar="NAME", help="This node's name in the cluster."),
        click.option("--profile", type=click.Choice(PROFILES), help="Timing of gossip (default: wan)."),
        click.option(
            "--encrypt-key-file",
            type=click.Path(path_type=Path),
            help="Encryption key of Serf for an open filesystem (base64 of 16, 24 or 32 bytes), the same on all nodes.",
        ),
        click.option(
            "--push/--no-push",
            default=None,
            help="Push changes over sessions that stay open with a few members (default: on).",
        ),
        click.option(
            "--never-publish",
            multiple=True,
            metavar="GLOB",
            help="Keep names that match GLOB on this node; may be given again.",
        ),
        click.option(
            "--handler",
            "handlers",
            multiple=True,
            metavar="[GLOB=]CMD",
            help="Shell command to run for each change of a path that matches GLOB; may be given again.",
        ),
        click.option(
            "--handler-jobs",
            type=click.IntRange(1, 1000),
            metavar="N",
            default=4,
            show_default=True,
            help="Handlers that may run at the same time.",
        ),
        click.option(
            "--handler-timeout",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            default=60.0,
            show_default=True,
            help="Time limit of a handler.",
        ),
        click.option(
            "--handler-delay",
            type=click.FloatRange(0, 3600),
            metavar="SECONDS",
            default=0.0,
            show_default=True,
            help="Run a handler once per burst of changes, this long after the last one.",
        ),
        click.option(
            "--metrics",
            metavar="[IP:]PORT",
            help="Serve Prometheus metrics at this address, to anyone who can connect (default IP: 127.0.0.1).",
        ),
        click.option(
            "--max-log-bytes",
            metavar="SIZE",
            help="Take no contents from other nodes while the log has this size or more, e.g. 10G.",
        ),
        click.option(
            "--min-free",
            metavar="SIZE",
            help="Take nothing from other nodes while less than this is free on the disk, e.g. 500M.",
        ),
        click.option("-s", "--single-node", is_flag=True, help="Run without a network: neither gossip nor sync."),
        click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground, and log to stderr."),
        click.option("-d", "--debug", is_flag=True, help="Log more details."),
        click.option(
            "--log-format",
            type=click.Choice(logs.FORMATS),
            help="How to log (default: journal where systemd listens, else text).",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def start(name: str, mountpoint: Path | None, options: dict[str, Any]) -> bool:
    """Launch the daemon, with the options of `daemon_options` and, for a mount, its own; see `launch`."""
    # Imported here: `basefs --help` imports this module for its options alone.
    from basefs.daemon.launch import LaunchOptions, launch

    home = Home.from_environment()
    name = parse_name(home, name)
    is_running = launch(home, LaunchOptions(name=name, mountpoint=mountpoint, **options))
    if is_running:
        _warn_stranger(home, name)
    return is_running


def _warn_stranger(home: Home, name: str) -> None:
    """Say that no other node lets this one in, where none of its keys is a member."""
    from basefs.management.status import NOT_A_MEMBER

    # The daemon may have ended meanwhile.
    with contextlib.suppress(BaseFSError):
        summary = ask_daemon(home, name, GetSummary())
        if not (summary.open or summary.member):
            remedy = NOT_A_MEMBER.format(name=name)
            note(f"basefs: no key of this node is a member of {name}, so no other node lets it in: {remedy}")


@click.command(epilog=examples("basefs run etc", "basefs run etc -b 10.0.0.2 --metrics 9464", "basefs run -f etc"))
@click.argument("name")
@daemon_options
def run(name: str, **options: Any) -> None:
    """Run the filesystem NAME without a mount: it keeps a replica and serves it to others."""
    start(name, None, options)
