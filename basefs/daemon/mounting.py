"""The daemon's side of its mount: finding, starting and reviving the mount server (docs/architecture.md).

The mount server is a process of its own and outlives the daemon: one that starts attaches to the server that is there.
Where the service manager runs the server (`--serve-only`, `--mount-only`), the daemon neither starts nor ends it.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import basefs.fs.server
from basefs.daemon.config import Home
from basefs.daemon.lock import is_held
from basefs.daemon.mounts import clear_dead, served_at, socket_of
from basefs.daemon.options import DaemonOptions
from basefs.errors import BaseFSError, MountFailed
from basefs.fs.channel import VERSION, Changed, MountServer
from basefs.fs.filesystem import Filesystem
from basefs.fs.sockets import connect
from basefs.replica.bootstrap import CLUSTER_FILE
from basefs.view.invitations import READERS

log = logging.getLogger(__name__)

#: Seconds that a server may take to unmount when it is told to; it detaches a mount that is in use.
STOP_SECONDS = 10.0
#: Seconds between two attempts to bring a mount back, and how often that is tried in a row.
REVIVE_SECONDS, REVIVE_ATTEMPTS = 1.0, 30


def _connect(home: Home, name: str) -> socket.socket | None:
    """Connect to the mount server of a filesystem, as its only daemon; `None` where none runs.

    One whose mount has gone is about to end, and answers still.
    """
    if served_at(home, name) is None:
        return None
    try:
        return connect(socket_of(home, name))
    except OSError:
        return None


def server_command(home: Home, options: DaemonOptions) -> list[str]:
    """The command line of the mount server."""
    assert options.mountpoint is not None
    program = Path(basefs.fs.server.__file__).with_name("__main__.py")
    return [
        sys.executable,
        str(program),
        f"--tree={home.directory(options.name)}",
        f"--socket={socket_of(home, options.name)}",
        f"--name={options.name}",
        f"--mountpoint={options.mountpoint}",
        f"--options={','.join(options.fuse_options)}",
        f"--uid={options.uid}",
        f"--gid={options.gid}",
        *(f"--hide={os.fsdecode(name)}" for name in (CLUSTER_FILE, READERS[0])),
        *(["--keep-owners"] if options.keep_owners else []),
    ]


class Mounting:
    """The mount of a running daemon."""

    def __init__(self, home: Home, options: DaemonOptions, filesystem: Filesystem, on_end: Callable[[], None]) -> None:
        """`on_end`: called when the filesystem was unmounted, or its mount cannot be brought back."""
        self._home, self._options, self._filesystem, self._on_end = home, options, filesystem, on_end
        self._server: MountServer | None = None
        self._ending = threading.Event()
        self._ended = threading.Event()
        #: Held while a server that has died is replaced.
        self._reviving = threading.Lock()

    def begin(self) -> None:
        """Attach to the server that runs, or start one; with `--serve-only`, wait for one.

        Raises `MountFailed`, also where it is told to end meanwhile.
        """
        connection = _connect(self._home, self._options.name)
        if connection is None and self._options.serve_only:
            while connection is None and not self._ending.wait(0.05):
                connection = _connect(self._home, self._options.name)
            if connection is None:
                raise MountFailed(f"{self._options.name} was stopped before it was mounted")
        if connection is None:
            connection = self._start()
        self._attach(connection)

    def end(self, *, unmount: bool) -> None:
        """Leave the server; `unmount`: and have it unmount and end, which is waited for."""
        self._ending.set()
        with self._reviving:
            server = self._server
        if server is None:
            return
        if unmount and not self._ended.is_set():
            server.stop()
            if not self._ended.wait(STOP_SECONDS):
                log.warning("the mount server did not end within %g s", STOP_SECONDS)
        self._filesystem.detach()
        server.close()

    def tell_to_end(self) -> None:
        """End a `begin` that waits; for a signal handler."""
        self._ending.set()

    # -- the server speaks, in a thread of the channel ----------------------------------------------------------------

    def changed(self, seq: int, changes: Sequence[Changed]) -> None:
        """Paths were changed on the mount."""
        self._filesystem.changed(seq, changes)

    def attribute(self, path: bytes, name: bytes) -> bytes | None:
        """The value of a virtual attribute."""
        return self._filesystem.attribute(path, name)

    def ended(self, orderly: bool) -> None:
        """The server has unmounted in order, or died, or something failed, and a scan is to find what it said."""
        self._ended.set()
        if orderly or self._ending.is_set():
            if not self._ending.is_set():
                log.info("unmounted")
            self._on_end()
            return
        log.error("the mount server has died, mounting again")
        threading.Thread(target=self._revive, name="revive", daemon=True).start()

    # -- starting one -------------------------------------------------------------------------------------------------

    def _attach(self, connection: socket.socket) -> None:
        server = MountServer(connection, self)
        if server.hello.version != VERSION:
            server.close()
            name = self._options.name
            raise MountFailed(f"the mount server of {name} is of another version: unmount {name} and mount it again")
        self._ended.clear()
        self._server = server
        self._filesystem.attach(server)
        log.info("attached to the mount server, process %d", server.hello.pid)

    def _start(self) -> socket.socket:
        mountpoint = self._options.mountpoint
        assert mountpoint is not None
        clear_dead(mountpoint)
        process = subprocess.Popen(
            server_command(self._home, self._options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )
        assert process.stdout is not None
        with process.stdout as output:
            answer = output.readline().decode("utf-8", "replace").strip()
        if answer != "ready":
            process.wait()
            reason = answer.removeprefix("failed: ") or f"the mount server ended with code {process.returncode}"
            raise MountFailed(reason)
        # Whoever ends first: a process that is not waited for would stay in the table of processes.
        threading.Thread(target=process.wait, name="mount-server", daemon=True).start()
        connection = _connect(self._home, self._options.name)
        if connection is None:
            raise MountFailed(f"the mount server of {self._options.name} does not listen")
        return connection

    def _revive(self) -> None:
        self._filesystem.detach()
        for _ in range(REVIVE_ATTEMPTS):
            with self._reviving:
                if self._ending.is_set():
                    break
                if self._replace():
                    return
            self._ending.wait(REVIVE_SECONDS)
        self._on_end()

    def _replace(self) -> bool:
        """Attach to a new server; whether there is one."""
        try:
            connection = _connect(self._home, self._options.name)
            # The service manager starts its own again.
            if connection is None and not self._options.serve_only:
                connection = self._start()
            if connection is not None:
                self._attach(connection)
        except (BaseFSError, OSError) as error:
            log.warning("cannot mount again, retrying: %s", error)
            return False
        return connection is not None


def check_attachable(home: Home, name: str, mountpoint: Path) -> bool:
    """Whether a mount server without a daemon serves this mount point of this filesystem already.

    Raises `MountFailed` where it serves another one.
    """
    if is_held(home.directory(name)):
        return False
    point = served_at(home, name)
    if point is None or point == mountpoint:
        return point is not None
    raise MountFailed(f"{name} is mounted on {point} still: mount it there, or 'basefs unmount {name}' first")


def serve_mount(home: Home, options: DaemonOptions) -> None:
    """Become the mount server of a filesystem, in the foreground; does not return.  Raises `MountFailed`."""
    command = server_command(home, options)
    try:
        os.execv(command[0], command)
    except OSError as error:
        raise MountFailed(f"cannot start the mount server: {error.strerror}") from None
