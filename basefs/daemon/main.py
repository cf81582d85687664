"""The daemon of one filesystem: the composition root.

The network and the commands live in one event-loop thread, the mount in a process of its own (docs/architecture.md).
Parts are started in order on an exit stack, so whatever fails, what was started is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable

from basefs import __version__
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.lock import LEAVE_PATIENCE, exclusive, only_agent
from basefs.daemon.loop import EventLoopServices
from basefs.daemon.mounting import Mounting
from basefs.daemon.mounts import served_at
from basefs.daemon.options import DaemonOptions
from basefs.errors import DaemonError
from basefs.fs.filesystem import Filesystem
from basefs.fs.worktree.owners import Owners
from basefs.fs.worktree.scratch import ScratchNames
from basefs.log.reserve import DiskLimits
from basefs.notify import ServiceManager
from basefs.replica.replica import Replica

log = logging.getLogger(__name__)

#: Seconds for which a thread may keep the interpreter lock while another one wants it.  At the default of 5 ms a FUSE
#: operation took 5 to 20 ms while the event loop was busy, with this 0.3 to 1 ms.
SWITCH_INTERVAL = 0.0002
#: Seconds by which a signal may be handled late.
SIGNAL_SECONDS = 1.0


def run(home: Home, options: DaemonOptions, on_ready: Callable[[], None], manager: ServiceManager) -> None:
    """Serve a filesystem until it is unmounted or stopped.

    Call it in the main thread; `on_ready` is called as soon as it answers, and `manager` is notified.

    Raises `BaseFSError` where it cannot start.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    _share_heap()
    # What is there now stays, and need not be searched.
    gc.collect()
    gc.freeze()
    # A full search for garbage stops all threads for some 10 to 100 ms with a large tree; reference counts free nearly
    # everything, so what the rarer ones leave lying about is little.
    gc.set_threshold(20_000, 20, 100)
    directory = home.existing(options.name)
    # What is on the first stack ends after the log is closed and its lock released, for which `unmount` waits.
    with contextlib.ExitStack() as departure, contextlib.ExitStack() as stack:
        # A command such as `basefs list` holds it for a moment, another daemon for ever.
        stack.enter_context(exclusive(directory, options.name, patience=3.0))
        departure.enter_context(only_agent(directory, options.name))
        limits = DiskLimits(options.settings.max_log_bytes, options.settings.min_free)
        replica = Replica(directory, options.keys, limits=limits)
        stack.callback(replica.close)
        filesystem = Filesystem(
            replica,
            Owners(options.uid, options.gid, keep=options.keep_owners),
            options.settings.quiet_window,
            ScratchNames(options.settings.never_publish),
            mounted=options.mountpoint is not None and served_at(home, options.name) is not None,
        )
        stop = threading.Event()
        services = EventLoopServices(home, options, replica, filesystem, stop.set, manager)
        event_loop = departure.enter_context(_EventLoopThread(services))
        stack.callback(event_loop.stop)
        # Closed before the network, so that what is still pending reaches others.
        stack.callback(filesystem.close)
        mounting = None if options.mountpoint is None else Mounting(home, options, filesystem, stop.set)
        _catch_signals(stop, mounting)
        run_file = RunFile(home, options.name)
        run_file.write(options.mountpoint)
        stack.callback(run_file.remove)
        stack.callback(manager.stopping)
        # Also gives the daemon's log file a block, so that a disk which is full later can still be told of.
        log.info("BaseFS %s serves %s at %s", __version__, options.name, options.mountpoint or "no mountpoint")
        # Behind the run file: on a nearly full disk, an attempt to publish takes all room for a moment, and that file
        # would not fit.
        if mounting is not None:
            # The service manager ends the server that it runs.
            stack.callback(mounting.end, unmount=not options.serve_only)
            mounting.begin()
        filesystem.start()
        on_ready()
        manager.ready()
        # A signal that arrives just before the wait is handled when the wait ends.
        while not stop.wait(SIGNAL_SECONDS):
            pass


def _catch_signals(stop: threading.Event, mounting: Mounting | None) -> None:
    """Let the signals that end a program end this one in order; SIGHUP, which tools send to all, only at a terminal."""

    def end(*_: object) -> None:
        stop.set()
        if mounting is not None:
            mounting.tell_to_end()

    # Before others can read whom to signal.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, end if sys.stdin.isatty() else signal.SIG_IGN)


def _share_heap() -> None:
    """Let all threads allocate from one heap: free memory in heaps of their own comes to some MiB in a day.

    The interpreter lock keeps them from allocating at the same time anyway.
    """
    # Other C libraries than glibc have no such function.
    with contextlib.suppress(AttributeError):
        # `M_ARENA_MAX` of mallopt(3).
        ctypes.CDLL(None).mallopt(-8, 1)


class _EventLoopThread:
    """The thread in which everything but FUSE runs.  It ends when this node has left its cluster."""

    def __init__(self, services: EventLoopServices) -> None:
        self._services = services
        self._started = threading.Event()
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="event-loop", daemon=True)

    def __enter__(self) -> _EventLoopThread:
        self._thread.start()
        if not self._started.wait(30.0):
            raise DaemonError("the daemon did not start within 30 s: see its log")
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def stop(self) -> None:
        """End everything that uses the log."""
        # It has ended by itself if it failed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        # Without Serf, which leaves while nobody waits for it.
        self._stopped.wait(15.0)

    def __exit__(self, *_: object) -> None:
        self._thread.join(LEAVE_PATIENCE)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
            if self._started.is_set():
                log.exception("event loop failed")
        finally:
            self._started.set()
            self._stopped.set()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        async with contextlib.AsyncExitStack() as departure:
            async with self._services.running(departure):
                self._started.set()
                await self._stop.wait()
            self._stopped.set()
