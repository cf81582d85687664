"""Mounting: hand the operations to libfuse 3 (paper, section 4.1)."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

# mfusepy takes libfuse 2 where both are installed, unless told before it is imported.
os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")

from basefs.errors import MountFailed, UsageError

try:
    import mfusepy
except OSError as error:
    raise MountFailed(f"libfuse 3 cannot be loaded ({error}): 'apt-get install fuse3', see 'basefs doctor'") from None

from basefs.fs.files import Pages
from basefs.fs.fuse.kernel import Kernel
from basefs.fs.fuse.operations import BLOCK_SIZE, Operations

log = logging.getLogger(__name__)

_MNT_DETACH = 2  # umount2(2)
#: How often a mount that is in use is tried to unmount, and the seconds in between.
_ATTEMPTS, _PAUSE = 10, 0.02
_NANOSECONDS = 10**9
#: What fuse_main(3) returns for a filesystem that was mounted and ended by a signal or an error: 7, later versions 8 or
#: the signal's negative number.
_LIVED = frozenset({7, 8, *(-number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))})
#: `FUSE_CAP_CACHE_SYMLINKS` of libfuse's fuse_common.h: the kernel keeps the targets of symbolic links.
_CACHE_SYMLINKS = 1 << 23
#: `FUSE_CAP_READDIRPLUS` and `FUSE_CAP_READDIRPLUS_AUTO`: the kernel asks for attributes when it asks for names.
_READDIRPLUS = 1 << 13 | 1 << 14
#: Options that decide how this mount works, so they cannot be set from outside.
_RESERVED = frozenset(
    {"fsname", "subtype", "attr_timeout", "entry_timeout", "negative_timeout", "default_permissions", "use_ino"}
)
#: mount_setattr(2): its number (the same on every machine), the flag that keeps symbolic links of a mount from being
#: followed (Linux 5.14), and the length of `struct mount_attr`.
_MOUNT_SETATTR, _NOSYMFOLLOW, _MOUNT_ATTR_SIZE = 442, 0x00200000, 32
_AT_FDCWD = -100


class _Fuse(mfusepy.FUSE):  # type: ignore[misc]
    """mfusepy's FUSE with what it leaves out.

    The flags of renameat2(2) and of a write, the handle of ftruncate(2), what the kernel may do with the pages of an
    opened file and with the targets of symbolic links, a `create` that does not look at our signature each time, and a
    `stat` and a `readdir` that fill in structures without dictionaries: the kernel asks for them more often than for
    anything else.
    """

    def __init__(
        self, operations: Operations, mountpoint: str, kernel: Kernel, *, follows: bool, **options: Any
    ) -> None:
        """`follows`: whether the kernel follows symbolic links on this mount.  Raises `MountFailed` where it must not
        and does."""
        self._kernel = kernel
        self._forbidden = None if follows else mountpoint
        self._failure: MountFailed | None = None
        super().__init__(operations, mountpoint, **options)
        if self._failure is not None:
            raise self._failure

    def init_fuse_3(self, connection: Any, config: Any) -> None:
        try:
            # The kernel sends no other request before this one is answered, so no link is followed earlier.
            if self._forbidden is not None:
                _forbid_following(self._forbidden)
        except MountFailed as error:
            self._failure = error
            mfusepy.fuse_exit()
            return
        fuse = int(mfusepy._libfuse.fuse_get_context().contents.fuse)
        self._kernel.attach(mfusepy._libfuse, fuse, config.contents)
        if self.operations.is_mirrored:
            connection.contents.want |= connection.contents.capable & _CACHE_SYMLINKS
        # We tell names without attributes, of which five times as many have room in an answer.
        connection.contents.want &= ~_READDIRPLUS
        super().init_fuse_3(connection, config)

    def readdir_fuse_3(self, path: bytes | None, buffer: Any, fill: Any, offset: int, info: Any, flags: int) -> int:
        status = mfusepy.c_stat()
        for name, status.st_mode, status.st_ino in self.operations.listed(self._decoded(path)):
            if fill(buffer, name, status, 0, 0):
                break
        return 0

    def rename_fuse_3(self, old: bytes, new: bytes, flags: int) -> int:
        decoded = (path.decode(self.encoding, self.errors) for path in (old, new))
        return int(self.operations.rename(*decoded, flags))

    def truncate_fuse_3(self, path: bytes, length: int, info: Any) -> int:
        return int(self.ftruncate(path, length, info))

    def create(self, path: bytes, mode: int, info: Any) -> int:
        opened = info.contents
        opened.fh = self.operations.create(path.decode(self.encoding, self.errors), mode, opened.flags)
        opened.noflush = not self.operations.writes(opened.fh)
        return 0

    def open(self, path: bytes, info: Any) -> int:
        opened = info.contents
        decoded = path.decode(self.encoding, self.errors)
        opened.fh = self.operations.open(decoded, opened.flags)
        pages = self.operations.opened(decoded, opened.fh)
        opened.keep_cache = pages is Pages.KEEP
        opened.direct_io = pages is Pages.BYPASS
        # What was not written need not be told when it is closed.
        opened.noflush = not self.operations.writes(opened.fh)
        return 0

    def write(self, path: bytes | None, buffer: Any, size: int, offset: int, info: Any) -> int:
        written = info.contents
        # The kernel's offset is the end that it knows, which another node's change may just have moved.  What it writes
        # back of a mapping comes without flags.
        appends = bool(written.flags & os.O_APPEND)
        data = ctypes.string_at(buffer, size)
        return int(self.operations.write(self._decoded(path), data, offset, written.fh, appends=appends))

    def _decoded(self, path: bytes | None) -> str | None:
        """A path; `None` where a file is open whose directory is gone."""
        return None if path is None else path.decode(self.encoding, self.errors)

    def fgetattr(self, path: bytes | None, buffer: Any, info: Any) -> int:
        handle = info.contents.fh if info else None
        found = self.operations.find(self._decoded(path), handle)
        ctypes.memset(buffer, 0, ctypes.sizeof(buffer.contents))
        status = buffer.contents
        status.st_mode = found.mode
        status.st_ino = found.number
        status.st_nlink = found.links
        status.st_uid = found.uid
        status.st_gid = found.gid
        status.st_size = found.size
        status.st_blocks = -(-found.size // 512)
        status.st_blksize = BLOCK_SIZE
        mtime, ctime = divmod(found.mtime, _NANOSECONDS), divmod(found.ctime, _NANOSECONDS)
        atime = mtime if found.atime is None else divmod(found.atime, _NANOSECONDS)
        status.st_atimespec.tv_sec, status.st_atimespec.tv_nsec = atime
        status.st_mtimespec.tv_sec, status.st_mtimespec.tv_nsec = mtime
        status.st_ctimespec.tv_sec, status.st_ctimespec.tv_nsec = ctime
        return 0


def caller() -> tuple[int, int, int]:
    """User and group id of the process whose request is served, and the id of its thread."""
    uid, gid, pid = mfusepy.fuse_get_context()
    return uid, gid, pid


def parse_options(text: str) -> dict[str, str | bool]:
    """FUSE's own options, as in `-o a,b=c`.  Raises `UsageError`."""
    options: dict[str, str | bool] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if name in _RESERVED:
            raise UsageError(f"the mount option {name} is BaseFS's own: leave it out")
        if part == "nosymfollow":
            _check_nosymfollow()
        options[name] = value if equals else True
    return options


def _check_nosymfollow() -> None:
    """Raise `UsageError` where this user or this kernel cannot keep symbolic links from being followed."""
    if os.geteuid() != 0:
        raise UsageError("only root can mount with nosymfollow: leave it out, or mount as root")
    # Of a path that never exists, so that nothing but the flag is tried.
    if _set_nosymfollow("") != errno.ENOENT:
        raise UsageError("this kernel has no nosymfollow for FUSE, which Linux 5.14 brought: leave it out")


def _forbid_following(mountpoint: str) -> None:
    """Keep the kernel from following symbolic links on a mount.  Raises `MountFailed`."""
    number = _set_nosymfollow(mountpoint)
    if number:
        raise MountFailed(f"cannot set nosymfollow on {mountpoint}: {os.strerror(number)}; mount without it")


def _set_nosymfollow(path: str) -> int:
    """mount_setattr(2); returns 0 or the errno.  libfuse has no such option, and the flag can be added afterwards."""
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = (ctypes.c_uint64 * (_MOUNT_ATTR_SIZE // 8))(_NOSYMFOLLOW)
    size = ctypes.c_size_t(_MOUNT_ATTR_SIZE)
    failed = libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), 0, ctypes.byref(attributes), size)
    return ctypes.get_errno() if failed else 0


def check_mountpoint(path: Path) -> None:
    """Raise `MountFailed` where nothing can be mounted, and say why."""
    if not Path("/dev/fuse").exists():
        raise MountFailed("there is no /dev/fuse: load the module with 'modprobe fuse'")
    try:
        if not path.is_dir():
            remedy = "choose another path" if path.exists() else f"make it with 'mkdir {path}'"
            raise MountFailed(f"{path} is not a directory: {remedy}")
    except OSError as error:
        raise MountFailed(
            f"{path} cannot be used: {error.strerror}; 'basefs unmount {path}' clears a dead mount"
        ) from None
    if os.path.ismount(path):
        raise MountFailed(f"something is mounted on {path} already: unmount it, or choose another directory")


def serve(
    operations: Operations,
    kernel: Kernel,
    mountpoint: Path,
    name: str,
    options: dict[str, str | bool],
    channel: int | None = None,
) -> None:
    """Serve until unmounted or told to stop by a signal; in the main thread.  Raises `MountFailed`.

    `channel`: what `open_channel` has returned to another process, which has mounted; `None` to mount here, and to
    unmount at the end.
    """
    options = _mount_options(name, options)
    follows = not options.pop("nosymfollow", False) or channel is not None
    try:
        _Fuse(
            operations,
            # libfuse takes this for a mount that is there, and neither mounts nor unmounts (fuse_session_mount).
            str(mountpoint) if channel is None else f"/dev/fd/{channel}",
            kernel,
            follows=follows,
            foreground=True,
            nothreads=True,
            # Numbers of ours: the same for all names of a file, and stable while this runs.
            use_ino=True,
            # Until the mirror runs nothing is cached, so a change from another node is seen by the next system call.
            attr_timeout=0,
            entry_timeout=0,
            negative_timeout=0,
            **options,
        )
    except RuntimeError as error:
        if error.args and error.args[0] in _LIVED:
            # It does not tell a signal from an error; of an error it has said more on stderr.
            log.info("mount on %s ended, by a signal unless an error is logged above", mountpoint)
            return
        raise MountFailed(f"cannot mount on {mountpoint}: {why_no_mount()}") from None


def open_channel(mountpoint: Path, name: str, options: dict[str, str | bool]) -> int:
    """Mount, and return the descriptor of /dev/fuse through which any process may serve the mount.

    Until one does, all that look at the mount wait.  When the last copy of the descriptor is closed, the mount is dead.
    Raises `MountFailed`.
    """
    options = _mount_options(name, options)
    follows = not options.pop("nosymfollow", False)
    text = ",".join(option if value is True else f"{option}={value}" for option, value in options.items() if value)
    channel = int(mfusepy._libfuse.fuse_open_channel(os.fsencode(mountpoint), text.encode()))
    if channel < 0:
        raise MountFailed(f"cannot mount on {mountpoint}: {why_no_mount()}")
    try:
        if not follows:
            _forbid_following(str(mountpoint))
    except MountFailed:
        os.close(channel)
        unmount(mountpoint, lazy=True)
        raise
    return channel


def _mount_options(name: str, options: dict[str, str | bool]) -> dict[str, str | bool]:
    """The options of a mount: ours, and what the user adds."""
    chosen: dict[str, str | bool] = {"nosuid": True, "nodev": True}
    if os.geteuid() == 0:
        # The services that read their configuration do not run as root.
        chosen["allow_other"] = True
    return {**chosen, **options, "fsname": f"basefs:{name}", "subtype": "basefs", "default_permissions": True}


def why_no_mount(device: Path = Path("/dev/fuse")) -> str:
    """Why FUSE cannot mount, and what to do, as far as the device tells."""
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        return f"cannot open {device} ({error.strerror}): load the module 'fuse'; in a container, allow this device"
    return "check -o, and that fuse3 is installed; the log has what FUSE said"


def unmount(mountpoint: Path, *, lazy: bool) -> None:
    """Take a mount of ours away, also one whose daemon is dead.

    `lazy`: detach it even while it is in use.  Raises `MountFailed`.
    """
    # What was closed a moment ago may be in use still: the kernel and the mirror let go of it afterwards.
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        reason = _try_unmount(mountpoint, lazy=lazy)
        if reason is None:
            return
        if os.strerror(errno.EBUSY) not in reason:
            raise MountFailed(f"cannot unmount {mountpoint}: {reason}")
    raise MountFailed(f"{mountpoint} is in use: close the files and leave the directories in it, or add --lazy")


def _try_unmount(mountpoint: Path, *, lazy: bool) -> str | None:
    """Unmount; the reason where that fails."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.umount2(os.fsencode(mountpoint), _MNT_DETACH if lazy else 0) == 0
        return None if done else os.strerror(ctypes.get_errno())
    tool = shutil.which("fusermount3") or shutil.which("fusermount")
    if tool is None:
        raise MountFailed("fusermount3 is missing: install the package fuse3")
    command = [tool, "-u", *(["-z"] if lazy else []), str(mountpoint)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    return None if tried.returncode == 0 else tried.stderr.strip()
