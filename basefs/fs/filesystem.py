"""The filesystem: the live tree plus what is being written here, in domain terms (design, section 5).

Close-to-open: a successful close or fsync publishes, and every later open sees it.  Readers keep the version that they
opened.  Nothing here knows FUSE; `operations` translates.  Used by one thread.

Invariants

1. `_working` maps the current path of every working file that has one.
2. A working file leaves `_working` when its last handle is gone and it holds nothing that is not published.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from basefs.errors import Exists, IsADirectory, NotEmpty, NotPermitted, PermissionDenied, Unsupported
from basefs.fs.owners import Owners
from basefs.fs.working import Handle, WorkingFile
from basefs.replica import Attributes, Replica
from basefs.view.author import clamp_time
from basefs.view.names import Names, display
from basefs.view.states import FILE_MODE, MODE_MASK, Kind

#: libfuse renames an open file that is unlinked to such a name, in order to keep it readable
#: (libfuse, include/fuse.h, `hard_remove`).  The file is gone for everybody else.
HIDDEN_PREFIX = b".fuse_hidden"

_KIND_BITS = {Kind.FILE: stat.S_IFREG, Kind.DIRECTORY: stat.S_IFDIR, Kind.SYMLINK: stat.S_IFLNK}


@dataclass(frozen=True, slots=True)
class Stat:
    """What `stat(2)` shows: mode with type bits, number of names, user, group, bytes, UNIX seconds."""

    mode: int
    links: int
    uid: int
    gid: int
    size: int
    mtime: float


class Filesystem:
    """The operations that applications use, on paths as tuples of names."""

    def __init__(self, replica: Replica, owners: Owners, clock: Callable[[], float]) -> None:
        self._replica = replica
        self._owners = owners
        self._clock = clock
        self._working: dict[Names, WorkingFile] = {}
        self._handles: dict[int, Handle] = {}
        self._next_handle = 1

    # -- looking ------------------------------------------------------------------------------------------------------

    def stat(self, names: Names) -> Stat:
        """Raises `NotFound`, `NotADirectory`."""
        working = self._working.get(names)
        if working is not None and (working.created or working.private):
            return self._stat_working(working, None)
        attributes = self._replica.attributes(names)
        if working is None or not working.pending:
            return self._stat(attributes)
        return self._stat_working(working, attributes)

    def _stat(self, attributes: Attributes) -> Stat:
        uid, gid = self._owners.ids(attributes.owner)
        mode = attributes.mode
        if not attributes.writable and attributes.kind is not Kind.SYMLINK:
            mode &= ~0o222
        bits = _KIND_BITS[attributes.kind] | mode
        return Stat(bits, attributes.links, uid, gid, attributes.size, attributes.mtime)

    def _stat_working(self, working: WorkingFile, attributes: Attributes | None) -> Stat:
        mode = working.mode if working.mode is not None else FILE_MODE if attributes is None else attributes.mode
        owner = working.owner if working.owner is not None or attributes is None else attributes.owner
        uid, gid = self._owners.ids(owner)
        mtime = self._clock() if working.mtime is None else working.mtime
        links = 0 if working.private else 1 if attributes is None else attributes.links
        return Stat(stat.S_IFREG | mode, links, uid, gid, len(working.content), mtime)

    def list(self, names: Names) -> list[tuple[bytes, int]]:
        """The names in a directory with their type bits.  Raises `NotFound`, `NotADirectory`."""
        found = {name: _KIND_BITS[kind] for name, kind in self._replica.names_in(names).items()}
        for path, working in self._working.items():
            if working.created and not working.private and path[:-1] == names:
                found[path[-1]] = stat.S_IFREG
        return list(found.items())

    def read_link(self, names: Names) -> bytes:
        """Raises `NotFound`, `NotADirectory`."""
        return self._replica.read_link(names)

    def space(self) -> os.statvfs_result:
        """The disk that holds the log."""
        return os.statvfs(self._replica.directory)

    # -- open files ---------------------------------------------------------------------------------------------------

    def open(self, names: Names, flags: int) -> int:
        """Open an existing file; returns the handle.  Raises `NotFound`, `IsADirectory`, `PermissionDenied`, ..."""
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        working = self._working.get(names)
        if working is not None and not working.pending:
            # It may have changed since it was opened: on another node, or under another of its names.
            working.content[:] = self._replica.read(names)
        if not writes:
            snapshot = b"" if working is not None else self._replica.read(names)
            return self._add_handle(Handle(working, snapshot, writes=False))
        if working is None:
            working = self._begin(names, empty=bool(flags & os.O_TRUNC))
        elif flags & os.O_TRUNC:
            working.truncate(0)
        return self._add_handle(Handle(working, b"", writes=True))

    def _begin(self, names: Names, *, empty: bool) -> WorkingFile:
        attributes = self._replica.attributes(names)
        if attributes.kind is Kind.DIRECTORY:
            raise IsADirectory(f"{display(names)} is a directory")
        if not attributes.writable:
            raise PermissionDenied(f"no key of this node may write at {display(names)}")
        content = b"" if empty else self._replica.read(names)
        working = WorkingFile(names, bytearray(content), dirty=empty and attributes.size > 0)
        self._working[names] = working
        return working

    def create(self, names: Names, mode: int) -> int:
        """Create a file and open it for writing; returns the handle.  It is published when it is closed."""
        self._check_name(names)
        working = self._working.get(names)
        if working is None:
            try:
                self._replica.check_create(names)
            except Exists:
                # It came from another node between the kernel's lookup and now.
                return self.open(names, os.O_RDWR)
            bits = mode & MODE_MASK
            working = WorkingFile(names, bytearray(), mode=bits, created=True)
            self._working[names] = working
        return self._add_handle(Handle(working, b"", writes=True))

    def _add_handle(self, handle: Handle) -> int:
        number = self._next_handle
        self._next_handle += 1
        self._handles[number] = handle
        if handle.working is not None:
            handle.working.handles += 1
        return number

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`."""
        return bytes(self._handles[handle].content[offset : offset + size])

    def write(self, handle: int, data: bytes, offset: int) -> None:
        """Replace or append bytes in the working file."""
        working = self._handles[handle].working
        assert working is not None
        working.write(data, offset)

    def truncate(self, names: Names, length: int, handle: int | None = None) -> None:
        """Cut or extend a file; without a handle it is published at once."""
        if handle is not None:
            working = self._handles[handle].working
            assert working is not None
            working.truncate(length)
            return
        number = self.open(names, os.O_WRONLY)
        try:
            self.truncate(names, length, number)
            self.flush(number)
        finally:
            self.release(number)

    def flush(self, handle: int) -> None:
        """Publish what a handle's file holds; called for each close(2).  Raises `StoreError`, `PermissionDenied`."""
        opened = self._handles[handle]
        if opened.writes and opened.working is not None:
            self._publish(opened.working)

    def sync(self, handle: int | None) -> None:
        """Publish, and make everything survive a power cut."""
        if handle is not None:
            self.flush(handle)
        self._replica.sync_to_disk()

    def release(self, handle: int) -> None:
        """Forget a handle; the last one of a file publishes what came after the last close, such as mapped writes."""
        opened = self._handles.pop(handle)
        working = opened.working
        if working is None:
            return
        working.handles -= 1
        try:
            if opened.writes:
                self._publish(working)
        finally:
            if working.handles == 0:
                self._forget(working)

    def _forget(self, working: WorkingFile) -> None:
        if working.names is not None and not working.private:
            self._working.pop(working.names, None)
            working.names = None

    def _publish(self, working: WorkingFile) -> None:
        names = working.names
        if names is None or working.private or not (working.created or working.dirty):
            return
        content = bytes(working.content)
        mode, owner, mtime = working.mode, working.owner, working.mtime
        self._replica.commit(lambda author: author.write(names, content, mode=mode, owner=owner, mtime=mtime))
        working.created = working.dirty = False
        # They are in the log now, where others may change them.
        working.mode = working.owner = working.mtime = None

    # -- names --------------------------------------------------------------------------------------------------------

    def make_directory(self, names: Names, mode: int) -> None:
        """mkdir(2)."""
        self._check_free(names)
        self._replica.commit(lambda author: author.make_directory(names, mode=mode & MODE_MASK))

    def make_symlink(self, names: Names, target: bytes) -> None:
        """symlink(2)."""
        self._check_free(names)
        self._replica.commit(lambda author: author.make_symlink(names, target))

    def make_link(self, names: Names, target: Names) -> None:
        """link(2)."""
        self._check_free(names)
        self._publish_at(target)
        self._replica.commit(lambda author: author.make_link(names, target))

    @staticmethod
    def _check_name(names: Names) -> None:
        if names[-1:] and names[-1].startswith(HIDDEN_PREFIX):
            raise NotPermitted(f"names that begin with {HIDDEN_PREFIX.decode()} belong to FUSE")

    def _check_free(self, names: Names) -> None:
        self._check_name(names)
        if names in self._working:
            raise Exists(f"{display(names)} exists already")

    def _publish_at(self, names: Names) -> None:
        working = self._working.get(names)
        if working is not None:
            self._publish(working)

    def unlink(self, names: Names) -> None:
        """unlink(2)."""
        working = self._working.get(names)
        if working is None or not (working.created or working.private):
            self._replica.commit(lambda author: author.remove(names, directory=False))
        self._detach(names)

    def _detach(self, names: Names) -> None:
        working = self._working.pop(names, None)
        if working is not None:
            working.names = None

    def remove_directory(self, names: Names) -> None:
        """rmdir(2)."""
        if any(path[:-1] == names and not working.private for path, working in self._working.items()):
            raise NotEmpty(f"{display(names)} is not empty")
        self._replica.commit(lambda author: author.remove(names, directory=True))

    def rename(self, source: Names, target: Names, *, replace: bool = True, exchange: bool = False) -> None:
        """renameat2(2), without RENAME_EXCHANGE."""
        if exchange:
            raise Unsupported("RENAME_EXCHANGE is not supported yet: rename in three steps")
        if target[-1:] and target[-1].startswith(HIDDEN_PREFIX):
            self._hide(source, target)
            return
        below = [path for path in self._working if path[: len(source)] == source]
        for path in below:
            self._publish(self._working[path])
        waiting = self._working.get(target)
        if waiting is not None and waiting.created:
            self._publish(waiting)
        applied = self._replica.commit(lambda author: author.rename(source, target, replace=replace))
        if not applied.entries:
            # Two names of one file stay as they are, rename(2).
            return
        self._detach(target)
        for path in below:
            working = self._working.pop(path)
            working.names = (*target, *path[len(source) :])
            self._working[working.names] = working

    def _hide(self, source: Names, target: Names) -> None:
        """An open file loses its name: delete it for everybody, and keep its content for who holds it open."""
        working = self._working.get(source)
        if working is None:
            working = self._begin(source, empty=False)
        if not working.created:
            self._keep_attributes(working, self._replica.attributes(source))
            self._replica.commit(lambda author: author.remove(source, directory=False))
        del self._working[source]
        working.names, working.private = target, True
        self._working[target] = working

    @staticmethod
    def _keep_attributes(working: WorkingFile, attributes: Attributes) -> None:
        """Who holds the file open can still ask for them when its path is gone."""
        working.mode = attributes.mode if working.mode is None else working.mode
        working.owner = attributes.owner if working.owner is None else working.owner
        if working.mtime is None and not working.dirty:
            working.mtime = attributes.mtime

    # -- attributes ---------------------------------------------------------------------------------------------------

    def set_mode(self, names: Names, mode: int) -> None:
        """chmod(2); bits outside 0777 are dropped."""
        working = self._working.get(names)
        if working is not None and working.pending:
            working.mode = mode & MODE_MASK
            return
        self._replica.commit(lambda author: author.set_attributes(names, mode=mode & MODE_MASK))

    def set_owner(self, names: Names, uid: int, gid: int) -> None:
        """chown(2); -1 keeps user or group.  Raises `NotPermitted` unless owners are kept, or nothing changes."""
        current = self.stat(names)
        wanted = current.uid if uid == -1 else uid, current.gid if gid == -1 else gid
        if wanted == (current.uid, current.gid):
            return
        owner = self._owners.names(*wanted)
        working = self._working.get(names)
        if working is not None and working.pending:
            working.owner = owner or working.owner
        elif owner is not None:
            self._replica.commit(lambda author: author.set_attributes(names, owner=owner))

    def set_times(self, names: Names, mtime: float | None) -> None:
        """utimensat(2); an entry stores whole seconds of the modification time and nothing else."""
        stamp = clamp_time(self._clock() if mtime is None else mtime)
        working = self._working.get(names)
        if working is not None and working.pending:
            working.mtime = stamp
            return
        self._replica.commit(lambda author: author.set_attributes(names, mtime=stamp))
