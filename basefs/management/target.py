"""Targets: `NAME:/PATH`, or a path inside a mounted tree (docs/commands.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.config import Home
from basefs.daemon.mounts import is_own, mount_containing
from basefs.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """A path in a filesystem; `path` is `None` where only the filesystem was named."""

    name: str
    path: str | None


def parse_target(home: Home, text: str) -> Target:
    """What a command line names.  Raises `UsageError` where it is neither form, or a mount of another home."""
    name, colon, path = text.partition(":")
    if colon and path.startswith("/") and "/" not in name:
        home.directory(name)
        return Target(name, path)
    if "/" not in text and not Path(text).exists():
        home.directory(text)
        return Target(text, None)
    found = mount_containing(text)
    if found is not None:
        mount, inside = found
        if not is_own(home, mount):
            raise UsageError(f"{mount.point} is mounted from another home than {home.path}: set BASEFS_HOME")
        return Target(mount.name, "/" + "/".join(inside.parts))
    if text in home.names():
        return Target(text, None)
    raise UsageError(f"{text!r} is neither NAME:/PATH nor a path inside a mounted filesystem")


def require_path(target: Target) -> str:
    """The path of a target.  Raises `UsageError` where only a filesystem was named."""
    if target.path is None:
        raise UsageError(f"a path is missing: write {target.name}:/PATH")
    return target.path
