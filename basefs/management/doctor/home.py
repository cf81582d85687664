"""Whether the directory in which a node keeps its state is fit for it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from basefs.daemon.config import Home
from basefs.daemon.settings import Settings
from basefs.errors import UsageError
from basefs.management.doctor.finding import Diagnosis, problem

#: Bytes, and share of the disk, below which it counts as nearly full: a copy of /etc takes some 2 MB, and SQLite needs
#: room for its own files.
LOW_BYTES = 100_000_000
LOW_SHARE = 0.02
#: Longest path of a UNIX socket, bytes: unix(7), without the NUL.
_MAX_SOCKET = 107


def examine(home: Home) -> list[Diagnosis]:
    """Permissions, room, and the length of its path; nothing if there is no home yet."""
    if not home.path.exists():
        return []
    return [*_directory(home.path), *_key(home.default_key), *_sockets(home), *disk(home.path), *_settings(home)]


def _directory(path: Path) -> list[Diagnosis]:
    found = []
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        what = f"{path} belongs to the user with id {status.st_uid}, who can replace all that is in it"
        found.append(problem("home", what, f"chown -R {os.geteuid()} {path}, or set BASEFS_HOME"))
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found.append(problem("home", f"{path} can be written by others", f"chmod go-w {path}"))
    if not os.access(path, os.W_OK | os.X_OK):
        what = f"{path} cannot be written by this user"
        found.append(problem("home", what, f"chown -R {os.geteuid()} {path}, or set BASEFS_HOME"))
    return found


def _key(path: Path) -> list[Diagnosis]:
    try:
        mode = path.stat().st_mode
    except OSError:
        return []
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return [problem("home", f"the private key {path} can be read by others", f"chmod 600 {path}")]
    return []


def _settings(home: Home) -> list[Diagnosis]:
    try:
        Settings.load(home.settings_path)
    except UsageError as error:
        what = f"nothing can be mounted: {error}"
        return [problem("home", what, f"correct {home.settings_path}, or move it away: it is not needed")]
    return []


def _sockets(home: Home) -> list[Diagnosis]:
    longest = max((len(os.fsencode(home.path / "run" / f"{name}.sock")), name) for name in [*home.names(), "name"])
    if longest[0] <= _MAX_SOCKET:
        return []
    what = f"the path of {home.path} is too long for the socket of {longest[1]}: {longest[0]} of {_MAX_SOCKET} bytes"
    return [problem("home", what, "set BASEFS_HOME to a shorter one")]


def disk(path: Path) -> list[Diagnosis]:
    """Whether the disk that holds a directory has room left."""
    usage = shutil.disk_usage(path)
    low = min(LOW_BYTES, int(usage.total * 0.1)) if usage.total else LOW_BYTES
    if usage.free >= max(low, int(usage.total * LOW_SHARE)):
        return []
    what = f"the disk of {path} is nearly full: {usage.free // 1000} kB of {usage.total // 1000} kB are free"
    return [problem("disk", what, f"make room there ('du -x {path}'), or move BASEFS_HOME to another disk")]
