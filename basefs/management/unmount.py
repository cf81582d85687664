"""`basefs unmount`: stop a filesystem."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

import click

from basefs.config import Home
from basefs.errors import DaemonError, NotRunning
from basefs.fs.mount import unmount as detach
from basefs.management.control import call
from basefs.management.runfile import RunFile
from basefs.management.session import socket_path
from basefs.management.target import mounts

#: Seconds that a daemon may take: it leaves the cluster first, which takes Serf up to 3.
STOP_TIMEOUT = 30.0


@click.command()
@click.argument("target", metavar="NAME|MOUNTPOINT")
def unmount(target: str) -> None:
    """Stop a filesystem, mounted or not; returns when its daemon has ended.

    A mount whose daemon is dead is cleared.
    """
    home = Home.from_environment()
    name = _find_name(home, target)
    facts = RunFile(home, name).read()
    mountpoint = None if facts is None else facts[1]
    points = [
        mount.point for mount in mounts() if mount.name == name and mount.point in (mountpoint, _absolute(target))
    ]
    running = _is_locked(home.existing(name))
    if not running and not points:
        raise NotRunning(f"{name} is not running")
    for point in dict.fromkeys(points):
        detach(point)
    if running and not points:
        call(socket_path(home, name), "stop", {})
    _wait_for_end(home.existing(name), name)
    if not running:
        RunFile(home, name).remove()


def _find_name(home: Home, target: str) -> str:
    point = _absolute(target)
    for mount in reversed(mounts()):
        if mount.point == point:
            return mount.name
    home.existing(target)
    return target


def _absolute(target: str) -> Path:
    return Path(os.path.normpath(Path(target).absolute()))


def _is_locked(directory: Path) -> bool:
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.open(directory / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _wait_for_end(directory: Path, name: str) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT
    while _is_locked(directory):
        if time.monotonic() > deadline:
            raise DaemonError(f"the daemon of {name} is still running: its log tells what it waits for")
        time.sleep(0.02)
