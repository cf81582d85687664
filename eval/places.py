"""Directories to compare: on the plain disk, through a FUSE passthrough in C, and in a BaseFS mount."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from eval.ending import uninterrupted
from tests.support.node import Node, detach

#: The name of the filesystem in a BaseFS place.
NAME = "place"

#: Makes a place in a directory that is not there yet.
Place = Callable[[Path], AbstractContextManager[Path]]


@contextlib.contextmanager
def plain(directory: Path) -> Iterator[Path]:
    """A directory on the disk."""
    directory.mkdir(parents=True)
    yield directory


@contextlib.contextmanager
def bindfs(directory: Path) -> Iterator[Path]:
    """A directory on the disk behind bindfs: what FUSE costs at least, in C."""
    below, mountpoint = directory / "below", directory / "mnt"
    below.mkdir(parents=True)
    mountpoint.mkdir()
    try:
        # A signal that came between the mount and here would find a mount that nobody ends.
        with uninterrupted():
            subprocess.run(["bindfs", str(below), str(mountpoint)], check=True)
        yield mountpoint
    finally:
        detach(mountpoint)


@contextlib.contextmanager
def mounted(directory: Path, *options: str) -> Iterator[Node]:
    """A node without a network that has a new filesystem mounted as root does, owners kept.

    Args:
        directory: of the node.
        options: for `basefs mount`.
    """
    with Node.temporary(directory) as node:
        node.basefs("genkey")
        node.basefs("bootstrap", NAME)
        # Other users must reach the mount point.
        directory.chmod(0o755)
        node.mount(NAME, "--owners", *options)
        yield node
        node.basefs("unmount", NAME)


@contextlib.contextmanager
def basefs(directory: Path) -> Iterator[Path]:
    """The root of a new BaseFS mount."""
    with mounted(directory) as node:
        yield node.mountpoint


def settle(root: Path) -> None:
    """Wait until everything that was written is in the log, where there is one."""
    if (root.parent / "home").is_dir():
        Node(root.parent).settle(NAME)


#: What a run compares, by the name that tables use.
PLACES: dict[str, Place] = {"disk": plain, "bindfs": bindfs, "BaseFS": basefs}


def by_turns(number: int) -> list[str]:
    """All places in the order of a round, each time another one first: what is slow for a while is slow for all."""
    first = number % len(PLACES)
    return [*list(PLACES)[first:], *list(PLACES)[:first]]
