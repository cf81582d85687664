"""The performer: does the daemon's jobs through the mount, as any application would change the tree.

So the kernel's caches are right and watchers are notified.  A thread makes the system calls; the request that follows,
recognised by its thread, compares the disk with what the job expects and moves the prepared file into place.  A change
of another node thus comes between two requests of applications, never into one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import queue
import stat
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from pathlib import Path

from basefs.fs.disk import Found, open_beneath
from basefs.fs.jobs import JobAction, JobResult, TreeJob, apply, expects
from basefs.fs.server.device import Answer, Device, KernelRequest, Operation, private_mount
from basefs.fs.server.passthrough import INCOMING, Passthrough

log = logging.getLogger(__name__)

#: Seconds that one job may take through the mount, and the kernel to forget what was changed without it.
_JOB_SECONDS, _FORGET_SECONDS = 5.0, 1.0
#: Bits of mode that the thread must see to be let through where it is not root's.
_MORE = 0o700
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
_CLONE_FILES = 0x400
#: `struct file_handle` of a node (Linux, fs/fuse/inode.c): its size and type; node and generation.
_HANDLE, _FUSE_HANDLE = struct.Struct("=IiIII"), 0x81

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    """`struct timespec`."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


#: With the modification time alone, watchers get IN_MODIFY and not IN_ATTRIB.
_MODIFIED = (_Timespec * 2)(_Timespec(0, _UTIME_OMIT), _Timespec(0, _UTIME_NOW))


class _How(Enum):
    """The system call by which a job is done."""

    UNLINK = auto()
    RMDIR = auto()
    MKDIR = auto()
    #: open(2), symlink(2) or mknod(2).
    CREATE = auto()
    #: The same node gets another content: nobody has the file open.
    SWAP = auto()
    #: Another file takes the name: old handles keep the old one.
    RENAME = auto()
    #: rename(2) of a directory.
    MOVE = auto()
    CHMOD = auto()
    UTIMENS = auto()


class _Current:
    """The job that is being done.

    Attributes:
        job, how: what is done.
        kind: of a prepared file, its `S_IFMT`.
        result: once it was tried.
    """

    def __init__(self, job: TreeJob, how: _How, kind: int) -> None:
        self.job, self.how, self.kind = job, how, kind
        self.result: JobResult | None = None


class Performer:
    """Does jobs one after the other."""

    def __init__(
        self,
        passthrough: Passthrough,
        device: Device,
        mountpoint: Path,
        changed_after: Callable[[bytes, int], bool],
        *,
        events: bool,
    ) -> None:
        """
        Args:
            changed_after: whether a path changed after the change of this number.
            events: go through the mount; otherwise jobs are done on the disk, and the kernel is told to forget.
        """
        self._tree, self._device, self._mountpoint = passthrough, device, mountpoint
        self._changed_after = changed_after
        self._events = events
        self._batches: queue.SimpleQueue[tuple[Sequence[TreeJob], int, Callable[[Sequence[JobResult]], None]]]
        self._batches = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[tuple[_Current, threading.Event]] = queue.SimpleQueue()
        #: Paths that the kernel is to look up again; "" for the modes of all nodes.
        self._forgotten: queue.SimpleQueue[tuple[bytes, threading.Event]] = queue.SimpleQueue()
        #: Native id of the thread that makes the system calls, and whether it still makes one that took too long.
        self._thread = 0
        self._hangs = False
        self._current: _Current | None = None
        self._is_root = os.geteuid() == 0

    def start(self) -> None:
        """Do jobs from now on."""
        for main in (self._main, self._call, self._forget):
            threading.Thread(target=main, name=f"performer{main.__name__}", daemon=True).start()

    def perform(self, jobs: Sequence[TreeJob], seen: int, answer: Callable[[Sequence[JobResult]], None]) -> None:
        """Do jobs of paths that did not change after the change number `seen`, then call `answer`."""
        self._batches.put((jobs, seen, answer))

    def forget(self, paths: Sequence[bytes], seconds: float = 0) -> None:
        """Have the kernel look up paths again; wait for so long until it has."""
        done = threading.Event()
        for path in paths:
            done = threading.Event()
            self._forgotten.put((path, done))
        if paths and seconds:
            done.wait(seconds)

    def forget_modes(self) -> None:
        """Have the kernel ask for the modes of all files again, which show the rights of this node."""
        self._forgotten.put((b"", threading.Event()))

    # -- deciding -----------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        while True:
            jobs, seen, answer = self._batches.get()
            results = []
            for job in jobs:
                try:
                    results.append(self._do(job, seen))
                except Exception:
                    log.exception("a change of %s failed unexpectedly", os.fsdecode(job.path))
                    results.append(JobResult(False, None, "failed unexpectedly"))
            answer(results)

    def _do(self, job: TreeJob, seen: int) -> JobResult:
        with self._tree.turn:
            current = self._decide(job, seen)
        if isinstance(current, JobResult):
            return current
        if self._events and not self._hangs:
            self._through_the_mount(current)
            if current.how is _How.SWAP and current.result is not None and not current.result.done:
                # Somebody has opened it meanwhile.
                current = _Current(job, _How.RENAME, current.kind)
                self._through_the_mount(current)
        if current.result is None:
            self._directly(current, seen)
        assert current.result is not None
        return current.result

    def _decide(self, job: TreeJob, seen: int) -> _Current | JobResult:
        """How a job is to be done, or why it is not."""
        disk = self._tree.disk
        found = disk.look(job.path)
        refused = self._refusal(job, seen, found)
        if refused:
            return JobResult(False, found, refused)
        kind = 0
        if job.action is JobAction.REMOVE:
            how = _How.RMDIR if found is not None and stat.S_ISDIR(found.mode) else _How.UNLINK
        elif job.action is JobAction.MAKE_DIRECTORY:
            how = _How.MKDIR
        elif job.action is JobAction.MOVE:
            how = _How.MOVE
        elif job.action is JobAction.ATTRIBUTES:
            how = _How.UTIMENS if found is not None and stat.S_ISLNK(found.mode) else _How.CHMOD
        else:
            put = disk.look_at(disk.incoming, job.temporary)
            kind = stat.S_IFMT(put.mode)
            how = _How.CREATE if found is None else _How.SWAP if self._may_swap(found, put) else _How.RENAME
        return _Current(job, how, kind)

    def _refusal(self, job: TreeJob, seen: int, found: Found | None) -> str:
        if self._changed_after(job.path, seen) or not expects(self._tree.disk, job, found):
            return "changed meanwhile"
        node = None if found is None else self._tree.nodes.of_inode(found.inode)
        if node is not None and node.opened is not None and node.opened.writers:
            node.opened.awaited = True
            return "open for writing"
        return ""

    def _may_swap(self, found: Found, put: Found) -> bool:
        """Whether a node may get the content of another file: it has one name, and so has the other."""
        node = self._tree.nodes.of_inode(found.inode)
        return (
            stat.S_ISREG(found.mode) and stat.S_ISREG(put.mode) and found.links == put.links == 1
            and (node is None or node.opened is None)
        )  # fmt: skip

    def _directly(self, current: _Current, seen: int) -> None:
        """Do a job on the disk."""
        job = current.job
        above, _, name = job.path.rpartition(b"/")
        with self._tree.turn:
            found = self._tree.disk.look(job.path)
            refused = self._refusal(job, seen, found)
            current.result = JobResult(False, found, refused) if refused else apply(self._tree.disk, job)
            parent = self._tree.nodes.find(above)
            gone = current.result.found is None or (found is not None and current.result.found.inode != found.inode)
            if current.result.done and job.action is JobAction.MOVE:
                self._moved(job)
            elif current.result.done and gone and parent is not None and parent.children is not None:
                self._tree.nodes.removed(parent, name)
        self.forget([job.source, job.path] if job.source else [job.path], _FORGET_SECONDS)

    def _moved(self, job: TreeJob) -> None:
        """A directory has another name now, as far as the kernel knows them."""
        (old_above, _, old_name), (above, _, name) = job.source.rpartition(b"/"), job.path.rpartition(b"/")
        old_parent, parent = self._tree.nodes.find(old_above), self._tree.nodes.find(above)
        if old_parent is None or old_parent.children is None:
            return
        if parent is None or parent.children is None:
            self._tree.nodes.removed(old_parent, old_name)
        else:
            self._tree.nodes.renamed(old_parent, old_name, parent, name)

    def _forget(self) -> None:
        while True:
            path, done = self._forgotten.get()
            if not path:
                for number in self._tree.nodes.numbers():
                    self._device.forget_node(number, pages=False)
                continue
            above, _, name = path.rpartition(b"/")
            with self._tree.turn:
                parent, node = self._tree.nodes.find(above), self._tree.nodes.find(path)
            if node is not None:
                self._device.forget_node(node.id)
            if parent is not None:
                self._device.forget_node(parent.id)
                if name:
                    self._device.forget_name(parent.id, name)
            done.set()

    # -- calling ------------------------------------------------------------------------------------------------------

    def _through_the_mount(self, current: _Current) -> None:
        done = threading.Event()
        self._calls.put((current, done))
        if done.wait(_JOB_SECONDS):
            return
        with self._tree.turn:
            self._current = self._tree.busy = None
            self._hangs = True
        log.warning("no inotify events of remote changes until %s is free: somebody blocks it", self._mountpoint)

    def _call(self) -> None:
        try:
            _leave_files()
        except OSError as error:
            log.warning("no inotify events of remote changes: %s", error)
            self._events = False
        self._thread = threading.get_native_id()
        while True:
            current, done = self._calls.get()
            with self._tree.turn:
                self._current = current
                self._tree.busy = self._tree.nodes.find(current.job.path)
            try:
                self._call_one(current)
            except OSError as error:
                if current.result is None:
                    log.info("%s of %s failed on the mount: %s", current.how, os.fsdecode(current.job.path), error)
            with self._tree.turn:
                self._current = self._tree.busy = None
                self._hangs = False
            done.set()

    def _call_one(self, current: _Current) -> None:
        above, _, name = current.job.path.rpartition(b"/")
        with _closing(private_mount(self._mountpoint)) as root, _beneath(root, above[1:]) as directory:
            if current.how is _How.UNLINK:
                os.unlink(name, dir_fd=directory)
            elif current.how is _How.RMDIR:
                os.rmdir(name, dir_fd=directory)
            elif current.how is _How.MKDIR:
                os.mkdir(name, dir_fd=directory)
            elif current.how is _How.CREATE:
                _create(current.kind, name, directory)
            elif current.how is _How.SWAP:
                with _closing(os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)) as found:
                    # Not by ftruncate(2): while a size is being set, the kernel ignores sizes in other answers.
                    if _libc.futimens(found, _MODIFIED):
                        raise OSError(ctypes.get_errno(), "futimens")
            elif current.how is _How.RENAME:
                with _beneath(root, INCOMING) as incoming:
                    os.rename(current.job.temporary, name, src_dir_fd=incoming, dst_dir_fd=directory)
            elif current.how is _How.MOVE:
                source, _, old_name = current.job.source.rpartition(b"/")
                with _beneath(root, source[1:]) as old_directory:
                    os.rename(old_name, name, src_dir_fd=old_directory, dst_dir_fd=directory)
            elif current.how is _How.CHMOD:
                with _beneath(directory, name, os.O_PATH | os.O_NOFOLLOW) as found:
                    os.chmod(b"/proc/thread-self/fd/%d" % found, 0o700)
            else:
                os.utime(name, dir_fd=directory, follow_symlinks=False)
            if current.how in (_How.SWAP, _How.RENAME):
                self._announce(root, current.job.path)

    def _announce(self, root: int, path: bytes) -> None:
        """Notify those who watch a file that was replaced while somebody has it open, and who know no name of it.

        Only root can open a file without a name that is not open here.
        """
        with self._tree.turn:
            node = self._tree.nodes.find(path)
            if node is None or not node.older:
                return
            node.older = [old for old in node.older if old.opened is not None]
            numbers = [old.id for old in node.older]
        # Not O_PATH, which is none of the mount's files.
        with _beneath(root, b".", os.O_RDONLY | os.O_DIRECTORY) as top:
            for number in numbers:
                handle = _HANDLE.pack(12, _FUSE_HANDLE, number >> 32, number & 0xFFFFFFFF, 0)
                found = _libc.open_by_handle_at(top, handle, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                if found >= 0:
                    os.close(found)

    # -- answering ----------------------------------------------------------------------------------------------------

    def operations(self) -> dict[int, Answer]:
        """What answers each request: those of applications go to the tree, those of the thread here."""
        ours: dict[int, Answer] = {
            Operation.LOOKUP: self._lookup, Operation.GETATTR: self._getattr, Operation.SETATTR: self._setattr,
            Operation.OPEN: self._open, Operation.FLUSH: self._ignore, Operation.CREATE: self._created,
            Operation.MKDIR: self._made, Operation.SYMLINK: self._made, Operation.MKNOD: self._made,
            Operation.UNLINK: self._removed, Operation.RMDIR: self._removed, Operation.RENAME: self._renamed,
            Operation.RENAME2: self._renamed,
        }  # fmt: skip
        turn = self._tree.turn

        def answerer(operation: int, theirs: Answer) -> Answer:
            own = ours.get(operation, theirs)

            def answer(request: KernelRequest) -> bytes | memoryview | None:
                with turn:
                    return own(request) if request.thread == self._thread else theirs(request)

            return answer

        return {operation: answerer(operation, theirs) for operation, theirs in self._tree.operations().items()}

    def _apply(self) -> JobResult:
        """Do the job, if it still may be done, and raise `OSError` if it is not."""
        current = self._current
        if current is None or current.result is not None:
            raise OSError(errno.EBUSY, "nothing to do")
        found = self._tree.disk.look(current.job.path)
        if self._is_open(found, current):
            current.result = JobResult(False, found, "open")
        else:
            current.result = apply(self._tree.disk, current.job)
        if not current.result.done:
            raise OSError(errno.EBUSY, current.result.reason)
        return current.result

    def _is_open(self, found: Found | None, current: _Current) -> bool:
        """Whether a file was opened, since this was decided, in a way that forbids the job."""
        node = None if found is None else self._tree.nodes.of_inode(found.inode)
        opened = None if node is None else node.opened
        if opened is None:
            return False
        opened.awaited = opened.awaited or opened.writers > 0
        return opened.writers > 0 or current.how is _How.SWAP

    def _lookup(self, request: KernelRequest) -> bytes:
        nodes = self._tree.nodes
        if request.node == nodes.root.id and bytes(request.body) == INCOMING + b"\0":
            return self._tree.pack_incoming()
        is_incoming = request.node == nodes.incoming.id
        return self._tree.lookup(request, *((0, _MORE) if is_incoming or not self._is_root else ()))

    def _getattr(self, request: KernelRequest) -> bytes:
        node = self._tree.nodes.get(request.node)
        return self._tree.pack_attributes(node, *(() if self._is_root else (0, _MORE)))

    def _setattr(self, request: KernelRequest) -> bytes:
        node = self._tree.nodes.get(request.node)
        result = self._apply()
        assert result.found is not None
        if result.found.inode != node.inode:
            self._tree.nodes.swapped(node, result.found.inode)
        return self._tree.pack_attributes(node)

    def _open(self, request: KernelRequest) -> bytes:
        current = self._current
        node = self._tree.nodes.get(request.node)
        if node.parent is None and node.opened is not None:
            # Older, and to be announced.
            return self._tree.pack_opened()
        if current is None or current.how is not _How.SWAP:
            raise OSError(errno.EBUSY, "nothing to do")
        # Refused here, watchers are not notified.
        if self._is_open(self._tree.disk.look(current.job.path), current):
            raise OSError(errno.EBUSY, "open")
        return self._tree.pack_opened()

    def _created(self, request: KernelRequest) -> bytes:
        return self._made(request) + self._tree.pack_opened()

    def _made(self, request: KernelRequest) -> bytes:
        current = self._current
        self._apply()
        assert current is not None
        above, name = self._tree.disk.parent(current.job.path)
        return self._tree.pack_entry(self._tree.nodes.get(request.node), name, above)

    def _removed(self, request: KernelRequest) -> bytes:
        result = self._apply()
        assert self._current is not None and result.found is None
        name = self._current.job.path.rpartition(b"/")[2]
        self._tree.nodes.removed(self._tree.nodes.get(request.node), name)
        return b""

    def _renamed(self, request: KernelRequest) -> bytes:
        self._apply()
        assert self._current is not None
        job, nodes = self._current.job, self._tree.nodes
        if job.action is JobAction.MOVE:
            self._moved(job)
            return b""
        above, _, name = job.path.rpartition(b"/")
        parent, old = nodes.find(above), nodes.find(job.path)
        assert parent is not None
        nodes.renamed(nodes.incoming, job.temporary, parent, name)
        if old is not None and old.parent is None:
            nodes.child(parent, name).older = [old, *old.older]
        return b""

    def _ignore(self, request: KernelRequest) -> bytes:
        return b""


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _beneath(
    directory: int, path: bytes, flags: int = os.O_PATH | os.O_DIRECTORY
) -> contextlib.AbstractContextManager[int]:
    return _closing(open_beneath(directory, path, flags))


def _create(kind: int, name: bytes, directory: int) -> None:
    """Have a file, a link or a special file made, which is the prepared one then."""
    if kind == stat.S_IFREG:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory))
    elif kind == stat.S_IFLNK:
        os.symlink(b".", name, dir_fd=directory)
    else:
        os.mknod(name, kind, dir_fd=directory)


def _leave_files() -> None:
    """Give this thread a file table of its own, with nothing in it but what logs.

    A thread that waits for its own mount when the process is killed would otherwise keep /dev/fuse open, so that the
    request it waits for never ends, nor does the mount.  Raises `OSError`.
    """
    if _libc.unshare(_CLONE_FILES):
        raise OSError(ctypes.get_errno(), "unshare")
    os.closerange(3, max(int(name) for name in os.listdir("/proc/thread-self/fd")) + 1)
