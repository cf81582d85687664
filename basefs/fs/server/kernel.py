"""The kernel's caches of a mount: how long they hold, and what must be looked up again (docs/fs.md).

libfuse's calls are made through ctypes by a thread that serves no request: an invalidation waits for pages that are
being read, which only the thread that serves can bring.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import queue
import threading
from collections.abc import Iterable
from typing import Any

from basefs.path import Path

log = logging.getLogger(__name__)

#: Seconds for which the kernel believes names and attributes.  It is told of every change, so this only limits how long
#: a mistake of ours could last; more would save nothing that can be measured.
TIMEOUT = 60.0
#: Seconds that an operation waits until what it changed under another name is known.  It must not wait longer, since a
#: page that is being read may wait for it.
WAIT_SECONDS = 0.02
#: Paths for which it waits at all: each takes some 10 us, and a file has rarely more names.
MAX_AWAITED = 32

_libc = ctypes.CDLL(None, use_errno=True)


def path_of(path: Path) -> bytes:
    """A path as libfuse knows it."""
    return b"/" + b"/".join(path)


class Kernel:
    """What the kernel remembers of one mount."""

    def __init__(self) -> None:
        self._library: Any = None
        self._fuse: int | None = None
        self._config: Any = None
        self._thread: threading.Thread | None = None
        self._queue: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        #: What is to be forgotten.  A path that is asked for again meanwhile is done once.
        self._paths: dict[Path, None] = {}
        #: Those that the thread has taken and not done yet.
        self._taken: set[Path] = set()

    def attach(self, library: Any, fuse: int, config: Any) -> None:
        """The mount has begun.

        Args:
            library: libfuse, loaded by ctypes.
            fuse: its `struct fuse *`.
            config: its `struct fuse_config`, which it goes on reading.
        """
        library.fuse_invalidate_path.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
        library.fuse_invalidate_path.restype = ctypes.c_int
        self._library, self._fuse, self._config = library, fuse, config
        self._thread = threading.Thread(target=self._main, name="kernel-caches", daemon=True)
        self._thread.start()

    def cache(self, seconds: float) -> None:
        """Let the kernel believe names and attributes that it learns from now on for so long."""
        if self._config is not None:
            self._config.entry_timeout = self._config.attr_timeout = seconds

    def invalidate(self, paths: Iterable[Path], *, wait: bool = False) -> None:
        """Have attributes and pages of these paths read again; `wait` until that is done, but not for long."""
        if self._fuse is None:
            return
        added = dict.fromkeys(paths)
        done = threading.Event()
        with self._lock:
            self._paths.update(added)
        self._queue.put(done)
        if wait and len(added) <= MAX_AWAITED:
            done.wait(WAIT_SECONDS)

    def has_forgotten(self, path: Path) -> bool:
        """Whether nothing of a path is left to be forgotten."""
        with self._lock:
            return path not in self._paths and path not in self._taken

    def detach(self) -> None:
        """The mount has ended; libfuse's structures are gone."""
        self._fuse = self._config = None
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(1.0)

    def _main(self) -> None:
        while (done := self._queue.get()) is not None:
            with self._lock:
                paths, self._paths = self._paths, {}
                self._taken = set(paths)
            for path in paths:
                if self._fuse is not None:
                    # A path that the kernel does not know is an error that says just that.
                    self._library.fuse_invalidate_path(self._fuse, path_of(path))
                with self._lock:
                    self._taken.discard(path)
            done.set()


def leave_files() -> None:
    """Give this thread a file table of its own, with nothing in it.

    A thread that waits for its own mount when the process is killed would otherwise keep /dev/fuse open, so that the
    request it waits for never ends, nor does the mount.  Raises `OSError`.
    """
    clone_files = 0x400
    if _libc.unshare(clone_files) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    with contextlib.suppress(OSError):
        os.closerange(3, max(int(name) for name in os.listdir("/proc/thread-self/fd")) + 1)


class _Timespec(ctypes.Structure):
    """`struct timespec`."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


#: `times` of futimens(2), access and modification: UTIME_OMIT and UTIME_NOW.
_MODIFIED = (_Timespec * 2)(_Timespec(0, (1 << 30) - 2), _Timespec(0, (1 << 30) - 1))


def mark_modified(descriptor: int) -> None:
    """Have those who watch an open file hear that it was modified, and the kernel learn its size.  Raises `OSError`.

    Not by ftruncate(2).  While a size is being set the kernel ignores what any other answer says of it, and who reads
    meanwhile gets the bytes of the new version up to the size of the old one (Linux, fs/fuse/inode.c,
    `FUSE_I_SIZE_UNSTABLE`).  The answer to this tells the size just as well.
    """
    if _libc.futimens(descriptor, _MODIFIED) != 0:
        raise OSError(ctypes.get_errno(), "futimens")
