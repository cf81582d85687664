"""The mount of a node without FUSE: the real staging and publishing, and who calls them in a daemon.

A process may be ended in the middle of a call: between two system calls or statements of SQLite that change the disk
(`Boundaries`).  The disk is then copied, and what the process goes on doing reaches nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from stat import S_ISDIR
from types import FrameType
from typing import Any, TypeVar, cast

from basefs.fs.machine import Machine
from basefs.fs.owners import Owners
from basefs.fs.staging.inode import Inode

from basefs.daemon import config
from basefs.errors import IncompleteContent, NoSpace, NotADirectory, PathError
from basefs.fs.filesystem import Filesystem
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.replica.replica import Replica
from basefs.tasks import is_set_within
from basefs.view.states import Kind
from tests.fs.local import abandon
from tests.fs.numbers import confused
from tests.simulation.ledger import File, Ledger, Other, digest
from tests.simulation.loop import Loop, Process

T = TypeVar("T")

#: System calls that change the disk, or what is certain to be on it.
_CALLS = {
    os.open,
    os.pwrite,
    os.ftruncate,
    os.posix_fallocate,
    os.replace,
    os.rename,
    os.unlink,
    os.fsync,
    os.fdatasync,
}
_STATEMENTS = {"execute", "executemany", "executescript"}


class Boundaries:
    """Counts what a process does to its disk, so that it can be ended in between."""

    def __init__(self) -> None:
        self._left: int | None = None
        self._die: Callable[[], object] = lambda: None
        self._only_programs = False

    def arm(self, count: int, die: Callable[[], object], *, only_programs: bool) -> None:
        """Call `die` after so many steps, before the next one; `only_programs`: of those that these wait for."""
        self._left, self._die, self._only_programs = count, die, only_programs

    def disarm(self) -> None:
        """Let the process live."""
        self._left = None

    @property
    def is_armed(self) -> bool:
        """Whether the process is to end."""
        return self._left is not None

    def run(self, call: Callable[[], T], *, waits: bool) -> T:
        """The result of a call, which is watched if the process is to end; `waits`: whether a program does."""
        if self._left is None or (self._only_programs and not waits):
            return call()
        before = sys.getprofile()
        sys.setprofile(self._look)
        try:
            return call()
        finally:
            sys.setprofile(before)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing that is done inside."""
        before = sys.getprofile()
        sys.setprofile(None)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _look(self, frame: FrameType, event: str, called: Any) -> None:
        if self._left is None or event != "c_call":
            return
        is_statement = isinstance(getattr(called, "__self__", None), sqlite3.Connection)
        if called not in _CALLS and not (is_statement and called.__name__ in _STATEMENTS):
            return
        if self._left:
            self._left -= 1
        else:
            self._left = None
            self._die()


class _Noting:
    """A replica; `note` is called when all that was closed and published is on the disk."""

    def __init__(self, replica: Replica, note: Callable[[], object]) -> None:
        self._replica = replica
        self._note = note

    def sync_to_disk(self) -> None:
        # The journal and the files beside it were synced before (`StagingJournal.finish_sync`).
        self._replica.sync_to_disk()
        self._note()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica, name)


class Mount:
    """The filesystem of one process."""

    def __init__(
        self,
        replica: Replica,
        process: Process,
        loop: Loop,
        clock: Callable[[], float],
        synced: Callable[[], object],
        most: int,
    ) -> None:
        """`clock`: UNIX seconds; `synced`: is called when all that was closed is on the disk; `most`: in one commit."""
        self._replica, self._process, self._loop = replica, process, loop
        machine = Machine(loop.time, self._later, lambda: False)
        noting = cast(Replica, _Noting(replica, synced))
        owners = Owners(1000, 1000, keep=False)
        self.fs = Filesystem(noting, owners, clock, config.QUIET_SECONDS, machine=machine)
        self._most = most
        self._woken = asyncio.Event()
        self._files: dict[Inode, File] = {}
        #: What they were in the view when programs touched them first.
        self._origins: dict[File, EntryHash | None] = {}
        self._is_closed = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Do what a daemon does all the time."""
        self.fs.publisher.attend(self._woken.set)
        self._tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._keep_durable())]

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self._loop.call_later(seconds, lambda: None if self._is_closed else self._process.run(call))

    async def _publish(self) -> None:
        while True:
            self._woken.clear()
            due = await asyncio.to_thread(self._attempt)
            left = None if due is None else due - self._loop.time()
            if left is None or left > 0:
                await is_set_within(self._woken, left)

    def _attempt(self) -> float | None:
        return None if self._is_closed else self.fs.publisher.attempt(self._most)

    async def _keep_durable(self) -> None:
        while True:
            await asyncio.sleep(config.DURABLE_SECONDS)
            if not self.fs.is_durable:
                with contextlib.suppress(NoSpace):
                    await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        if not self._is_closed:
            self.fs.keep_durable()

    def leave(self) -> None:
        """End as a daemon ends."""
        with contextlib.suppress(NoSpace):
            self.fs.close()
        self._end()

    def abandon(self) -> None:
        """The process was killed: the kernel closes its files."""
        if not self._is_closed:
            self.fs.working.journal.close()
            self._end()

    def _end(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        working = self.fs.working
        inodes = dict.fromkeys([*working.opened, *(inode for _, inode in working.overlay.items() if inode)])
        abandon(spool for inode in inodes for spool in (inode.spool, inode.kept) if spool is not None)
        for inode in inodes:
            inode.forget_snapshot()

    # -- what programs know -------------------------------------------------------------------------------------------

    def files(self) -> list[File]:
        """All that programs have touched since the process began."""
        return list(self._files.values())

    def file_of(self, handle: int, path: Path, ledger: Ledger) -> File:
        """The file that a handle has open, which was opened at a path."""
        return self._known(self.fs.files.inode_of(handle), path, ledger)

    def published(self, handle: int) -> bytes | None:
        """What the log has of the file that a handle has open, `None` for nothing."""
        base = self.fs.files.inode_of(handle).base
        with contextlib.suppress(IncompleteContent):
            return None if base is None else self._replica.content_at(base)
        return None

    def file_at(self, path: Path, ledger: Ledger) -> File:
        """The file at a path.  Raises `NotFound`, `NotADirectory`."""
        if self.look(path) == Other.DIRECTORY.value:
            raise NotADirectory("this program moves files")
        inode, _ = self.fs.working.find(path)
        if inode is not None:
            return self._known(inode, path, ledger)
        thing = ledger.names.get(path)
        return thing if isinstance(thing, File) else ledger.unknown(path)

    def _known(self, inode: Inode, path: Path, ledger: Ledger) -> File:
        if inode not in self._files:
            thing = ledger.names.get(path)
            self._files[inode] = thing if isinstance(thing, File) else ledger.unknown(path)
            self._origins.setdefault(self._files[inode], inode.origin)
        return self._files[inode]

    def is_replaced(self, file: File, other: File) -> bool:
        """Whether others had made another file of a path when a program opened it after somebody had opened `file`."""
        began, origin = self._origins.get(file), self._origins.get(other)
        is_known = began is not None and origin is not None
        while origin is not None and origin != began:
            origin = self._replica.continues(origin)
        return is_known and origin is None

    def is_at(self, file: File, path: Path) -> bool:
        """Whether an open file is what has a name, in any version."""
        number = self.fs.metadata.stat(path).number
        return any(inode.number == number for inode, known in self._files.items() if known is file)

    def name_of(self, file: File) -> Path | None:
        """A name of an open file, in any version; `None` if it has lost all."""
        numbers = {inode.number for inode, known in self._files.items() if known is file}
        todo: list[Path] = [()]
        found = []
        while todo:
            above = todo.pop()
            for name, bits, number in self.fs.metadata.list(above):
                path = (*above, name)
                todo += [path] if S_ISDIR(bits) else []
                found += [path] if number in numbers else []
        return min(found, default=None)

    # -- what is there ------------------------------------------------------------------------------------------------

    def names(self) -> set[Path]:
        """The names that differ from what the view shows."""
        return {path for path, _ in self.fs.working.overlay.items()}

    def staged(self) -> dict[Path, str]:
        """The names that differ from what the view shows, and what programs find there."""
        found = {}
        for path, slot in sorted(self.fs.working.overlay.items(), key=lambda item: item[0]):
            if slot is None:
                found[path] = Other.GONE.value
            elif slot.kind is Kind.DIRECTORY:
                found[path] = Other.DIRECTORY.value
            elif slot.kind is Kind.SYMLINK:
                # A user has made it, and a program has renamed it; programs open none.
                found[path] = "link:"
            else:
                found[path] = self._read(path)
        return found

    def look(self, path: Path) -> str:
        """What is there."""
        try:
            inode, attributes = self.fs.working.find(path)
        except PathError:
            return Other.GONE.value
        kind = inode.kind if inode is not None else attributes.kind  # type: ignore[union-attr]
        return Other.DIRECTORY.value if kind is Kind.DIRECTORY else "file"

    def _read(self, path: Path) -> str:
        try:
            return digest(self.read(path))
        except IncompleteContent:
            return "0:incomplete"

    def read(self, path: Path) -> bytes:
        """What `cat` prints.  Raises as `Files.open`."""
        handle = self.fs.files.open(path, os.O_RDONLY)
        try:
            return self.fs.files.read(handle, 1 << 30, 0)
        finally:
            self.fs.files.release(handle)

    def waiting(self) -> list[Path]:
        """The names that will be published, but for those that the log refuses."""
        working = self.fs.working
        return [
            path
            for path, inode in sorted(working.overlay.items(), key=lambda item: item[0])
            if not working.scratch.is_scratch(path) and not (inode is not None and inode.refused)
        ]

    def differing(self) -> list[Path]:
        """Paths that are not what the replica shows, though nothing is staged of them, or above."""
        staged = [path for path, _ in self.fs.working.overlay.items()]
        found = []
        todo: list[Path] = [()]
        while todo:
            above = todo.pop()
            here, view = self.fs.working.kinds(above), self._replica.names_in(above)
            for name in sorted({*here, *view}):
                path = (*above, name)
                if path in staged:
                    continue
                if name not in here or name not in view or here[name][0] is not view[name] or not self._is_same(path):
                    found.append(path)
                elif view[name] is Kind.DIRECTORY:
                    todo.append(path)
        return found

    def confused(self) -> list[str]:
        """What is wrong with inode numbers."""
        return confused(self.fs, self._read)

    def _is_same(self, path: Path) -> bool:
        inode, _ = self.fs.working.find(path)
        if inode is not None and inode.names:
            # What is staged at one name of a file shows at all of them.
            return True
        attributes, stat = self._replica.attributes(path), self.fs.metadata.stat(path)
        if attributes.kind is not Kind.FILE:
            return True
        try:
            same = self.read(path) == self._replica.read(path)
        except IncompleteContent:
            same = True
        # A name that is another file here is none of this one.
        links = stat.links == attributes.links or bool(self.fs.working.overlay)
        return same and stat.size == attributes.size and links
