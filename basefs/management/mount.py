"""`basefs mount`: run a filesystem and mount it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from basefs.daemon.api.messages import ClusterMember, ListMembers, Publish
from basefs.daemon.config import Home
from basefs.errors import DaemonError, UsageError
from basefs.management.members import UNKNOWN, lag_of
from basefs.management.output import examples, note, printable, span
from basefs.management.run import daemon_options, start
from basefs.management.session import ask_daemon, notify
from basefs.management.target import parse_name


@click.command(
    epilog=examples(
        "basefs mount etc /cluster",
        "basefs mount etc /cluster -b 10.0.0.2 -j 10.0.0.1:18374",
        "basefs mount etc /cluster --handler '/nginx/*=systemctl reload nginx'",
        "basefs mount --wait etc /cluster",
        "basefs mount -s etc /cluster",
    )
)
@click.argument("name")
@click.argument("mountpoint", type=click.Path(path_type=Path))
@daemon_options
@click.option(
    "-o", "fuse_options", multiple=True, metavar="OPT[,OPT]", help="Options for FUSE, such as ro; nosymfollow."
)
@click.option("--uid", type=int, help="Default owner (default: the mounting user).")
@click.option("--gid", type=int, help="Default group (default: the mounting user's).")
@click.option(
    "--owners/--no-owners",
    default=None,
    help="Store and show owner and group of each file; root only (default: on for root).",
)
@click.option("--serve-only", is_flag=True, help="Let another process mount, with --mount-only; needs --foreground.")
@click.option(
    "--mount-only", is_flag=True, help="Run the mount server alone, in the foreground, for a daemon with --serve-only."
)
@click.option("-w", "--wait", is_flag=True, help="Return once a member has the same log.")
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="With --wait: how long to wait.",
)
def mount(name: str, mountpoint: Path, wait: bool, timeout: float, **options: Any) -> None:
    """Run the filesystem NAME and mount it on MOUNTPOINT; returns when the mount answers.

    Changes of other nodes arrive a moment later: --wait waits until the log equals that of a member. After --timeout
    seconds the command fails, and the mount stays.

    Unmount it with 'basefs unmount', or umount.
    """
    if wait and (options["single_node"] or options["foreground"]):
        raise UsageError("--wait cannot be combined with --single-node or --foreground")
    if options["serve_only"] and (options["mount_only"] or not options["foreground"]):
        raise UsageError("--serve-only needs --foreground, and cannot be combined with --mount-only")
    # As the kernel names it, so that other commands find it among the mounts.
    mountpoint = Path(os.path.realpath(mountpoint))
    hides = _has_files(mountpoint)
    is_running = start(name, mountpoint, options)
    if hides and is_running:
        note(f"basefs: {mountpoint} has files of its own, which are hidden while {name} is mounted there")
    if is_running and wait:
        _catch_up(name, time.monotonic() + timeout)


def _has_files(mountpoint: Path) -> bool:
    """Whether a directory on which nothing is mounted has anything in it."""
    try:
        return not mountpoint.is_mount() and any(mountpoint.iterdir())
    except OSError:
        # Not there, no directory, or a dead mount, of which others speak.
        return False


def _catch_up(name: str, deadline: float) -> None:
    """Wait until some member is in step.  Raises `DaemonError` at the deadline."""
    home = Home.from_environment()
    name = parse_name(home, name)
    while True:
        others = [each for each in ask_daemon(home, name, ListMembers()) if each.same_filesystem and not each.own]
        step = next((each for each in others if each.lag is not None and each.lag.in_step), None)
        if step is not None:
            # The log has it; now the mount shows it.
            ask_daemon(home, name, Publish())
            notify(f"{name} has caught up with {step.name}")
            return
        if time.monotonic() > deadline:
            why = "; ".join(map(_why_apart, others)) or "no member was found"
            raise DaemonError(f"{name} is mounted, and has not caught up with any member: {why}")
        time.sleep(0.1)


def _why_apart(member: ClusterMember) -> str:
    """Why a member is not in step, as far as that is known."""
    if (lag := lag_of(member)) != UNKNOWN:
        return printable(f"{member.name} {lag}")
    why = member.trouble or {"failed": "gossip has lost it", "left": "it has left"}.get(member.status, "")
    answer = "has not answered" if member.heard is None else f"answered last {span(member.heard)} ago"
    return printable(f"{member.name} {answer}" + (f": {why}" if why else ""))
