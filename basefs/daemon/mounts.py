"""The mounts of this machine: which are ours, which are dead, who uses them, where one may be, and taking one away."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.lock import is_held
from basefs.errors import MountFailed, UsageError, suggestion
from basefs.fs.channel import Serving, who_serves
from basefs.fs.server.device import unmount, why_no_mount

#: Fields of /proc/self/mountinfo, proc(5): 5 is the mount point, and after the "-" come type and source.
_MOUNTINFO = re.compile(rb"^\d+ \d+ \S+ \S+ (?P<point>\S+) .* - fuse\.basefs basefs:(?P<name>\S+) ", re.MULTILINE)
_OCTAL = re.compile(rb"\\([0-7]{3})")
#: Options that decide how this mount works, so they cannot be set from outside.
_RESERVED = frozenset(
    {"fsname", "subtype", "attr_timeout", "entry_timeout", "negative_timeout", "default_permissions", "use_ino"}
)
#: Options that may be set.
_OPTIONS = frozenset(
    {"ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "sync", "async", "dirsync", "atime", "noatime"}
    | {"nosymfollow", "allow_other", "allow_root", "max_read", "context", "fscontext", "defcontext", "rootcontext"}
)


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted filesystem: its name and mount point."""

    name: str
    point: Path


def mounts(process: Path = Path("/proc/self")) -> list[Mount]:
    """Every BaseFS mount in the mount namespace of a process, dead ones too, the latest last.  Raises OSError."""
    found = []
    for match in _MOUNTINFO.finditer((process / "mountinfo").read_bytes()):
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
    """Whether a mount belongs to a daemon or a mount server of this home, dead or alive."""
    server = server_of(home, mount.name)
    if server is not None and server.mountpoint == os.fsencode(mount.point):
        return True
    facts = RunFile(home, mount.name).read()
    if facts is None or facts[1] != mount.point:
        return False
    # A home that was copied while its filesystem was mounted says the same as the first one.
    is_silent = server is not None and server.mountpoint is None
    return is_silent or is_held(home.directory(mount.name)) or is_dead(mount.point)


def served_at(home: Home, name: str) -> Path | None:
    """Where a mount server of this home serves a filesystem, with or without a daemon; `None` where none answers."""
    server = server_of(home, name)
    if server is None or server.mountpoint is None:
        return None
    point = Path(os.fsdecode(server.mountpoint))
    return point if Mount(name, point) in mounts() else None


def server_of(home: Home, name: str) -> Serving | None:
    """The mount server of a filesystem, which may not answer; `None` if there is none."""
    return who_serves(socket_of(home, name))


def socket_of(home: Home, name: str) -> Path:
    """Where the mount server of a filesystem listens."""
    return home.run_directory() / f"{name}.mount.sock"


def is_dead(point: Path) -> bool:
    """Whether the daemon behind a mount has ended, so that it answers with errors."""
    try:
        os.statvfs(point)
    except OSError:
        return True
    return False


def mount_containing(text: str) -> tuple[Mount, Path] | None:
    """The mount that a path is in, and the path in it, from the mount point down."""
    for absolute in (resolve(text), Path(os.path.realpath(text))):
        for mount in reversed(mounts()):
            if absolute == mount.point or mount.point in absolute.parents:
                return mount, absolute.relative_to(mount.point)
    return None


def check_mountpoint(path: Path) -> None:
    """Raise `MountFailed` where nothing can be mounted, and say why."""
    if reason := why_no_mount():
        raise MountFailed(f"cannot mount on {path}: {reason}")
    try:
        if not path.is_dir():
            remedy = "choose another path" if path.exists() else f"make it with 'mkdir {path}'"
            raise MountFailed(f"{path} is not a directory: {remedy}")
    except OSError as error:
        raise MountFailed(
            f"{path} cannot be used: {error.strerror}; 'basefs unmount {path}' clears a dead mount"
        ) from None
    if os.path.ismount(path):
        raise MountFailed(f"something is mounted on {path} already: unmount it, or choose another directory")


def parse_options(text: str) -> list[str]:
    """Options of mount(8) and FUSE, as in `-o a,b=c`.  Raises `UsageError`, naming the one that cannot be."""
    options = list(filter(None, text.split(",")))
    for option in options:
        name = option.partition("=")[0]
        if name in _RESERVED:
            raise UsageError(f"the mount option {name} is BaseFS's own: leave it out")
        if name not in _OPTIONS:
            raise UsageError(f"there is no mount option {name}{suggestion(name, _OPTIONS)}: leave it out")
        if name == "nosymfollow" and os.geteuid() != 0:
            raise UsageError("only root can mount with nosymfollow: leave it out, or mount as root")
    return options


def clear_dead(point: Path) -> None:
    """Detach a mount of ours whose daemon died: it answers with errors until then.  Raises `MountFailed`."""
    # The kernel may remember what stat(2) tells, but asks for statvfs(2).
    if is_dead(point) and any(mount.point == point for mount in mounts()):
        unmount(point, lazy=True)


@dataclass(frozen=True, slots=True)
class MountUser:
    """A process: its number, its command, and whether it is in another mount namespace."""

    pid: int
    command: str
    elsewhere: bool

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})" + (" in another mount namespace" if self.elsewhere else "")


def users_of(mount: Mount) -> list[MountUser]:
    """The processes with an open file or a directory in a mount, as far as they may be looked at.

    It does not touch the mount, which may not answer: proc(5) tells the paths.
    Of another mount namespace with a copy of the mount, at the same place, its first process stands for all.
    """
    here = os.readlink("/proc/self/ns/mnt")
    copies: set[str] = set()
    found = []
    for process in _processes():
        with contextlib.suppress(OSError):
            namespace = os.readlink(process / "ns/mnt")
            if namespace == here:
                uses = int(process.name) != os.getpid() and any(_is_in(path, mount.point) for path in _paths(process))
            else:
                uses = namespace not in copies and mount in mounts(process)
                copies |= {namespace} if uses else set()
            if uses:
                found.append(MountUser(int(process.name), _command(process), namespace != here))
    return found


def _processes() -> list[Path]:
    return sorted((path for path in Path("/proc").iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def _paths(process: Path) -> Iterator[str]:
    """What a process has open, and where it is."""
    for link in (process / "cwd", process / "root", *(process / "fd").iterdir()):
        with contextlib.suppress(OSError):
            yield os.readlink(link)
    for line in (process / "maps").read_text(errors="surrogateescape").splitlines():
        yield line.partition("/")[1] + line.partition("/")[2]


def _is_in(path: str, point: Path) -> bool:
    return path == str(point) or path.startswith(f"{point}/")


def _command(process: Path) -> str:
    return (process / "comm").read_text(errors="replace").strip()
