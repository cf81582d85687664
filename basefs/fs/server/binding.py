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
from collections.abc import Callable
from pathlib import Path
from typing import Any

# mfusepy takes libfuse 2 where both are installed, unless told before it is imported.
os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")

from basefs.errors import MountFailed, UsageError

try:
    import mfusepy
except OSError as error:
    raise MountFailed(f"libfuse 3 cannot be loaded ({error}): 'apt-get install fuse3', see 'basefs doctor'") from None

from basefs.fs.fuse.kernel import Kernel
from basefs.fs.fuse.mirror import Mirror
from basefs.fs.fuse.passthrough import Passthrough

log = logging.getLogger(__name__)

_MNT_DETACH = 2  # umount2(2)
#: How often a mount that is in use is tried to unmount, and the seconds in between.
_ATTEMPTS, _PAUSE = 10, 0.02
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


class _Requests:
    """What mfusepy looks at to find out which requests are served; `_Fuse` serves all of them itself."""

    use_ns = True

    def init(self, path: str) -> None:
        """The kernel has accepted the mount."""

    def destroy(self, path: str) -> None:
        """The mount has ended."""

    def _served(self, *_: object) -> int:
        raise AssertionError

    getattr = readdir = readlink = statfs = create = open = read = write = flush = release = _served
    fsync = fsyncdir = truncate = mknod = mkdir = symlink = link = unlink = rmdir = rename = _served
    chmod = chown = utimens = getxattr = setxattr = listxattr = removexattr = _served


class _Fuse(mfusepy.FUSE):  # type: ignore[misc]
    """The requests as libfuse makes them, without the detours of mfusepy."""

    def __init__(
        self,
        tree: Passthrough,
        mountpoint: str,
        kernel: Kernel,
        on_ready: Callable[[], None],
        mirror: Mirror | None,
        *,
        follows: bool,
        **options: Any,
    ) -> None:
        """`follows`: whether the kernel follows symbolic links on this mount.  Raises `MountFailed` where it must not
        and does."""
        self._tree, self._kernel, self._on_ready, self._mirror = tree, kernel, on_ready, mirror
        self._forbidden = None if follows else mountpoint
        self._failure: MountFailed | None = None
        self._status = mfusepy.c_stat()
        super().__init__(_Requests(), mountpoint, **options)
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
        if self._mirror is not None:
            connection.contents.want |= connection.contents.capable & _CACHE_SYMLINKS
        # We tell names without attributes, of which five times as many have room in an answer.
        connection.contents.want &= ~_READDIRPLUS
        super().init_fuse_3(connection, config)
        if self._mirror is not None:
            self._mirror.start()
        self._on_ready()

    def destroy(self, private: Any) -> None:
        if self._mirror is not None:
            self._mirror.stop()
        self._kernel.detach()

    def fgetattr(self, path: bytes | None, buffer: Any, info: Any) -> int:
        return self._tree.getattr(path, buffer, info.contents.fh if info else 0)

    def readdir_fuse_3(self, path: bytes, buffer: Any, fill: Any, offset: int, info: Any, flags: int) -> int:
        return self._tree.readdir(path, self._status, lambda name, status: fill(buffer, name, status, 0, 0))

    def readlink(self, path: bytes, buffer: Any, size: int) -> int:
        data = self._tree.readlink(path)[: size - 1] + b"\0"
        ctypes.memmove(buffer, data, len(data))
        return 0

    def statfs(self, path: bytes, buffer: Any) -> int:
        return self._tree.statfs(buffer.contents)

    def create(self, path: bytes, mode: int, info: Any) -> int:
        return self._tree.create(path, mode, info.contents)

    def open(self, path: bytes, info: Any) -> int:
        return self._tree.open(path, info.contents)

    def read(self, path: bytes | None, buffer: Any, size: int, offset: int, info: Any) -> int:
        return self._tree.read(buffer, size, offset, info.contents.fh)

    def write(self, path: bytes | None, buffer: Any, size: int, offset: int, info: Any) -> int:
        return self._tree.write(buffer, size, offset, info.contents.fh)

    def flush(self, path: bytes | None, info: Any) -> int:
        return self._tree.flush(path, info.contents.fh)

    def release(self, path: bytes | None, info: Any) -> int:
        return self._tree.release(path, info.contents.fh)

    def fsync(self, path: bytes | None, data: int, info: Any) -> int:
        return self._tree.fsync(path, bool(data), info.contents.fh)

    def fsyncdir(self, path: bytes, data: int, info: Any) -> int:
        return 0

    def truncate_fuse_3(self, path: bytes | None, length: int, info: Any) -> int:
        return self._tree.truncate(path, length, info.contents.fh if info else 0)

    def mknod(self, path: bytes, mode: int, device: int) -> int:
        return self._tree.mknod(path, mode)

    def mkdir(self, path: bytes, mode: int) -> int:
        return self._tree.mkdir(path, mode)

    def symlink(self, target: bytes, path: bytes) -> int:
        return self._tree.symlink(target, path)

    def link(self, source: bytes, path: bytes) -> int:
        return self._tree.link(source, path)

    def unlink(self, path: bytes) -> int:
        return self._tree.unlink(path)

    def rmdir(self, path: bytes) -> int:
        return self._tree.rmdir(path)

    def rename_fuse_3(self, old: bytes, new: bytes, flags: int) -> int:
        return self._tree.rename(old, new, flags)

    def chmod_fuse_3(self, path: bytes | None, mode: int, info: Any) -> int:
        return self._tree.chmod(path, mode, info.contents.fh if info else 0)

    def chown_fuse_3(self, path: bytes | None, uid: int, gid: int, info: Any) -> int:
        return self._tree.chown(path, uid, gid, info.contents.fh if info else 0)

    def utimens_fuse_3(self, path: bytes | None, times: Any, info: Any) -> int:
        found = times.contents
        return self._tree.utimens(path, (found.actime, found.modtime), info.contents.fh if info else 0)

    def getxattr(self, path: bytes, name: bytes, value: Any, size: int, *_: Any) -> int:
        return -errno.ENODATA

    def setxattr(self, *_: Any) -> int:
        return -errno.ENOTSUP

    def listxattr(self, path: bytes, buffer: Any, size: int) -> int:
        return 0

    def removexattr(self, path: bytes, name: bytes) -> int:
        return -errno.ENODATA


def new_status() -> Any:
    """A `struct stat`."""
    return mfusepy.c_stat()


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
    tree: Passthrough,
    kernel: Kernel,
    mirror: Mirror | None,
    on_ready: Callable[[], None],
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
            tree,
            # libfuse takes this for a mount that is there, and neither mounts nor unmounts (fuse_session_mount).
            str(mountpoint) if channel is None else f"/dev/fd/{channel}",
            kernel,
            on_ready,
            mirror,
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
