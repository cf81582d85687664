"""Targets: `NAME:/PATH`, or a path inside a mounted tree (docs/commands.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from basefs.daemon.config import Home
from basefs.daemon.mounts import is_own, mount_containing, resolve
from basefs.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """A path in a filesystem; that of its root is '/'."""

    name: str
    path: str


def parse_target(home: Home, text: str) -> Target:
    """The filesystem and the path that a command line names; the name of a filesystem alone is its root.

    Raises `UsageError` where it is neither form, or a mount of another home.
    """
    name, colon, path = text.partition(":")
    if colon and "/" not in name:
        home.directory(name)
        if not path.startswith("/"):
            raise UsageError(f"a path begins with '/': write {name}:/{path}")
        return Target(name, path)
    if not text or text in home.names():
        home.directory(text)
        return Target(text, "/")
    found = mount_containing(text)
    if found is not None:
        mount, inside = found
        if not is_own(home, mount):
            raise UsageError(f"{mount.point} is mounted from another home than {home.path}: set BASEFS_HOME")
        return Target(mount.name, "/" + "/".join(inside.parts))
    if "/" not in text and not os.path.lexists(text):
        home.directory(text)
        return Target(text, "/")
    raise UsageError(f"{text!r} is neither NAME:/PATH nor a path inside a mounted filesystem")


def parse_changed(home: Home, text: str) -> Target:
    """The target of a command that changes it: a word with two meanings is refused.  Raises as `parse_target`."""
    target = parse_target(home, text)
    if ":" in text or "/" in text or not os.path.lexists(text):
        return target
    found = mount_containing(text)
    if found is not None and Target(found[0].name, "/" + "/".join(found[1].parts)) != target:
        raise UsageError(
            f"{text} is a filesystem, and also {resolve(text)}: write {text}:/ for all of the filesystem, ./{text} for "
            "the path"
        )
    return target


def parse_name(home: Home, text: str) -> str:
    """The filesystem that a command line names, for a command on the whole of it; see `parse_target`."""
    if not {"/", ":"} & set(text) and not os.path.lexists(text):
        # In a mount it could be a path that is gone, but that is nothing to such a command.
        home.directory(text)
        return text
    target = parse_target(home, text)
    if target.path != "/":
        raise UsageError(f"this command takes a whole filesystem, not a path: write {target.name}")
    return target.name
