"""FUSE operations: translate paths, attributes and errors between libfuse and `Filesystem`, and nothing else."""

from __future__ import annotations

import errno
import functools
import logging
import os
import stat
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from basefs import path as paths
from basefs.errors import BaseFSError, NoData, NotADirectory, NotFound, NotPermitted, Unsupported
from basefs.fs.files import Pages
from basefs.fs.filesystem import Filesystem
from basefs.fs.fuse.errno import errno_of
from basefs.fs.fuse.kernel import Kernel
from basefs.fs.fuse.mirror import Mirror
from basefs.fs.metadata import ATTRIBUTES, KIND_BITS, Stat
from basefs.path import Path
from basefs.replica.bootstrap import CLUSTER_FILE
from basefs.view.invitations import READERS

log = logging.getLogger(__name__)

#: `tv_nsec` values of utimensat(2), which libfuse passes on with `tv_sec` 0.
_UTIME_NOW = (1 << 30) - 1
_UTIME_OMIT = (1 << 30) - 2
#: What stat(2) recommends for reading and writing, bytes.
BLOCK_SIZE = 128 * 1024
_OUR_ATTRIBUTES = "user.basefs."
_ALL_BITS = 2**32 - 1

#: Operations that unpack contents, which may claim any size: that one finds no room says nothing of the disk.
_UNPACKING = frozenset({"open", "read"})
#: Names at the top that no directory listing shows.
_UNLISTED = frozenset({CLUSTER_FILE, READERS[0]})

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def _translated(handler: _Handler) -> _Handler:
    """Turn our errors into the errno of the table; anything else is a bug: EIO, with its traceback in the log."""

    @functools.wraps(handler)
    def wrapper(operations: Operations, *args: Any, **kwargs: Any) -> Any:
        try:
            return handler(operations, *args, **kwargs)
        except BaseFSError as error:
            if handler.__name__ not in _UNPACKING:
                operations.failed(error)
            raise OSError(errno_of(error), str(error)) from None
        except OSError:
            raise
        except Exception:
            log.exception("operation %s failed unexpectedly", handler.__name__)
            raise OSError(errno.EIO, "bug") from None

    return wrapper  # type: ignore[return-value]


def parse(path: str | None) -> Path:
    """A path as mfusepy gives it.

    `None` is the path of something that is open and whose directory is gone.  Raises `OSError` for it, and
    `NameTooLong`: for FUSE the kernel's own limit is 1024 bytes or more.
    """
    if path is None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    return paths.parse(path)


class Operations:
    """The operations that mfusepy calls (mfusepy, class `Operations`, lists them)."""

    use_ns = True

    def __init__(
        self,
        filesystem: Filesystem,
        on_ready: Callable[[], None],
        *,
        caller: Callable[[], tuple[int, int, int]] | None = None,
        keeps_owners: bool = False,
        kernel: Kernel | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        """`caller` tells user, group and thread id of who asks; it is needed for owners and for the mirror.

        `kernel` is told what one name's operations do to a file's other names.
        """
        self._fs = filesystem
        self._on_ready = on_ready
        self._ask_caller = caller
        self._keeps_owners = keeps_owners and caller is not None
        self._mirror = mirror if caller is not None else None
        self._kernel = kernel

    def failed(self, error: BaseFSError) -> None:
        """A change has failed."""
        self._fs.failed(error)

    @property
    def is_mirrored(self) -> bool:
        """Whether the kernel hears of other nodes' changes, so that it may keep what it knows."""
        return self._mirror is not None

    def _caller(self) -> tuple[int, int] | None:
        return self._ask_caller()[:2] if self._keeps_owners and self._ask_caller is not None else None

    def _thread(self) -> int:
        """The id of the thread that asks."""
        return 0 if self._ask_caller is None else self._ask_caller()[2]

    def _mirroring(self) -> Mirror | None:
        """The mirror, if it is who asks: what it does has happened already."""
        mirror = self._mirror
        if mirror is None or not mirror.is_busy or self._ask_caller is None:
            return None
        return mirror if self._ask_caller()[2] == mirror.thread else None

    def init(self, path: str) -> None:
        """The kernel has accepted the mount."""
        if self._mirror is not None:
            self._mirror.start()
        self._on_ready()

    def destroy(self, path: str) -> None:
        """The mount has ended."""
        if self._mirror is not None:
            self._mirror.stop()
        if self._kernel is not None:
            self._kernel.detach()

    def _other_names(self, path: str | None) -> list[Path]:
        return [] if self._kernel is None or path is None else self._fs.metadata.other_names(parse(path))

    def _tell(self, others: list[Path]) -> None:
        """The kernel knows each name of a file as a file: what one did must be asked anew for the others."""
        if others and self._kernel is not None:
            self._kernel.invalidate(others, wait=True)

    @_translated
    def find(self, path: str | None, fh: int | None) -> Stat:
        """`getattr` without the dictionary."""
        fs = self._fs
        mirror = self._mirroring()
        if fh is not None or mirror is None:
            found = fs.metadata.stat(parse(path)) if fh is None else fs.metadata.stat_inode(fs.files.inode_of(fh))
            if mirror is None and self._mirror is not None and self._mirror.waiting and path is not None:
                self._mirror.answered(parse(path), found.size, self._thread())
            return found
        at = parse(path)
        if at == mirror.absent:
            raise NotFound("the mirror is about to make it")
        try:
            return fs.metadata.stat(at)
        except (NotFound, NotADirectory):
            kind = mirror.present.get(at)
            if kind is None:
                raise
            return Stat(KIND_BITS[kind] | 0o755, 1, os.getuid(), os.getgid(), 0, 0, 0, mirror.number)

    @_translated
    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, int]:
        """stat(2)."""
        found = self.find(path, fh)
        return {
            "st_mode": found.mode,
            "st_ino": found.number,
            "st_nlink": found.links,
            "st_uid": found.uid,
            "st_gid": found.gid,
            "st_size": found.size,
            "st_blocks": -(-found.size // 512),
            "st_blksize": BLOCK_SIZE,
            "st_atime": found.mtime if found.atime is None else found.atime,
            "st_mtime": found.mtime,
            "st_ctime": found.ctime,
        }

    @_translated
    def listed(self, path: str | None) -> list[tuple[bytes, int, int]]:
        """`readdir` without dictionaries: names, type bits, inode numbers."""
        at = parse(path)
        listed = self._fs.metadata.list(at)
        if not at:
            # Nobody's own file: what makes a directory like another one would remove it for all nodes.
            listed = [row for row in listed if row[0] not in _UNLISTED]
        here, above = self._fs.metadata.stat(at).number, self._fs.metadata.stat(at[:-1]).number
        return [(b".", stat.S_IFDIR, here), (b"..", stat.S_IFDIR, above), *listed]

    def readdir(self, path: str, fh: int) -> Iterable[tuple[str, dict[str, int], int]]:
        """getdents(2)."""
        return [
            (name.decode("utf-8", "surrogateescape"), {"st_mode": bits, "st_ino": number}, 0)
            for name, bits, number in self.listed(path)
        ]

    @_translated
    def readlink(self, path: str) -> str:
        """readlink(2)."""
        return self._fs.metadata.read_link(parse(path)).decode("utf-8", "surrogateescape")

    @_translated
    def statfs(self, path: str) -> dict[str, int]:
        """statfs(2): the disk that holds the log."""
        space = self._fs.metadata.space()
        wanted = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_frsize")
        return {**{name: int(getattr(space, name)) for name in wanted}, "f_namemax": 255}

    @_translated
    def create(self, path: str, mode: int, flags: int = 0) -> int:
        """open(2) with O_CREAT of a name that does not exist."""
        mirror = self._mirroring()
        if mirror is not None:
            mirror.absent = None
            return self._fs.files.open(parse(path), os.O_RDONLY, reads=False)
        return self._fs.files.create(parse(path), mode, self._caller())

    @_translated
    def open(self, path: str, flags: int) -> int:
        """open(2)."""
        mirroring = self._mirroring() is not None
        try:
            # The mirror changes nothing and reads nothing.
            return self._fs.files.open(parse(path), os.O_RDONLY if mirroring else flags, reads=not mirroring)
        except NotFound:
            # The kernel asks for what it knows by name, so another node has removed it since.  At this answer it looks
            # the name up again, and creates the file if that was wanted.
            raise OSError(errno.ESTALE, "removed") from None

    def opened(self, path: str, handle: int) -> Pages:
        """What the kernel may do with the pages of a file that was just opened."""
        at = parse(path)
        mirror = self._mirror
        thread = self._thread() if mirror is not None and mirror.waiting else 0
        settled = mirror is None or mirror.is_settled(at, self._fs.files.inode_of(handle).size, thread)
        return self._fs.files.pages(at, handle, settled=settled)

    def writes(self, handle: int) -> bool:
        """Whether anything can be written by a handle; never by the mirror's."""
        return self._fs.files.handle_writes(handle)

    @_translated
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """pread(2)."""
        return self._fs.files.read(fh, size, offset)

    @_translated
    def write(self, path: str | None, data: bytes, offset: int, fh: int, *, appends: bool = False) -> int:
        """pwrite(2)."""
        self._fs.files.write(fh, data, offset, appends=appends)
        return len(data)

    @_translated
    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        """truncate(2) and ftruncate(2)."""
        if self._mirroring() is None:
            self._fs.files.truncate(() if path is None else parse(path), length, fh)
            self._tell(self._other_names(path))
        return 0

    @_translated
    def flush(self, path: str, fh: int) -> int:
        """close(2)."""
        if self._fs.files.flush(fh):
            self._tell(self._other_names(path))
        return 0

    @_translated
    def release(self, path: str, fh: int) -> int:
        """The last close(2) of an open file description."""
        self._fs.files.release(fh)
        return 0

    @_translated
    def fsync(self, path: str, datasync: int, fh: int) -> int:
        """fsync(2)."""
        self._fs.files.sync(fh)
        return 0

    @_translated
    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        """fsync(2) of a directory."""
        self._fs.files.sync(None)
        return 0

    @_translated
    def mknod(self, path: str, mode: int, dev: int) -> int:
        """mknod(2): an empty file; devices, pipes and sockets belong to one machine and are not shared."""
        if not stat.S_ISREG(mode):
            raise NotPermitted("only files, directories and symbolic links are shared")
        handle = self.create(path, mode)
        self.flush(path, handle)
        return int(self.release(path, handle))

    @_translated
    def mkdir(self, path: str, mode: int) -> int:
        """mkdir(2)."""
        mirror = self._mirroring()
        if mirror is None:
            self._fs.namespace.make_directory(parse(path), mode, self._caller())
        else:
            mirror.absent = None
        return 0

    @_translated
    def symlink(self, path: str, target: str) -> int:
        """symlink(2): `path` is the new link."""
        mirror = self._mirroring()
        if mirror is None:
            self._fs.namespace.make_symlink(parse(path), target.encode("utf-8", "surrogateescape"), self._caller())
        else:
            mirror.absent = None
        return 0

    @_translated
    def link(self, path: str, target: str) -> int:
        """link(2): `path` is the new name."""
        self._fs.namespace.make_link(parse(path), parse(target))
        self._tell(self._other_names(path))
        return 0

    @_translated
    def unlink(self, path: str) -> int:
        """unlink(2)."""
        mirror = self._mirroring()
        if mirror is None:
            others = self._other_names(path)
            self._fs.namespace.unlink(parse(path))
            if self._mirror is not None:
                self._mirror.let_go(parse(path))
            self._fs.files.forget_pages(parse(path))
            self._tell(others)
        else:
            mirror.present.clear()
        return 0

    @_translated
    def rmdir(self, path: str) -> int:
        """rmdir(2)."""
        mirror = self._mirroring()
        if mirror is None:
            self._fs.namespace.remove_directory(parse(path))
        else:
            mirror.present.clear()
        return 0

    @_translated
    def rename(self, old: str, new: str, flags: int = 0) -> int:
        """renameat2(2)."""
        mirror = self._mirroring()
        if mirror is not None:
            # libfuse keeps what somebody has open before the mirror takes its name away.
            if mirror.held:
                self._fs.files.keep_version(mirror.held[0], parse(new))
                mirror.kept = parse(new)
            return 0
        no_replace, exchange = bool(flags & 1), bool(flags & 2)
        others = [*self._other_names(old), *self._other_names(new)]
        self._fs.namespace.rename(parse(old), parse(new), replace=not no_replace, exchange=exchange)
        if self._mirror is not None:
            self._mirror.move(parse(old), parse(new), exchange=exchange)
        for path in (old, new):
            self._fs.files.forget_pages(parse(path))
        self._tell(others)
        return 0

    @_translated
    def chmod(self, path: str | None, mode: int) -> int:
        """chmod(2)."""
        if self._mirroring() is None:
            self._fs.metadata.set_mode(parse(path), mode)
            self._tell(self._other_names(path))
        return 0

    @_translated
    def chown(self, path: str | None, uid: int, gid: int) -> int:
        """chown(2)."""
        self._fs.metadata.set_owner(parse(path), _id(uid), _id(gid))
        self._tell(self._other_names(path))
        return 0

    @_translated
    def utimens(self, path: str | None, times: tuple[int, int] | None = None) -> int:
        """utimensat(2), in nanoseconds."""
        at = parse(path)
        atime, mtime = (_UTIME_NOW, _UTIME_NOW) if times is None else times
        if self._mirroring() is not None:
            return 0
        if atime != _UTIME_OMIT:
            self._fs.metadata.set_access_time(at, None if atime == _UTIME_NOW else atime)
        if mtime != _UTIME_OMIT:
            self._fs.metadata.set_times(at, None if mtime == _UTIME_NOW else mtime)
        self._tell(self._other_names(path))
        return 0

    @_translated
    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        """getxattr(2)."""
        if not name.startswith(_OUR_ATTRIBUTES):
            # Asked for at every turn (security.capability, system.posix_acl_access), so nothing is looked up.
            raise NoData(f"{name} is no attribute of this filesystem")
        return self._fs.metadata.attribute(parse(path), name)

    @_translated
    def listxattr(self, path: str) -> Iterable[str]:
        """listxattr(2)."""
        self._fs.metadata.stat(parse(path))
        return ATTRIBUTES

    @_translated
    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        """setxattr(2): extended attributes are not kept."""
        raise Unsupported("extended attributes are not kept")

    @_translated
    def removexattr(self, path: str, name: str) -> int:
        """removexattr(2)."""
        raise Unsupported("extended attributes are not kept")


def _id(value: int) -> int:
    """A user or group id as C passes it; -1 means unchanged."""
    return -1 if value in (-1, _ALL_BITS) else value
