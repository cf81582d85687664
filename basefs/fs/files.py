"""Open files: what applications read and write."""

from __future__ import annotations

import enum
import os
from collections import OrderedDict
from dataclasses import dataclass

from basefs.errors import Exists, IsADirectory, StoreError, Unsupported
from basefs.fs.publish.publisher import Publisher, log
from basefs.fs.staging.inode import PERMISSION_BITS, Inode
from basefs.fs.staging.workingset import WorkingSet
from basefs.log.hashes import EntryHash
from basefs.path import Path, display
from basefs.view.states import Kind

#: Paths of which it is known where the kernel's pages come from; of others they are read again.
MAX_CACHED = 100_000


@dataclass(slots=True)
class Handle:
    """One open file description.

    Attributes:
        inode: what it has open.
        writes: whether it may write.
    """

    inode: Inode
    writes: bool


class Pages(enum.Enum):
    """What the kernel may do with the pages that it has of a file.

    They are right if they come from the version that is opened now, and useless if others have another version of the
    same path open, which share them.
    """

    KEEP = "keep"
    DROP = "drop"
    BYPASS = "bypass"


class Files:
    """The operations on open files."""

    def __init__(self, working: WorkingSet, publisher: Publisher) -> None:
        self._working = working
        self._publisher = publisher
        self._handles: dict[int, Handle] = {}
        self._next_handle = 1
        #: What the kernel's pages of a path come from.
        self._cached: OrderedDict[Path, EntryHash] = OrderedDict()

    def inode_of(self, handle: int) -> Inode:
        """What a handle has open."""
        return self._handles[handle].inode

    def handle_writes(self, handle: int) -> bool:
        """Whether a handle may write."""
        return self._handles[handle].writes

    def open(self, path: Path, flags: int, *, reads: bool = True) -> int:
        """Open an existing file; returns the handle.

        `reads`: whether its content is needed now; otherwise it is looked up when somebody asks for it.

        Raises `NotFound`, `NotADirectory`, `IsADirectory`, `PermissionDenied`, `ReadOnly`, `StoreError`.
        """
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        working = self._working
        with working.lock:
            inode, attributes = working.find(path)
            if inode is None:
                assert attributes is not None
                kind = attributes.kind
            else:
                kind = inode.kind
            if kind is Kind.DIRECTORY:
                raise IsADirectory(f"{display(path)} is a directory")
            if kind is Kind.SYMLINK:
                raise Unsupported(f"{display(path)} is a symbolic link")
            if writes:
                working.check_writable(path, attributes)
            if inode is None:
                assert attributes is not None
                inode = working.adopt(path, attributes)
            if writes and flags & os.O_TRUNC:
                self._empty(inode, inode.size if attributes is None else attributes.size)
            elif reads and (writes or inode.base is None or self._cached.get(path) != inode.base):
                # Otherwise the kernel has read it before, and asks again only if it needs the room.
                working.load(inode)
            return self._add(Handle(inode, writes))

    def _empty(self, inode: Inode, published: int) -> None:
        """O_TRUNC: nothing changes where there is nothing."""
        size = inode.size if inode.dirty else published
        spool = self._working.make_spool(inode, empty=True) if size else None
        if spool is None:
            self._working.load(inode)
            return
        spool.truncate(0)
        inode.touch(self._working.now())
        # Nothing was written yet: a shell that closes a duplicate of it has not saved anything.
        inode.written = False

    def create(self, path: Path, mode: int, caller: tuple[int, int] | None = None) -> int:
        """Create a file and open it for writing; returns the handle.  It is published after it was closed.

        `caller`: user and group id of who creates it, who owns it if owners are kept.
        """
        working = self._working
        with working.lock:
            try:
                working.check_new(path)
            except Exists:
                # It came from another node between the kernel's lookup and now.
                return self.open(path, os.O_RDWR)
            now = working.now()
            inode = Inode(
                working.identities.new_number(),
                Kind.FILE,
                mode=mode & PERMISSION_BITS,
                owner=working.owner_of(caller),
                mtime=now,
                dirty=True,
                unflushed=True,
                spool=working.new_spool(),
            )
            working.give(path, inode, ())
            working.touch_directory(path[:-1], now)
            return self._add(Handle(inode, writes=True))

    def _add(self, handle: Handle) -> int:
        number = self._next_handle
        self._next_handle += 1
        self._handles[number] = handle
        handle.inode.handles += 1
        self._working.opened.add(handle.inode)
        handle.inode.writers += handle.writes
        return number

    def pages(self, path: Path, handle: int, *, settled: bool) -> Pages:
        """What the kernel may do with its pages of a path that was just opened.

        `settled`: whether it knows the version that the view shows.  Until then it may take the size of an older one
        for that of this one, and a reader would see a part of the file, or zeros behind it.  A program that
        changes what it has read would save that, so it holds for writers too, though they cannot map the file then.
        """
        inode = self._handles[handle].inode
        working = self._working
        had = self._cached.pop(path, None)
        if not settled or inode.parted:
            # Until a moment ago one that was replaced was one file to the kernel with what came after it, and the
            # kernel may have the size of either.
            return Pages.BYPASS
        with working.lock:
            for other in working.opened:
                if other is not inode and not other.parted and inode.home is not None and other.home == inode.home:
                    return Pages.BYPASS
        if inode.dirty or inode.base is None:
            return Pages.DROP
        self._cached[path] = inode.base
        if len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)
        return Pages.KEEP if had == inode.base else Pages.DROP

    def forget_pages(self, path: Path) -> None:
        """A path stands for another file now, or for one that somebody writes to; so may those below it."""
        if path in self._cached:
            del self._cached[path]
        else:
            for other in [other for other in self._cached if other[: len(path)] == path]:
                del self._cached[other]

    def keep_version(self, inode: Inode, hidden: Path) -> None:
        """Another node has changed or removed a file that is open here: libfuse gives that another name."""
        with self._working.lock:
            inode.handles += 1
            inode.parted = True
            self._working.hidden[hidden] = inode

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`.  Raises `StoreError`."""
        inode = self._handles[handle].inode
        if not inode.is_loaded:
            with self._working.lock:
                self._working.load(inode)
        return inode.read(size, offset)

    def _unpack(self, inode: Inode) -> None:
        """Decode what is going to be changed before the lock is taken, if that takes time.  Raises `StoreError`."""
        if inode.spool is not None:
            return
        with self._working.lock:
            self._working.load(inode)
            content = inode.snapshot
        if content is not None:
            content.read(0, 1)

    def write(self, handle: int, data: bytes, offset: int, *, appends: bool = False) -> None:
        """Replace or append bytes.  Raises `TooLarge`, `QuotaExceeded`, `NoSpace`, `StoreError`.

        `appends`: they go to the end, and `offset` is only where whoever asks believes that it is.
        """
        inode = self._handles[handle].inode
        working = self._working
        self._unpack(inode)
        with working.lock:
            at = inode.size if appends else offset
            working.check_growth(inode, max(inode.size, at + len(data)))
            working.make_spool(inode).write(data, at)
            inode.touch(working.now())

    def truncate(self, path: Path, length: int, handle: int | None = None) -> None:
        """Cut or extend a file; without a handle that is a save of its own.  Raises as `write` and `open`."""
        if handle is None:
            number = self.open(path, os.O_WRONLY)
            try:
                self.truncate(path, length, number)
                self.flush(number)
            finally:
                self.release(number)
            return
        inode = self._handles[handle].inode
        working = self._working
        if length:
            self._unpack(inode)
        with working.lock:
            if length != inode.size:
                working.check_growth(inode, length)
                working.make_spool(inode).truncate(length)
            else:
                working.make_spool(inode)
            inode.touch(working.now())

    def flush(self, handle: int) -> bool:
        """A close(2): what was written is durable and visible; returns whether anything was.

        Raises `NoSpace`, `StoreError`.
        """
        opened = self._handles[handle]
        inode = opened.inode
        if not opened.writes or inode.unlinked:
            return False
        working = self._working
        with working.lock:
            if inode.written:
                inode.close(working.machine.steady())
                working.record(inode)
                working.changed(closed=inode.is_new)
                return True
            if inode.is_new and not inode.journaled:
                # Empty so far.  It need not be published before the last close, but it must not be lost.
                working.record(inode, empty=True)
            return False

    def sync(self, handle: int | None) -> None:
        """fsync(2): what it covers survives a power cut; a file that others know is published at once.

        By another thread: encoding and signing must not keep the others waiting.  Raises `StoreError`.
        """
        working = self._working
        inode = None if handle is None else self._handles[handle].inode
        if inode is not None and self._handles[handle or 0].writes and not inode.unlinked:
            with working.lock:
                if inode.dirty:
                    inode.close(working.machine.steady())
                    working.record(inode)
                    working.changed(urgent=not inode.is_new)
        working.sync()

    def release(self, handle: int) -> None:
        """The last close of an open file description; what came after its last flush, such as mapped writes, counts."""
        opened = self._handles.pop(handle)
        inode = opened.inode
        working = self._working
        with working.lock:
            inode.handles -= 1
            if not inode.handles:
                working.opened.discard(inode)
            inode.writers -= opened.writes
            if opened.writes and not inode.unlinked and not inode.writers and (inode.unflushed or inode.dirty):
                was_closed = not inode.unflushed and inode.journaled
                inode.close(working.machine.steady())
                if not was_closed:
                    try:
                        working.record(inode)
                    except StoreError as error:
                        # Nobody can be told any more; it is still in memory, and published from there.
                        log.error("cannot sync %s, not durable yet: %s", display(next(iter(inode.names), ())), error)
                working.changed(urgent=not inode.is_new and inode.home in inode.names, closed=inode.is_new)
            working.forget_idle(inode)
