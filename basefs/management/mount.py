"""`basefs mount`: run a filesystem and mount it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from basefs.management.output import examples
from basefs.management.run import daemon_options, start


@click.command(
    epilog=examples(
        "basefs mount etc /cluster",
        "basefs mount etc /cluster -b 10.0.0.2 -j 10.0.0.1:18374",
        "basefs mount etc /cluster --handler '/nginx/*=systemctl reload nginx'",
        "basefs mount -s etc /cluster",
    )
)
@click.argument("name")
@click.argument("mountpoint", type=click.Path(path_type=Path))
@daemon_options
@click.option("-o", "fuse_options", multiple=True, metavar="OPT[,OPT]", help="Options for FUSE, e.g. ro.")
@click.option("--uid", type=int, help="Default owner (default: the mounting user).")
@click.option("--gid", type=int, help="Default group (default: the mounting user's).")
@click.option(
    "--inotify/--no-inotify",
    default=True,
    help="Emit inotify events for remote changes, and enable kernel caching (default: on).",
)
@click.option("--owners", is_flag=True, help="Keep owner and group (chown); as root only.")
def mount(name: str, mountpoint: Path, **options: Any) -> None:
    """Run the filesystem NAME and mount it on MOUNTPOINT; returns when the mount answers.

    Unmount it with 'basefs unmount', or umount.
    """
    # As the kernel names it, so that other commands find it among the mounts.
    start(name, Path(os.path.realpath(mountpoint)), options)
