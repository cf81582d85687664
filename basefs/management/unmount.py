"""`basefs unmount`: stop a filesystem."""

from __future__ import annotations

import time

import click

from basefs.daemon.api.control import call
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.lock import is_held
from basefs.errors import DaemonError, NotRunning, UsageError
from basefs.fs.fuse.binding import unmount as detach
from basefs.management.output import examples
from basefs.management.session import refuse_stopped, socket_path, tell_waiting
from basefs.management.target import Mount, is_dead, is_own, mount_at, mounts

#: Seconds that a daemon may take: it leaves the cluster first, which takes Serf up to 3, and publishes what is pending,
#: which may be thousands of files on a busy machine.
STOP_TIMEOUT = 120.0
#: Seconds after which a terminal is told that it waits: longer than Serf takes.
_TOLD_AFTER = 5.0
#: Seconds after which a lazy unmount no longer waits for those who use the mount.
LAZY_TIMEOUT = 5.0


@click.command(epilog=examples("basefs unmount etc", "basefs unmount --lazy /cluster"))
@click.argument("target", metavar="NAME|MOUNTPOINT")
@click.option("-l", "--lazy", is_flag=True, help="Detach a mount that is in use; it ends when nobody uses it any more.")
def unmount(target: str, lazy: bool) -> None:
    """Stop a filesystem, mounted or not; returns when its daemon has ended.

    A mount whose daemon is dead is cleared.
    """
    home = Home.from_environment()
    mount = mount_at(target)
    if mount is not None and not is_own(home, mount):
        if not is_dead(mount.point):
            raise UsageError(f"{mount.point} is mounted from another home than {home.path}: set BASEFS_HOME")
        detach(mount.point, lazy=True)
        return
    if mount is None and "/" in target:
        raise NotRunning(f"nothing of BaseFS is mounted on {target}: 'basefs list' tells what is")
    name = target if mount is None else mount.name
    directory = home.existing(name)
    facts = RunFile(home, name).read()
    point = None if facts is None else facts[1]
    running = is_held(directory)
    if running and not lazy:
        refuse_stopped(home, name)
    if point is not None and Mount(name, point) in mounts() and is_own(home, Mount(name, point)):
        detach(point, lazy=lazy or not running)
    elif running:
        call(socket_path(home, name), "stop", {})
    else:
        RunFile(home, name).remove()
        raise NotRunning(f"{name} is not running")
    _wait_for_end(home, name, lazy=lazy)
    if not running:
        RunFile(home, name).remove()


def _wait_for_end(home: Home, name: str, *, lazy: bool) -> None:
    directory = home.existing(name)
    deadline = time.monotonic() + (LAZY_TIMEOUT if lazy else STOP_TIMEOUT)
    word = time.monotonic() + _TOLD_AFTER
    while is_held(directory):
        if time.monotonic() > word and not lazy:
            tell_waiting(home, name, " to end")
            word = float("inf")
        if time.monotonic() > deadline:
            if lazy:
                click.echo(f"{name} ends when the last file that is open in it is closed", err=True)
                return
            raise DaemonError(f"the daemon of {name} is still running: its log tells what it waits for")
        time.sleep(0.02)
