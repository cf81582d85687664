"""A filesystem without a mount, and what applications do on it in more than one step."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from basefs.fs.machine import THIS_MACHINE, Machine
from basefs.fs.owners import Owners
from basefs.fs.publish.plan import MAX_STEPS
from basefs.fs.staging.spool import Spool

from basefs.daemon.config import QUIET_SECONDS
from basefs.fs.filesystem import Filesystem
from basefs.log.entries import Action
from basefs.path import Path
from basefs.replica.bootstrap import CLUSTER_FILE, bootstrap
from basefs.replica.replica import Applied, Replica
from tests.support.helpers import ROOT_KEY, Clock, path

#: The only file of a new filesystem.
CLUSTER = CLUSTER_FILE
MOUNT_OWNER = (1234, 5678)


def abandon(spools: Iterable[Spool]) -> None:
    """Close spool files as the kernel does at the end of a process, which removes none."""
    for spool in spools:
        if spool.is_on_disk:
            os.close(spool._descriptor)


#: Makes a commit that is given to it, and does something before or after it.
Commit = Callable[[Callable[[], Applied]], Applied]


class Surrounded(Replica):
    """A replica that lets a test make its commits."""

    around: Commit | None = None

    def commit(self, *arguments: Any, **options: Any) -> Applied:
        commit = partial(super().commit, *arguments, **options)
        return commit() if self.around is None else self.around(commit)


class Local:
    """A replica and the filesystem on top of it.

    Attributes:
        replica: with a log of its own.
        fs: the filesystem under test.
    """

    def __init__(
        self,
        replica: Replica,
        *,
        owners: Owners | None = None,
        clock: Clock | None = None,
        quiet: float = QUIET_SECONDS,
        machine: Machine = THIS_MACHINE,
    ) -> None:
        self.replica = replica
        owners = owners or Owners(*MOUNT_OWNER, keep=False)
        self.fs = Filesystem(replica, owners, clock or Clock(), quiet, machine=machine)
        self._actions: list[Action] = []
        replica.subscribe(self._note)

    @classmethod
    def bootstrap(cls, directory: pathlib.Path, *, owners: Owners | None = None) -> Local:
        """A new filesystem in a directory that is made."""
        directory.mkdir()
        return cls(bootstrap(directory, [(b"root", ROOT_KEY)], []), owners=owners)

    @classmethod
    def surrounded(cls, directory: pathlib.Path) -> Local:
        """The same, with a replica that is `Surrounded`."""
        directory.mkdir()
        bootstrap(directory, [(b"root", ROOT_KEY)], []).close()
        return cls(Surrounded(directory, [ROOT_KEY]))

    def spools(self) -> list[Spool]:
        """The spool files that are open."""
        inodes = {inode for _, inode in self.fs.working.overlay.items() if inode is not None}
        spools = {spool for inode in inodes for spool in (inode.spool, inode.kept) if spool is not None}
        return [spool for spool in spools if spool.is_on_disk]

    def kill(self) -> None:
        """The process is killed: nothing is written any more, and the kernel closes its files."""
        spools = self.spools()
        self.fs.working.journal.close()
        self.replica.close()
        abandon(spools)

    def _note(self, applied: Applied) -> None:
        self._actions.extend(entry.action for entry in applied.entries)

    @contextlib.contextmanager
    def costs(self, *actions: Action) -> Iterator[None]:
        """What happens inside adds exactly these entries to the log."""
        self.publish()
        before = self.replica.totals()["entries"]
        self._actions.clear()
        yield
        self.publish()
        assert self._actions == list(actions)
        assert self.replica.totals()["entries"] == before + len(actions)

    def save(self, text: str, content: bytes) -> None:
        """What a shell does for `> FILE`."""
        handle = self.open_writer(text)
        self.fs.files.write(handle, content, 0)
        self.close(handle)

    def open_writer(self, text: str) -> int:
        """open(2) with O_WRONLY, O_CREAT and O_TRUNC."""
        names = path(text)
        if names[-1] in self.listing(text.rpartition("/")[0]):
            return self.fs.files.open(names, os.O_WRONLY | os.O_TRUNC)
        return self.fs.files.create(names, 0o644)

    def close(self, handle: int) -> None:
        """close(2) of a handle that was never duplicated."""
        self.fs.files.flush(handle)
        self.fs.files.release(handle)

    def read_handle(self, handle: int) -> bytes:
        """All that a handle shows."""
        return self.fs.files.read(handle, 1 << 30, 0)

    def load(self, where: str | Path) -> bytes:
        """What `cat FILE` prints."""
        handle = self.fs.files.open(path(where) if isinstance(where, str) else where, os.O_RDONLY)
        try:
            return self.read_handle(handle)
        finally:
            self.fs.files.release(handle)

    def listing(self, text: str) -> dict[bytes, int]:
        """The names in a directory with their type bits, each told once."""
        listed = {name: bits for name, bits, _ in self.fs.metadata.list(path(text))}
        assert len(listed) == len(self.fs.metadata.list(path(text)))
        return listed

    def publish(self, *, most: int = MAX_STEPS) -> None:
        """What the publisher does when nothing has changed for a long while; `most`: see `Publisher.publish`."""
        self.fs.publisher.publish(most=most)

    def surround(self, commit: Commit | None) -> None:
        """Have each commit, which is an argument, made by a test, of a replica that is `Surrounded`."""
        assert isinstance(self.replica, Surrounded)
        self.replica.around = commit

    def mode(self, text: str) -> int:
        """Permission bits."""
        return self.fs.metadata.stat(path(text)).mode & 0o7777
