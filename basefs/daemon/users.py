"""Which processes of this machine use a mount, in this mount namespace or with a copy of it in another one.

Nothing here touches the mount itself, which may not answer: proc(5) tells the paths.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.mounts import Mount, mounts


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
