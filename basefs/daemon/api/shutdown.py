"""Ending a filesystem of this node, mounted or not, and clearing the mount of a dead one."""

from __future__ import annotations

import time
from collections.abc import Callable

from basefs.daemon.api.client import FilesystemClient
from basefs.daemon.api.messages import Stop
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.lock import is_held
from basefs.daemon.mounts import Mount, detach, is_dead, is_own, mount_at, mounts
from basefs.errors import DaemonError, NotRunning, UsageError

#: Seconds that a daemon may take: it leaves the cluster first, which takes Serf up to 3, and publishes what is pending,
#: which may be thousands of files on a busy machine.
STOP_TIMEOUT = 120.0
#: Seconds after which the wait is notified: longer than Serf takes.
_NOTIFY_AFTER = 5.0
#: Seconds after which a lazy unmount no longer waits for those who use the mount.
_LAZY_TIMEOUT = 5.0


def stop(home: Home, target: str, notify: Callable[[str], None], *, lazy: bool) -> bool:
    """Stop the filesystem that `target` names, by its name or its mount point.

    `lazy`: detach a mount that is in use.  `notify` gets a line if it takes long.  Returns whether the daemon ended:
    after a lazy unmount it may go on until the last file is closed.  Raises `NotRunning`, `MountFailed`, `DaemonError`,
    and `UsageError` for the mount of another home.
    """
    mount = mount_at(target)
    if mount is not None and not is_own(home, mount):
        if not is_dead(mount.point):
            raise UsageError(f"{mount.point} is mounted from another home than {home.path}: set BASEFS_HOME")
        detach(mount.point, lazy=True)
        return True
    if mount is None and "/" in target:
        raise NotRunning(f"nothing of BaseFS is mounted on {target}: 'basefs list' tells what is")
    return _stop(home, target if mount is None else mount.name, notify, lazy=lazy)


def _stop(home: Home, name: str, notify: Callable[[str], None], *, lazy: bool) -> bool:
    client = FilesystemClient(home, name, notify)
    run_file = RunFile(home, name)
    running = is_held(home.existing(name))
    if running and not lazy:
        client.refuse_stopped()
    facts = run_file.read()
    mount = None if facts is None or facts[1] is None else Mount(name, facts[1])
    if mount is not None and mount in mounts() and is_own(home, mount):
        detach(mount.point, lazy=lazy or not running)
    elif running:
        client.ask_daemon(Stop())
    else:
        run_file.remove()
        raise NotRunning(f"{name} is not running")
    ended = _wait_for_end(home, name, client, lazy=lazy)
    if not running:
        run_file.remove()
    return ended


def _wait_for_end(home: Home, name: str, client: FilesystemClient, *, lazy: bool) -> bool:
    directory = home.existing(name)
    began = time.monotonic()
    notified = lazy
    while is_held(directory):
        waited = time.monotonic() - began
        if waited > _NOTIFY_AFTER and not notified:
            client.warn_waiting(" to end")
            notified = True
        if lazy and waited > _LAZY_TIMEOUT:
            return False
        if waited > STOP_TIMEOUT:
            raise DaemonError(f"the daemon of {name} is still running: its log tells what it waits for")
        time.sleep(0.02)
    return True
