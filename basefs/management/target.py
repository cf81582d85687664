"""Targets: `NAME:/PATH`, or a path inside a mounted tree (design, section 8)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from basefs.config import Home
from basefs.errors import UsageError
from basefs.management.runfile import RunFile

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


def parse_target(home: Home, text: str) -> Target:
    """What a command line names.  Raises `UsageError` where it is neither form, or a mount of another home."""
    name, colon, path = text.partition(":")
    if colon and path.startswith("/") and "/" not in name:
        home.directory(name)
        return Target(name, path)
    if "/" not in text and not Path(text).exists():
        home.directory(text)
        return Target(text, None)
    absolute = Path(text).absolute()
    for mount in reversed(mounts()):
        if absolute == mount.point or mount.point in absolute.parents:
            facts = RunFile(home, mount.name).read()
            if facts is None or facts[1] != mount.point:
                raise UsageError(f"{mount.point} is mounted from another home than {home.path}: set BASEFS_HOME")
            return Target(mount.name, "/" + os.fspath(absolute.relative_to(mount.point)).removeprefix("."))
    if text in home.names():
        return Target(text, None)
    raise UsageError(f"{text!r} is neither NAME:/PATH nor a path inside a mounted filesystem")


def require_path(target: Target) -> str:
    """The path of a target.  Raises `UsageError` where only a filesystem was named."""
    if target.path is None:
        raise UsageError(f"a path is missing: write {target.name}:/PATH")
    return target.path
