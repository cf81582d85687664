"""/dev/fuse: mounting, and the kernel's protocol (linux/fuse.h).

The protocol is spoken here and not through libfuse, whose path-based interface gives each name of a file an inode of
its own and has no O_TMPFILE, and whose interface for inodes needs as much code as this.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import logging
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias

from basefs.errors import MountFailed
from basefs.fs.disk import called, libc

log = logging.getLogger(__name__)

_MAJOR, _MINOR = 7, 38
#: Bytes of the largest write, and pages of a request.
MAX_IO, _MAX_PAGES = 1 << 20, 256
_IN_HEADER = struct.Struct("=IIQQIIIHH")
_OUT_HEADER = struct.Struct("=IiQ")
_INIT_IN = struct.Struct("=IIII")
_INIT_OUT = struct.Struct("=IIIIHHIIHHI28x")
_INVAL_INODE, _INVAL_ENTRY = struct.Struct("=Qqq"), struct.Struct("=QII")
_NOTIFY_INODE, _NOTIFY_ENTRY = 2, 3

#: Properties of a mount that are asked for: each is a bit of `FUSE_INIT`.  READDIRPLUS brings attributes with names;
#: DONT_MASK and POSIX_ACL leave the umask and default ACLs to the disk; HANDLE_KILLPRIV_V2 has suid and sgid dropped
#: here, where otherwise each write would be followed by a request for `security.capability`.
_ASYNC_READ, _ATOMIC_O_TRUNC, _BIG_WRITES, _DONT_MASK = 1 << 0, 1 << 3, 1 << 5, 1 << 6
_DO_READDIRPLUS, _READDIRPLUS_AUTO, _ASYNC_DIO, _PARALLEL_DIROPS = 1 << 13, 1 << 14, 1 << 15, 1 << 18
_POSIX_ACL, _MAX_PAGES_SET, _CACHE_SYMLINKS, _KILLPRIV_V2 = 1 << 20, 1 << 22, 1 << 23, 1 << 28
_SETXATTR_EXT, _INIT_EXT, _DIRECT_IO_ALLOW_MMAP = 1 << 29, 1 << 30, 1 << 36
_WANTED = (
    _ASYNC_READ | _ATOMIC_O_TRUNC | _BIG_WRITES | _DONT_MASK | _DO_READDIRPLUS | _READDIRPLUS_AUTO | _ASYNC_DIO
    | _PARALLEL_DIROPS | _POSIX_ACL | _MAX_PAGES_SET | _CACHE_SYMLINKS | _KILLPRIV_V2 | _SETXATTR_EXT | _INIT_EXT
    | _DIRECT_IO_ALLOW_MMAP
)  # fmt: skip
#: Without them the modes of files would be wrong: Linux 5.11 has all of them.
_NEEDED = _ATOMIC_O_TRUNC | _DONT_MASK | _POSIX_ACL | _KILLPRIV_V2

#: mount_setattr(2) and open_tree(2), which have the same numbers on every machine.
_MOUNT_SETATTR, _OPEN_TREE = 442, 428
_RDONLY, _NOSYMFOLLOW = 0x1, 0x00200000
_AT_FDCWD, _AT_EMPTY_PATH, _OPEN_TREE_CLONE = -100, 0x1000, 1

#: How often a mount that is in use is tried to unmount, and the seconds in between.
_ATTEMPTS, _PAUSE = 10, 0.02


class Operation(IntEnum):
    """The requests of the kernel."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    TMPFILE = 51


class KernelRequest:
    """A request of the kernel.

    Attributes:
        unique: number of the request.
        node: the kernel's number of the node.
        uid, gid: of the caller.
        thread: of the caller; 0 for the kernel itself.
        body: what follows the header, valid until the answer.
    """

    __slots__ = ("body", "gid", "node", "thread", "uid", "unique")

    def __init__(self) -> None:
        self.unique = self.node = self.uid = self.gid = self.thread = 0
        self.body = memoryview(b"")


#: Answers a request; `None` where the kernel wants no answer, or gets it later.  Raises `OSError`.
Answer: TypeAlias = Callable[[KernelRequest], "bytes | memoryview | None"]


class Device:
    """An open /dev/fuse whose filesystem is mounted.

    Notifications, by which the kernel cache forgets something, may be sent by any thread but the one that serves: the
    kernel may wait for a request meanwhile.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def serve(self, operations: Mapping[int, Answer], on_ready: Callable[[], None]) -> None:
        """Answer requests until the filesystem is unmounted.  Raises `MountFailed`: the kernel is too old."""
        reply, unpack, size = self.reply, _IN_HEADER.unpack_from, _IN_HEADER.size
        buffer = bytearray(MAX_IO + 65536)
        buffers, whole = [buffer], memoryview(buffer)
        request = KernelRequest()
        while length := self._receive(buffers):
            _, operation, unique, request.node, request.uid, request.gid, request.thread, _, _ = unpack(buffer)
            request.unique = unique
            request.body = whole[size:length]
            number = 0
            answer: bytes | memoryview = b""
            handler = operations.get(operation)
            try:
                if handler is not None:
                    found = handler(request)
                    if found is None:
                        continue
                    answer = found
                elif operation == Operation.INIT:
                    answer = self._begin(request.body)
                elif operation == Operation.INTERRUPT:
                    continue
                else:
                    number = errno.ENOSYS
            except OSError as error:
                number = error.errno or errno.EIO
            except MountFailed:
                raise
            except Exception:
                log.exception("request %d failed unexpectedly", operation)
                number = errno.EIO
            reply(unique, number, answer)
            if operation == Operation.INIT:
                on_ready()

    def _receive(self, buffers: list[bytearray]) -> int:
        """The length of the next request; 0 once the filesystem was unmounted."""
        while True:
            try:
                return os.readv(self._descriptor, buffers)
            except OSError as error:
                # ENOENT: the caller was interrupted before this could be read.
                if error.errno not in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    # ENODEV: unmounted; ECONNABORTED: ended by force.
                    return 0

    def reply(self, unique: int, number: int, answer: bytes | memoryview = b"") -> None:
        """Answer a request with an errno, or with 0 and what it asked for; for any thread."""
        with contextlib.suppress(OSError):
            # An error says that nobody waits for the answer any more.
            os.writev(self._descriptor, (_OUT_HEADER.pack(16 + len(answer), -number, unique), answer))

    def _begin(self, body: memoryview) -> bytes:
        major, minor, read_ahead, able = _INIT_IN.unpack_from(body)
        if able & _INIT_EXT:
            able |= struct.unpack_from("=I", body, _INIT_IN.size)[0] << 32
        if major != _MAJOR or able & _NEEDED != _NEEDED:
            raise MountFailed(f"the kernel's FUSE {major}.{minor} is too old: BaseFS needs Linux 5.11")
        used = able & _WANTED
        return _INIT_OUT.pack(
            _MAJOR, _MINOR, read_ahead, used & 0xFFFFFFFF, 64, 48, MAX_IO, 1, _MAX_PAGES, 0, used >> 32
        )  # fmt: skip

    def forget_node(self, node: int, *, pages: bool = True) -> None:
        """Have the kernel ask for the attributes of a node again, and for its content."""
        self._notify(_NOTIFY_INODE, _INVAL_INODE.pack(node, 0 if pages else -1, 0))

    def forget_name(self, parent: int, name: bytes) -> None:
        """Have the kernel look up a name again."""
        self._notify(_NOTIFY_ENTRY, _INVAL_ENTRY.pack(parent, len(name), 0) + name + b"\0")

    def _notify(self, code: int, body: bytes) -> None:
        with contextlib.suppress(OSError):
            # What the kernel does not know is an error that says just that.
            os.writev(self._descriptor, (_OUT_HEADER.pack(16 + len(body), code, 0), body))


def mount(mountpoint: Path, name: str, options: Sequence[str]) -> Device:
    """Mount a filesystem with FUSE's options.  Raises `MountFailed`.

    fusermount3 does it for root as well: it knows the options, and what ordinary users may do.
    """
    chosen = [f"fsname=basefs:{name}", "subtype=basefs", "default_permissions"]
    if os.geteuid() == 0:
        # The services that read their configuration do not run as root.
        chosen.append("allow_other")
    chosen += [option for option in options if option != "nosymfollow"]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        tried = subprocess.run(
            [_fusermount(), "-o", ",".join(chosen), "--", str(mountpoint)],
            env={**os.environ, "LC_ALL": "C", "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if tried.returncode:
            raise MountFailed(f"cannot mount on {mountpoint}: {_reason(tried.stderr)}")
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data[:4])
    return Device(descriptors[0])


def forbid_following(mountpoint: Path) -> None:
    """Keep the kernel from following symbolic links on a mount.  Raises `MountFailed`."""
    try:
        _set_flags(_AT_FDCWD, os.fsencode(mountpoint), 0, _NOSYMFOLLOW)
    except OSError as error:
        raise MountFailed(f"cannot set nosymfollow on {mountpoint}: {error.strerror}; mount without it") from None


def forbid_writing(mountpoint: Path) -> None:
    """Show a mount as read-only, where that is possible; the filesystem behind it is not."""
    with contextlib.suppress(OSError):
        _set_flags(_AT_FDCWD, os.fsencode(mountpoint), 0, _RDONLY)


def private_mount(mountpoint: Path) -> int:
    """A descriptor of the root of a mount, writable also where the mount is shown as read-only.  Raises `OSError`."""
    if os.geteuid() != 0:
        return os.open(mountpoint, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    found = called(libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(mountpoint), flags))
    with contextlib.suppress(OSError):
        _set_flags(found, b"", _RDONLY | _NOSYMFOLLOW, 0)
    return found


def _set_flags(directory: int, path: bytes, clear: int, wanted: int) -> None:
    """mount_setattr(2).  Raises `OSError`."""
    attributes = (ctypes.c_uint64 * 4)(wanted, clear)
    how = _AT_EMPTY_PATH if directory >= 0 else 0
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    called(libc.syscall(_MOUNT_SETATTR, directory, path, how, ctypes.byref(attributes), size))


def why_no_mount(device: Path = Path("/dev/fuse")) -> str:
    """Why FUSE cannot mount, and what to do, as far as the device tells; "" where it can be used."""
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        return f"cannot open {device} ({error.strerror}): load the module 'fuse'; in a container, allow this device"
    return ""


def unmount(mountpoint: Path, *, lazy: bool) -> None:
    """Take a mount of ours away, also one whose server is dead.

    `lazy`: detach it even while it is in use.  Raises `MountFailed`.
    """
    command = [_fusermount(), "-u", *(["-z"] if lazy else []), "--", str(mountpoint)]
    # What was closed a moment ago may be in use still: the kernel lets go of it afterwards.
    for _ in range(_ATTEMPTS):
        tried = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        if not tried.returncode:
            return
        reason = _reason(tried.stderr)
        if os.strerror(errno.EBUSY) not in reason:
            raise MountFailed(f"cannot unmount {mountpoint}: {reason}")
        time.sleep(_PAUSE)
    raise MountFailed(f"{mountpoint} is in use: close the files and leave the directories in it, or add --lazy")


def _fusermount() -> str:
    found = shutil.which("fusermount3")
    if found is None:
        raise MountFailed("fusermount3 is missing: 'apt-get install fuse3'")
    return found


def _reason(said: str) -> str:
    """What fusermount3 says, without its name."""
    return said.strip().rpartition("fusermount3: ")[2]
