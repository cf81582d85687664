"""A mount without FUSE: programs change a real directory, and its worktree is the real one.

What the mount server does for a daemon is done by `Mount`, which outlives the daemon's processes: it tells of each
change after it was made, and knows which files are open for writing.  `Worktree` is what one process has: it may end
before any system call or statement of SQLite that changes something (`Boundaries`).  The disk keeps what was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import sqlite3
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

from basefs.daemon import config
from basefs.errors import IncompleteContent, NoSpace
from basefs.fs.channel import BATCH_SECONDS, VERSION, Changed, Flags, Hello, MountServer
from basefs.fs.disk import Disk
from basefs.fs.filesystem import Filesystem
from basefs.fs.jobs import JobResult, TreeJob, apply
from basefs.fs.worktree.index import to_bytes
from basefs.fs.worktree.machine import Machine
from basefs.fs.worktree.owners import Owners
from basefs.fs.worktree.scratch import ScratchNames
from basefs.path import Path as Names
from basefs.path import display
from basefs.replica.replica import Applied, Replica
from basefs.tasks import is_set_within
from basefs.view.states import Kind
from tests.simulation.loop import BEGINNING, Loop, Process

T = TypeVar("T")

#: Calls that change the disk.
_CALLS = {
    *(os.write, os.pwrite, os.ftruncate, os.truncate, os.utime, os.chmod, os.fchmod, os.chown, os.setxattr),
    *(os.link, os.symlink, os.mkdir, os.rename, os.replace, os.unlink, os.rmdir, os.fsync, os.fdatasync),
}
_STATEMENTS = {"execute", "executemany", "executescript"}
#: Nanoseconds since 1970 at which a run begins.
_BIRTH = 1_000_000_100 * 10**9
_SPECIAL = {stat.S_IFIFO: Kind.FIFO, stat.S_IFCHR: Kind.CHARACTER, stat.S_IFBLK: Kind.BLOCK}
_SCRATCH = ScratchNames()
NOTHING = Flags(0)


class Killed(BaseException):
    """The process ends in the middle of what it does."""


class Boundaries:
    """Counts what a process does to its disk, so that it can be ended in between."""

    def __init__(self) -> None:
        self._left: int | None = None
        #: Whether a file was changed since the last statement.
        self._has_changed = False

    def arm(self, count: int) -> None:
        """Let the process end before the next step after so many."""
        self._left, self._has_changed = count, False

    def disarm(self) -> None:
        """Let the process live."""
        self._left = None

    @property
    def is_armed(self) -> bool:
        """Whether the process is to end."""
        return self._left is not None

    def run(self, call: Callable[[], T]) -> T:
        """The result of a call.  Raises `Killed` if the process ends in the middle of it."""
        if self._left is None:
            return call()
        before = sys.getprofile()
        sys.setprofile(self._look)
        try:
            return call()
        finally:
            sys.setprofile(before)

    def _look(self, frame: FrameType, event: str, called: Any) -> None:
        if self._left is None or event != "c_call":
            return
        connection = getattr(called, "__self__", None)
        if isinstance(connection, sqlite3.Connection) and called.__name__ in _STATEMENTS:
            # Between a change of a file and a transaction.  How many others there are depends on ticks of the clock.
            if not self._has_changed:
                return
            self._has_changed = False
        elif called in _CALLS:
            self._has_changed = True
        else:
            return
        self._left -= 1
        if self._left < 0:
            self._left = None
            raise Killed


def digest(content: bytes) -> str:
    """By which a content is known."""
    return f"{len(content)}:{hashlib.sha224(content).hexdigest()[:16]}"


class Saves:
    """The contents that programs have closed, and that no program which saw one has replaced or removed since.

    Each of them must be in the log in the end, or still in a worktree; no rule says more than that.
    """

    def __init__(self) -> None:
        #: Where each was saved last, as host and path.
        self._kept: dict[str, tuple[str, str]] = {}

    def closed(self, content: bytes, host: str, path: Names) -> None:
        """A program has closed a file."""
        if content:
            self._kept[digest(content)] = host, display(path)

    def seen(self, content: bytes) -> None:
        """A program that sees this is about to change, replace or remove it."""
        self._kept.pop(digest(content), None)

    def forget(self, host: str, has: set[str]) -> None:
        """A machine has lost what was saved there, but for what is still in its worktree."""
        self._kept = {each: saved for each, saved in self._kept.items() if saved[0] != host or each in has}

    def missing(self, found: set[str]) -> list[str]:
        """What is not among the contents of the logs and worktrees."""
        return [
            f"{content} was saved as {path} on {host}, and is nowhere"
            for content, (host, path) in self._kept.items()
            if content not in found
        ]


class Mount:
    """The mount server of one machine, for programs that use the directory itself.

    Attributes:
        home: what holds the directory, and the log of the latest process.
        saves: what programs of all machines have closed.
        closed: the paths that were closed since the disk was synced last.
        removed: the inodes of files whose names programs have taken away.
        restores: how often a backup was put back: what was open then is another disk's.
    """

    def __init__(self, host: str, loop: Loop, saves: Saves) -> None:
        self.host, self.saves = host, saves
        self._loop = loop
        self.closed: dict[Names, None] = {}
        self.removed: set[int] = set()
        self.restores = 0
        self._disk: Disk | None = None
        self._writing: Counter[int] = Counter()
        self._rights: Mapping[bytes, int] = {}
        self._has_room = True
        self._filesystem: Filesystem | None = None
        self._woken: Callable[[], object] = lambda: None
        #: The number of the last change, that of each path's last one, and the changes that were not told yet.
        self._number = 0
        self._marked: dict[bytes, int] = {}
        self._untold: dict[bytes, Changed] = {}
        #: The inodes of directories that are in the log.
        self._published: set[int] = set()
        #: Real nanoseconds: younger times of files are the kernel's.
        self._began = time.time_ns() - 10**9

    def serve(self, home: Path) -> None:
        """Serve what is in a directory, which may be a backup of what was there before."""
        if self._disk is not None:
            self._disk.close()
        self.home, self._disk = home, Disk(home, cached=False)

    @property
    def tree(self) -> Path:
        """The directory of programs."""
        return self.home / "tree"

    # -- for a daemon -------------------------------------------------------------------------------------------------

    def attach(self, filesystem: Filesystem, woken: Callable[[], object]) -> None:
        """Tell a process from now on; `woken` is called after each time."""
        self._filesystem, self._woken = filesystem, woken
        filesystem.attach(cast(MountServer, self))

    def detach(self) -> None:
        """The process has ended."""
        self._filesystem = None

    @property
    def hello(self) -> Hello:
        """See `MountServer`."""
        writing = tuple(sorted(inode for inode, count in self._writing.items() if count))
        return Hello(VERSION, os.getpid(), self._number, writing)

    def start(self) -> None:
        """See `MountServer`: nothing is told before."""

    def perform(self, jobs: Sequence[TreeJob], seen: int) -> list[JobResult]:
        """See `MountServer`."""
        if not jobs:
            self._tell()
        return [self._perform(job, seen) for job in jobs]

    def _perform(self, job: TreeJob, seen: int) -> JobResult:
        assert self._disk is not None
        found = self._disk.look(job.path)
        if self._marked.get(job.path, 0) > seen:
            return JobResult(False, found, "changed meanwhile")
        if found is not None and self._writing[found.inode]:
            return JobResult(False, found, "open for writing")
        return apply(self._disk, job)

    def rights(self, rights: Mapping[bytes, int]) -> None:
        """See `MountServer`."""
        self._rights = dict(rights)

    def room(self, has: bool) -> None:
        """See `MountServer`."""
        self._has_room = has

    def _tell(self) -> None:
        changes, self._untold = list(self._untold.values()), {}
        if changes and self._filesystem is not None:
            self._filesystem.changed(self._number, changes)
            self._woken()

    # -- for programs -------------------------------------------------------------------------------------------------

    def require_writable(self, *paths: Names) -> None:
        """Let only those change a path who may.  Raises `OSError`."""
        for path in paths:
            text = to_bytes(path)
            while text not in self._rights and text != b"/":
                text = text.rpartition(b"/")[0] or b"/"
            if number := self._rights.get(text, errno.EACCES):
                raise OSError(number, os.strerror(number))

    def require_room(self) -> None:
        """Let nothing be written that needs more.  Raises `OSError`."""
        if not self._has_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def tell(self, *paths: Names, inode: int, flags: Flags = NOTHING) -> None:
        """These names were changed."""
        self.keep_time()
        if not self._untold:
            self._loop.call_later(BATCH_SECONDS, self._tell)
        for path in map(to_bytes, paths):
            self._number += 1
            self._marked[path] = self._number
            before = self._untold[path].flags if path in self._untold else NOTHING
            ended = Flags.WRITING if flags & Flags.CLOSED else Flags.CLOSED if flags & Flags.WRITING else NOTHING
            self._untold[path] = Changed(path, inode, (before & ~ended) | flags)

    def opened(self, path: Names, inode: int) -> None:
        """A program has opened a file for writing."""
        self._writing[inode] += 1
        self.tell(path, inode=inode, flags=Flags.WRITING)

    def released(self, path: Names, inode: int, flags: Flags) -> None:
        """A program has closed a file that it had open for writing."""
        self._writing[inode] -= 1
        self.closed[path] = None
        self.tell(path, inode=inode, flags=flags if self._writing[inode] else flags | Flags.CLOSED)

    # -- what is there ------------------------------------------------------------------------------------------------

    def place(self, path: Names) -> str:
        """Where a path is."""
        return os.path.join(self.tree, *map(os.fsdecode, path))

    def name_of(self, inode: int) -> Names | None:
        """A name of a file, `None` if it has lost all."""
        return next((path for path, found in self.walk() if found.st_ino == inode), None)

    def walk(self, above: Names = ()) -> Iterator[tuple[Names, os.stat_result]]:
        """All that is there, in the order of names."""
        for name in sorted(map(os.fsencode, os.listdir(self.place(above)))):
            path = (*above, name)
            found = os.lstat(self.place(path))
            yield path, found
            if stat.S_ISDIR(found.st_mode):
                yield from self.walk(path)

    def keep_time(self) -> None:
        """Give what the kernel has just changed the time of the loop, so that a run is the same each time.

        A directory that was published keeps its time: no entry tells of that, unless a program has set it.
        """
        now = _BIRTH + int((self._loop.time() - BEGINNING) * 10**9)
        for path, found in [((), os.stat(self.tree)), *self.walk()]:
            if found.st_ino not in self._published and self._began <= found.st_mtime_ns <= time.time_ns():
                os.utime(self.place(path), ns=(now, now), follow_symlinks=False)

    def note_published(self, replica: Replica) -> None:
        """Remember which directories are in the log."""
        live = {path for path, kind in replica.live_paths() if kind is Kind.DIRECTORY}
        self._published = {os.stat(self.tree).st_ino, *(found.st_ino for path, found in self.walk() if path in live)}

    def shown(self) -> dict[Names, tuple[Kind, int, bytes]]:
        """What programs find at each path but those that never leave the machine: kind, bits, content or target."""
        found: dict[Names, tuple[Kind, int, bytes]] = {}
        for path, status in self.walk():
            if _SCRATCH.is_scratch(path):
                continue
            bits = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                found[path] = Kind.DIRECTORY, bits, b""
            elif stat.S_ISLNK(status.st_mode):
                found[path] = Kind.SYMLINK, 0, os.fsencode(os.readlink(self.place(path)))
            elif stat.S_ISREG(status.st_mode):
                found[path] = Kind.FILE, bits, Path(self.place(path)).read_bytes()
            else:
                found[path] = _SPECIAL[stat.S_IFMT(status.st_mode)], bits, b""
        return found

    def contents(self) -> set[str]:
        """The contents of all files."""
        files = (path for path, found in self.walk() if stat.S_ISREG(found.st_mode))
        return {digest(Path(self.place(path)).read_bytes()) for path in files}

    def differing(self, replica: Replica) -> list[Names]:
        """Where programs find something else than a replica shows."""
        view: dict[Names, tuple[Kind, int, bytes] | None] = {}
        for path, kind in replica.live_paths():
            if path and not _SCRATCH.is_scratch(path):
                view[path] = _shown_by(replica, path, kind)
        here = self.shown()
        return sorted(
            path
            for path in here.keys() | view.keys()
            if here.get(path) != view.get(path) and not (path in view and path in here and view[path] is None)
        )


def _shown_by(replica: Replica, path: Names, kind: Kind) -> tuple[Kind, int, bytes] | None:
    """What a worktree must have at a path, `None` for what is not here yet."""
    if kind is Kind.SYMLINK:
        return kind, 0, replica.read(path)
    bits = replica.attributes(path).mode & 0o777
    if kind is not Kind.FILE:
        return kind, bits, b""
    try:
        return kind, bits, replica.read(path)
    except IncompleteContent:
        return None


class Worktree:
    """The filesystem of one process, and who calls it in a daemon."""

    def __init__(
        self, replica: Replica, process: Process, loop: Loop, mount: Mount, boundaries: Boundaries, boot: str
    ) -> None:
        """`boot`: which of the machine's starts this is.  Raises `Killed`."""
        self._replica, self._process, self._loop, self._mount = replica, process, loop, mount
        self._boundaries = boundaries
        self._woken = asyncio.Event()
        self._is_closed = False
        self._tasks: list[asyncio.Task[None]] = []
        mount.note_published(replica)
        mount.keep_time()
        machine = Machine(loop.time, self._later, lambda: False, boot=lambda: boot.encode())
        owners = Owners(os.getuid(), os.getgid(), keep=False)
        self.filesystem = boundaries.run(
            lambda: Filesystem(replica, owners, config.QUIET_SECONDS, machine=machine, mounted=True)
        )
        try:
            boundaries.run(self._begin)
        except Killed:
            mount.detach()
            raise
        replica.subscribe(self._on_applied)

    def _begin(self) -> None:
        self._mount.attach(self.filesystem, self._woken.set)

    def start(self, die: Callable[[], object]) -> None:
        """Do what a daemon does all the time; `die` is called where the process ends in the middle of that."""
        self._die = die
        self._tasks = [asyncio.create_task(self._reconcile())]

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self._loop.call_later(seconds, lambda: None if self._is_closed else call())

    def _on_applied(self, applied: Applied) -> None:
        self._woken.set()

    async def _reconcile(self) -> None:
        while True:
            self._woken.clear()
            left = await asyncio.to_thread(self._attempt)
            await is_set_within(self._woken, left)

    def _attempt(self) -> float:
        if not self._is_closed:
            self._mount.note_published(self._replica)
            self._mount.keep_time()
            try:
                left = self._boundaries.run(self.filesystem.attempt)
                self._mount.note_published(self._replica)
                return left
            except Killed:
                self._is_closed = True
                self._die()
        return float("inf")

    def leave(self) -> None:
        """End as a daemon ends."""
        self.abandon()
        with contextlib.suppress(NoSpace):
            self.filesystem.close()

    def abandon(self) -> None:
        """The process was killed, perhaps in the middle of an attempt."""
        self._is_closed = True
        for task in self._tasks:
            self._loop.call_soon(task.cancel)
        self._tasks = []
