"""Targets: `NAME:/PATH`, or a path inside a mounted tree (docs/commands.md)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.lock import is_held
from basefs.errors import UsageError

#: Fields of /proc/self/mountinfo, proc(5): 5 is the mount point, and after the "-" come type and source.
_MOUNTINFO = re.compile(rb"^\d+ \d+ \S+ \S+ (?P<point>\S+) .* - fuse\.basefs basefs:(?P<name>\S+) ", re.MULTILINE)
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted filesystem: its name and mount point."""

    name: str
    point: Path


@dataclass(frozen=True, slots=True)
class Target:
    """A path in a filesystem; `path` is `None` where only the filesystem was named."""

    name: str
    path: str | None


def mounts() -> list[Mount]:
    """Every BaseFS mount of this machine, dead ones too, the latest last."""
    found = []
    for match in _MOUNTINFO.finditer(Path("/proc/self/mountinfo").read_bytes()):
        point = _OCTAL.sub(lambda octal: bytes((int(octal[1], 8),)), match["point"])
        found.append(Mount(match["name"].decode("utf-8", "surrogateescape"), Path(os.fsdecode(point))))
    return found


def resolve(text: str) -> Path:
    """An absolute path without links and dots above its last component.

    That one is left alone: it may be a link in a tree, or a mount point that does not answer.
    """
    head, tail = os.path.split(os.path.normpath(text))
    return Path(os.path.normpath(os.path.join(os.path.realpath(head), tail)))


def mount_at(text: str) -> Mount | None:
    """The mount on exactly this path."""
    for path in (resolve(text), Path(os.path.realpath(text))):
        for mount in reversed(mounts()):
            if mount.point == path:
                return mount
    return None


def is_own(home: Home, mount: Mount) -> bool:
    """Whether a mount belongs to a daemon of this home, dead or alive."""
    facts = RunFile(home, mount.name).read()
    if facts is None or facts[1] != mount.point:
        return False
    # A home that was copied while its filesystem was mounted says the same as the first one.
    return is_held(home.directory(mount.name)) or is_dead(mount.point)


def is_dead(point: Path) -> bool:
    """Whether the daemon behind a mount has ended, so that it answers with errors."""
    try:
        os.statvfs(point)
    except OSError:
        return True
    return False


def parse_target(home: Home, text: str) -> Target:
    """What a command line names.  Raises `UsageError` where it is neither form, or a mount of another home."""
    name, colon, path = text.partition(":")
    if colon and path.startswith("/") and "/" not in name:
        home.directory(name)
        return Target(name, path)
    if "/" not in text and not Path(text).exists():
        home.directory(text)
        return Target(text, None)
    for absolute in (resolve(text), Path(os.path.realpath(text))):
        for mount in reversed(mounts()):
            if absolute == mount.point or mount.point in absolute.parents:
                if not is_own(home, mount):
                    raise UsageError(f"{mount.point} is mounted from another home than {home.path}: set BASEFS_HOME")
                return Target(mount.name, "/" + "/".join(absolute.relative_to(mount.point).parts))
    if text in home.names():
        return Target(text, None)
    raise UsageError(f"{text!r} is neither NAME:/PATH nor a path inside a mounted filesystem")


def require_path(target: Target) -> str:
    """The path of a target.  Raises `UsageError` where only a filesystem was named."""
    if target.path is None:
        raise UsageError(f"a path is missing: write {target.name}:/PATH")
    return target.path
