"""Ending a filesystem of this node, mounted or not, and clearing the mount of a dead one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from basefs.daemon.api.client import FilesystemClient
from basefs.daemon.api.control import TIMEOUT
from basefs.daemon.api.inspection import count_unpublished, has_peers, unpublished_text
from basefs.daemon.api.messages import Publish, Stop
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.handover import HandOver
from basefs.daemon.lock import is_held
from basefs.daemon.mounts import (
    Mount,
    MountUser,
    is_dead,
    is_own,
    mount_at,
    mounts,
    served_at,
    users_of,
)
from basefs.errors import BaseFSError, DaemonError, MountFailed, NotRunning, UsageError, some_of
from basefs.fs.server.device import unmount


@dataclass(frozen=True, slots=True)
class Ending:
    """How a filesystem is to end.

    Attributes:
        warn: gets a line about processes that keep it from ending.
        notify: gets a line where it takes long.
        lazy: detach a mount that is in use.
        timeout: seconds until the daemon has closed its log: it publishes what is pending first, which may be thousands
            of files on a busy machine.  Serf leaves the cluster afterwards, for which only the next daemon waits.
    """

    warn: Callable[[str], None]
    notify: Callable[[str], None]
    lazy: bool = False
    timeout: float = TIMEOUT


def stop(home: Home, target: str, how: Ending) -> bool:
    """Stop the filesystem that `target` names, by its name or its mount point.

    Returns whether the daemon ended: after a lazy unmount it may go on until the last file is closed.  Raises
    `NotRunning`, `MountFailed`, `DaemonError`, and `UsageError` for the mount of another home.
    """
    mount = mount_at(target)
    if mount is not None and not is_own(home, mount):
        if not is_dead(mount.point):
            raise UsageError(f"{mount.point} is mounted from another home than {home.path}: set BASEFS_HOME")
        unmount(mount.point, lazy=True)
        return True
    if mount is None and "/" in target:
        raise NotRunning(f"no BaseFS filesystem is mounted on {target}: 'basefs list' lists the mounts")
    return _stop(home, target if mount is None else mount.name, how)


def _stop(home: Home, name: str, how: Ending) -> bool:
    client = FilesystemClient(home, name, how.notify)
    running = is_held(home.existing(name))
    began = time.monotonic()
    # Nobody has published what was written since a daemon that is dead.
    unpublished = 0 if running else 1
    if running and not how.lazy:
        client.refuse_stopped()
        unpublished = _publish(client, how.timeout / 2)
    mount = _mount_of(home, name)
    users: list[MountUser] | None = None
    if mount is not None and mount in mounts() and is_own(home, mount):
        users = _detach(mount, lazy=how.lazy or is_dead(mount.point))
    elif not running:
        RunFile(home, name).remove()
        raise NotRunning(f"{name} is not running")
    elif mount is None:
        client.ask_daemon(Stop())
    ended = _wait_for_end(home, name, mount, how, users, began)
    if ended:
        _warn_of_losses(home, name, how, running, unpublished)
    if not running:
        RunFile(home, name).remove()
    return ended


def _mount_of(home: Home, name: str) -> Mount | None:
    """Where a filesystem is mounted, or was when its daemon died."""
    facts = RunFile(home, name).read()
    point = served_at(home, name) if facts is None else facts[1]
    return None if point is None else Mount(name, point)


def _warn_of_losses(home: Home, name: str, how: Ending, running: bool, unpublished: int) -> None:
    """Say what no other machine has of a filesystem that has ended."""
    warnings = [_unpublished_warning(home, name, unpublished)] if unpublished else []
    if running and has_peers(home, name):
        warnings.append(HandOver.warning(home.existing(name), name))
    for warning in filter(None, warnings):
        how.warn(warning)


def _publish(client: FilesystemClient, timeout: float) -> int:
    """Publish what can be published; returns how many changed names stay on this machine alone."""
    try:
        return client.ask_daemon(Publish(), timeout)
    except BaseFSError:
        # It is about to end, or does not answer: whoever waits for its end learns why.
        return 0


def _unpublished_warning(home: Home, name: str, before: int) -> str:
    """What is to be said of names that were not published before the daemon ended, '' if all are now."""
    try:
        count = count_unpublished(home, name)
    except (BaseFSError, OSError):
        # On a full disk the log may not even open.
        count = before
    if not count:
        return ""
    return f"{unpublished_text(count, name)}; no other machine has them, and the next mount publishes what it can"


def _detach(mount: Mount, *, lazy: bool) -> list[MountUser]:
    """Take a mount away; returns the processes that go on using it.  Raises `MountFailed`, naming them."""
    users = users_of(mount) if lazy else []
    try:
        unmount(mount.point, lazy=lazy)
    except MountFailed as error:
        here = [user for user in users_of(mount) if not user.elsewhere]
        raise MountFailed(f"{error}; used by {some_of(here)}" if here else str(error)) from None
    return users


def ending(mount: Mount) -> str:
    """Why a filesystem that is no longer mounted here has not ended."""
    copies = [user for user in users_of(mount) if user.elsewhere]
    if copies:
        return f"{some_of(copies)} holds a copy of its mount"
    return "its daemon ends when the last file that is open in its old mount is closed"


def why_running(home: Home, name: str) -> str | None:
    """Why an earlier daemon that has no mount here any more still runs; `None` if there is no such daemon."""
    facts = RunFile(home, name).read()
    mount = None if facts is None or facts[1] is None else Mount(name, facts[1])
    if facts is None or mount is None or mount in mounts() or not is_held(home.existing(name)):
        return None
    return f"{name} was unmounted and has not ended, process {facts[0]}: {ending(mount)}"


def _wait_for_end(
    home: Home, name: str, mount: Mount | None, how: Ending, users: list[MountUser] | None, began: float
) -> bool:
    """`users`: of the mount when it was detached; `None` if it was detached before.  `began`: when its time began."""
    directory = home.existing(name)
    why = None
    while is_held(directory):
        waited = time.monotonic() - began
        if how.lazy and waited > min(5.0, how.timeout):
            if users:
                how.warn(f"still used by {some_of(users)}")
            return False
        # An idle node has ended by then, unless others hold a copy of its mount.
        if waited > 1.0 and why is None and not how.lazy:
            why = _warn_waiting(home, name, mount, how, users)
        if waited > how.timeout:
            raise DaemonError(f"the daemon of {name} has not ended after {how.timeout:g} s: {why}")
        time.sleep(0.02)
    return True


def _warn_waiting(home: Home, name: str, mount: Mount | None, how: Ending, users: list[MountUser] | None) -> str:
    """Say what is waited for; returns it."""
    if mount is not None and (users is None or any(user.elsewhere for user in users_of(mount))):
        why = ending(mount)
        how.warn(f"waiting for {name}: {why}")
        return why
    FilesystemClient(home, name, how.notify).warn_waiting(" to end")
    return "its log tells what it waits for"
