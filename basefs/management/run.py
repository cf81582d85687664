"""`basefs run`: run a filesystem without mounting it; and what it shares with `basefs mount`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from basefs.daemon import config, logs
from basefs.daemon.config import DEFAULT_PORT, Home
from basefs.daemon.settings import PROFILES
from basefs.management.output import examples

_Command = TypeVar("_Command", bound=Callable[..., Any])


def daemon_options(command: _Command) -> _Command:
    """The options that mount and run share."""
    options = (
        click.option(
            "-k", "--key", "keypaths", multiple=True, type=click.Path(path_type=Path), help="Key to sign with."
        ),
        click.option(
            "-b", "--bind", default=config.ALL_ADDRESSES, metavar="IP[:PORT]", help=f"Address (port: {DEFAULT_PORT})."
        ),
        click.option("--iface", "interface", help="Use the address of this network interface."),
        click.option("-j", "--join", multiple=True, metavar="IP:PORT,...", help="Nodes to join, besides /.cluster."),
        click.option("-n", "--hostname", help="This node's name in the cluster."),
        click.option("--profile", type=click.Choice(PROFILES), help="Timing of gossip (default: wan)."),
        click.option(
            "--encrypt-key-file",
            type=click.Path(path_type=Path),
            help="File with Serf's encryption key (base64 of 16, 24 or 32 bytes), the same on all nodes.",
        ),
        click.option(
            "--push/--no-push",
            default=None,
            help="Push changes over standing sessions with a few members (default: on).",
        ),
        click.option(
            "--handler",
            "handlers",
            multiple=True,
            metavar="[GLOB=]CMD",
            help="Shell command to run for each change, of the paths that GLOB names; may be given again.",
        ),
        click.option(
            "--handler-jobs", type=click.IntRange(1, 1000), default=4, show_default=True, help="How many run at a time."
        ),
        click.option(
            "--handler-timeout",
            type=click.FloatRange(0, min_open=True),
            default=60.0,
            show_default=True,
            help="Seconds after which one is ended.",
        ),
        click.option(
            "--metrics",
            metavar="IP:PORT",
            help="Serve Prometheus metrics there, to anyone who can connect.",
        ),
        click.option("-s", "--single-node", is_flag=True, help="Neither gossip nor sync."),
        click.option("-f", "--foreground", is_flag=True, help="Stay in front, and log to stderr."),
        click.option("-d", "--debug", is_flag=True, help="Log more."),
        click.option(
            "--log-format",
            type=click.Choice(logs.FORMATS),
            help="How to log (default: journal where systemd listens, else text).",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def start(name: str, mountpoint: Path | None, options: dict[str, Any]) -> None:
    """Launch the daemon, with the options of `daemon_options` and, for a mount, its own."""
    # Imported here: `basefs --help` imports this module for its options alone.
    from basefs.daemon.launch import LaunchOptions, launch

    launch(Home.from_environment(), LaunchOptions(name=name, mountpoint=mountpoint, **options))


@click.command(
    epilog=examples("basefs run etc", "basefs run etc -b 10.0.0.2 --metrics 127.0.0.1:9464", "basefs run -f etc")
)
@click.argument("name")
@daemon_options
def run(name: str, **options: Any) -> None:
    """Run the filesystem NAME without a mount: it keeps a replica and serves it to others."""
    start(name, None, options)
