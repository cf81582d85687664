"""The mirror: what another node has changed happens once more through the mount (docs/fs.md).

No filesystem in user space can send inotify events.  But when a thread of ours makes the file that another node has
made, the kernel tells whoever watches, and learns of it itself, so that its caches are right.  The handlers recognise
the thread and treat what it does as done already.

Invariants: whatever the mirror does or fails to do, nothing reaches the log, and no other process waits for it; it
changes nothing outside of the mount.  Its thread has no files but its own: there it neither reads the replica, whose
database would wait ten seconds for locks on files that are not there, nor writes to the daemon's log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from basefs.fs.fuse.kernel import TIMEOUT, Kernel, leave_files, mark_modified
from basefs.fs.fuse.reach import Reach, path_of
from basefs.fs.staging.inode import Inode
from basefs.fs.staging.overlay import MISSING
from basefs.fs.staging.scratch import HIDDEN_PREFIX
from basefs.fs.staging.workingset import WorkingSet
from basefs.path import Path
from basefs.replica.replica import Applied
from basefs.view.changes import Change
from basefs.view.states import Kind, State

log = logging.getLogger(__name__)

#: Seconds that one change may take before the mirror counts as hanging: longer than a loaded machine needs.
HANGS_AFTER = 5.0
#: Changes that wait at the most.  Beyond it the oldest are dropped: the kernel forgets them by itself in a minute.
MAX_WAITING = 100_000
#: Replaced files that somebody has open and of whose changes those who watch them go on hearing; each is a descriptor.
MAX_WATCHED = 256


#: Lines for the daemon's log that wait at the most.
_MAX_SAID = 100


@dataclass(slots=True)
class _Watch:
    """A file that was replaced while somebody has it open.

    Attributes:
        where: the path of which those who watch it hear.
        descriptor: what only refers to it, of the thread's own file table.
    """

    where: Path
    descriptor: int


@dataclass(slots=True)
class _Told:
    """What the kernel was told of a file.

    Attributes:
        size: bytes; `None` for nothing yet.
        thread: who had asked, and is the only one of whom it is known that the answer has reached the kernel when it
            asks for something else; 0 as soon as that was.
    """

    size: int | None = None
    thread: int = 0


class Mirror:
    """Performs the changes of other nodes on the mount.

    Attributes:
        number: inode number of what is gone already while it removes it.
        thread: native id of the thread that does it; 0 while it does not run.
        absent: a path that this thread shall not find, since it is about to make it.
        held: open inodes of the file that it is about to change.
        kept: the name that libfuse has given to them.
        watched: what else was replaced while somebody has it open; only the thread adds and removes.
        present: paths that it shall find as they were, since it is about to remove them.
    """

    def __init__(self, working: WorkingSet, kernel: Kernel, mountpoint: pathlib.Path) -> None:
        self._working = working
        self._kernel = kernel
        self._reach = Reach(os.fsencode(mountpoint))
        self._waiting: OrderedDict[Path, tuple[State | None, State | None]] = OrderedDict()
        #: Files that wait and of which the kernel had to forget what it knew: what it was told last since.
        self._told: dict[Path, _Told] = {}
        self._wake = threading.Condition()
        #: When the change that is being performed was begun, monotonic seconds.
        self._since: float | None = None
        self._performing: Path | None = None
        self._stopped = False
        #: Whether a change hung, so that the kernel must be told of all others without the mount.
        self._given_up = False
        self.number = working.identities.new_number()
        self.thread = 0
        self.absent: Path | None = None
        self.present: dict[Path, Kind] = {}
        self.held: list[Inode] = []
        self.kept: Path | None = None
        self.watched: dict[Inode, _Watch] = {}
        #: Whether one of them may be open no more.
        self._closed = False
        #: What the thread would write to the daemon's log.
        self._said: deque[str] = deque(maxlen=_MAX_SAID)

    def start(self) -> None:
        """Follow the changes of the view from now on; the mount must be there."""
        threading.Thread(target=self._main, name="mirror", daemon=True).start()
        self._working.replica.subscribe(self.on_applied)
        self._working.on_overruled(self._on_overruled)

    def stop(self) -> None:
        """Do nothing any more."""
        with self._wake:
            self._stopped = True
            self._waiting.clear()
            self._told.clear()
            self._wake.notify()

    def let_go(self, kept: Path) -> None:
        """Nobody has the file of this name open any more; what the kernel knows of it shall go."""
        if self.watched and kept[-1].startswith(HIDDEN_PREFIX):
            with self._wake:
                self._closed = True
                self._wake.notify()

    def move(self, source: Path, target: Path, *, exchange: bool) -> None:
        """Something has moved here, or two have changed places: what is open goes along.

        But not to a name that never leaves this node: what is saved under the old one is the next version of the file.
        """
        moves = {source: target, target: source} if exchange else {source: target}
        for watch in list(self.watched.values()):
            for old, new in moves.items():
                if watch.where[: len(old)] == old:
                    if watch.where != old or not self._working.scratch.is_scratch(new):
                        watch.where = (*new, *watch.where[len(old) :])
                    break

    @property
    def is_busy(self) -> bool:
        """Whether the thread is performing a change."""
        return self._since is not None

    @property
    def waiting(self) -> int:
        """How many changes are not performed yet."""
        with self._wake:
            return len(self._waiting) + (self._since is not None)

    def is_settled(self, path: Path, size: int, thread: int) -> bool:
        """Whether the kernel knows this size of what a thread opens at a path; what it has cached may be older if not.

        It does when the change was performed.  It also does before, if it had to forget the old size, and has asked for
        this one since: who opens a file has its permissions checked first, so that its attributes are known again
        (Linux, fs/fuse/dir.c, `fuse_permission`).
        """
        if not self._working.replica.is_delivered(path):
            return False
        with self._wake:
            if path == self._performing:
                # What it is told now may be overtaken by an older answer to the mirror's thread.
                return False
            if path not in self._waiting:
                return True
            told = self._told.get(path)
            if told is None or told.size != size or told.thread not in (0, thread):
                return False
            told.thread = 0
            return self._kernel.has_forgotten(path)

    def answered(self, path: Path, size: int, thread: int) -> None:
        """The kernel, asking for a thread that is not the mirror's, is told that what is at a path has this size."""
        if path in self._told:
            with self._wake:
                # What it is told before it forgets, it forgets.
                if path in self._told and path != self._performing and self._kernel.has_forgotten(path):
                    told = self._told[path]
                    if told.size != size:
                        told.size, told.thread = size, thread

    @property
    def needs_check(self) -> bool:
        """Whether `check` may have something to do."""
        return self.is_busy or bool(self._said)

    def check(self) -> None:
        """Give up if a change hangs, and tell what the thread could not; call this now and then."""
        while self._said:
            log.warning("%s", self._said.popleft())
        since = self._since
        if since is not None and not self._stopped and time.monotonic() - since > HANGS_AFTER:
            log.warning(
                "inotify events of remote changes and kernel caching disabled: one did not end within %g s", HANGS_AFTER
            )
            self._give_up()

    def _give_up(self) -> None:
        self._working.mirrored = False
        self._kernel.cache(0.0)
        with self._wake:
            self._given_up = True
            missed = [*self._waiting, *([] if self._performing is None else [self._performing])]
        self.stop()
        self._forget(missed)

    def _forget(self, paths: list[Path]) -> None:
        """Have the kernel ask again for what it learned of these paths while it was told to believe it for long."""
        self._kernel.invalidate({path for one in paths for path in (one, one[:-1])})

    def on_applied(self, applied: Applied) -> None:
        """The view has changed: what others have made of it waits to be performed."""
        # No lock of the working set here: whoever commits may hold it, and wait for this to end.
        own = self._working.in_flight if applied.local else frozenset()
        changes = [c for c in applied.changes if c.path and c.path not in own and not self._working.is_moving(c.path)]
        if own:
            # What this node does to one name of a file is no event of its others; the kernel asks for their number.
            self._kernel.invalidate([c.path for c in changes if c.before is c.after])
            changes = [c for c in changes if c.before is not c.after]
        if self._given_up:
            self._forget([c.path for c in changes])
        if self._stopped or not changes:
            return
        held = {inode.origin for inode in list(self._working.opened)}
        forgotten = {c.path for c in changes if c.before and c.after and c.before.origin not in held}
        # Known at once to those who ask, and to those who watch a moment later.  Before the changes wait: what the
        # kernel is told of them from then on, nobody makes it forget.
        self._kernel.invalidate(forgotten)
        with self._wake:
            if self._stopped:
                return
            for change in changes:
                self._add(change, is_forgotten=change.path in forgotten)
            self._wake.notify()

    def _on_overruled(self, path: Path, before: State | None, after: State) -> None:
        """What was changed here, which the kernel knows, has given way to what another node had made of the path."""
        if self._given_up:
            self._forget([path])
        with self._wake:
            if not self._stopped:
                self._add(Change(path, before, after, None), is_forgotten=False)
                self._wake.notify()

    def _add(self, change: Change, *, is_forgotten: bool) -> None:
        """Several changes of a path that wait become one."""
        path, after = change.path, change.after
        before, _ = self._waiting.pop(path, (change.before, None))
        self._waiting[path] = (before, after)
        self._told.pop(path, None)
        if is_forgotten and before is not None and after is not None and before.kind is after.kind is Kind.FILE:
            self._told[path] = _Told()
        if len(self._waiting) > MAX_WAITING:
            dropped, _ = self._waiting.popitem(last=False)
            self._told.pop(dropped, None)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            leave_files()
            self._reach.begin()
        except OSError as error:
            self._said.append(f"no events for the changes of other nodes, and no caching: {error}")
            self._give_up()
            return
        self.thread = threading.get_native_id()
        # From here on the kernel hears of every change.
        self._kernel.cache(TIMEOUT)
        self._working.mirrored = True
        while True:
            with self._wake:
                while not self._waiting and not self._stopped and not self._closed:
                    self._wake.wait()
                if self._stopped:
                    return
                closed, self._closed = self._closed, False
            if closed:
                self._unwatch_closed()
            with self._wake:
                if not self._waiting:
                    continue
                path, (before, after) = self._waiting.popitem(last=False)
                self._performing = path
                self._since = time.monotonic()
            try:
                self.perform(path, before, after)
            except OSError:
                pass  # somebody here has changed the path meanwhile, and the kernel knows that
            except Exception:
                self._said.append(f"a bug in the mirror: {traceback.format_exc()}")
            finally:
                self._end()
                with self._wake:
                    # If it waits again: the kernel may have been told of an older version in answer to this thread.
                    self._told.pop(path, None)
                    self._since = self._performing = None

    def _end(self) -> None:
        """From now on the path is what the view shows, whoever has another version open."""
        for inode in self.held:
            inode.parted = True
        if self.kept is not None:
            # While both were one file to the kernel, it may have taken the size of the other one for it.
            self._kernel.invalidate([self.kept])
        self.absent, self.present, self.held, self.kept = None, {}, [], None

    def perform(self, path: Path, before: State | None, after: State | None) -> None:
        """Make one change through the mount, as the thread does with each that waits.  Raises `OSError`."""
        working = self._working
        with working.lock:
            slot = working.overlay.get(path)
            if slot is not MISSING or working.overlay.hides(path):
                # What this node shows is its own change, which it publishes in a moment.
                self._kernel.invalidate([path])
                return
            self.held = [] if before is None else working.stale(before.origin, None if after is None else after.content)
        if after is None:
            # The directories above may be gone as well, and are to be removed afterwards.
            self.present = {path[:depth]: Kind.DIRECTORY for depth in range(1, len(path))}
        with self._reach.directory(path[:-1]) as directory:
            self._perform_in(directory, path, before, after)

    def _perform_in(self, directory: int, path: Path, before: State | None, after: State | None) -> None:
        if before is not None and after is not None and before.kind is after.kind:
            if after.kind is Kind.FILE and before.content != after.content:
                for inode, watch in self.watched.items():
                    if watch.where == path:
                        self._announce(watch.descriptor, [inode])
                if self.held:
                    # Who has it open keeps it: the kernel must take what comes now for another file.
                    self._watch(path, directory, before)
                    self._make(path, directory, after)
                else:
                    self._rewrite(path[-1], directory)
                return
            if after.kind is not Kind.SYMLINK or before.target == after.target:
                self._touch(path[-1], directory, after)
                return
        if before is not None:
            self._remove(path, directory, before)
        if after is not None:
            self._make(path, directory, after)

    def _make(self, path: Path, directory: int, after: State) -> None:
        for inode in self.held:
            inode.parted = True
        self.absent = path
        if after.kind is Kind.DIRECTORY:
            os.mkdir(path[-1], dir_fd=directory)
        elif after.kind is Kind.SYMLINK:
            os.symlink(after.target, path[-1], dir_fd=directory)
        else:
            os.close(os.open(path[-1], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=directory))

    def _remove(self, path: Path, directory: int, before: State) -> None:
        self.present[path] = before.kind
        if before.kind is Kind.DIRECTORY:
            os.rmdir(path[-1], dir_fd=directory)
        else:
            os.unlink(path[-1], dir_fd=directory)

    def _watch(self, path: Path, directory: int, before: State) -> None:
        """Remove a file that somebody has open, and have those who watch it hear of the next change as well."""
        with self._reach.entry(path[-1], directory) as found:
            self._announce(found, self.held)
            # It keeps nobody from closing the file, and the kernel does not tell of it.
            descriptor = os.dup(found)
        try:
            self._remove(path, directory, before)
        finally:
            if self.kept is None:
                os.close(descriptor)
            else:
                self.watched[self.held[0]] = _Watch(path, descriptor)
                # It may have been closed before anybody could know that it is watched.
                self._unwatch_closed()
        if len(self.watched) > MAX_WATCHED:
            self._unwatch(next(iter(self.watched)))

    def _unwatch_closed(self) -> None:
        # Not by the name: a directory above may have got another one.
        with self._working.lock:
            open_still = set(self._working.hidden.values())
        for inode in self.watched.keys() - open_still:
            self._unwatch(inode)

    def _unwatch(self, inode: Inode) -> None:
        os.close(self.watched.pop(inode).descriptor)

    @staticmethod
    def _announce(descriptor: int, held: Iterable[Inode]) -> None:
        """Tell those who watch the file itself: for them a file that loses its name goes only when nobody has it open.

        Not where somebody writes to it: the kernel may write mapped pages back by any handle, and not by ours.
        """
        if not any(inode.writers for inode in held):
            # Who has a lease on it is told, and not waited for.
            with contextlib.suppress(OSError):
                os.close(os.open(path_of(descriptor), os.O_WRONLY | os.O_NONBLOCK))

    def _rewrite(self, name: bytes, directory: int) -> None:
        with self._reach.entry(name, directory) as found:
            descriptor = os.open(path_of(found), os.O_WRONLY)
        try:
            mark_modified(descriptor)
        finally:
            os.close(descriptor)

    def _touch(self, name: bytes, directory: int, after: State) -> None:
        if after.kind is Kind.SYMLINK:
            with contextlib.suppress(OSError):
                os.utime(name, dir_fd=directory, follow_symlinks=False)
            return
        with self._reach.entry(name, directory) as found:
            os.chmod(path_of(found), after.mode)
