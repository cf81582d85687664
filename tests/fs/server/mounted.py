"""A mount server's process on a directory, and the daemon's end of its channel."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from basefs.fs.channel import NO_FLAGS, Changed, Flags, MountServer
from basefs.fs.disk import Disk, FileAttributes
from basefs.fs.jobs import Expected, JobAction, JobResult, TreeJob
from tests.support.mounts import wait_until
from tests.support.patience import DEADLINE

#: On every system, and never who runs these tests.
NOBODY = 65534


class Daemon:
    """What a daemon does, and what it was told."""

    def __init__(self, path: Path, *, start: bool = True, patience: float = DEADLINE) -> None:
        self._connection = connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(path))
        self.changes: list[Changed] = []
        self.attributes: dict[bytes, bytes] = {}
        self.seen = 0
        self.ends: list[bool] = []
        self.server = MountServer(connection, self, patience)
        self.seen = self.server.hello.seen
        if start:
            self.server.start()

    def changed(self, seq: int, changes: Sequence[Changed]) -> None:
        self.seen = seq
        self.changes += changes

    def attribute(self, path: bytes, name: bytes) -> bytes | None:
        return self.attributes.get(name)

    def ended(self, orderly: bool) -> None:
        self.ends.append(orderly)

    def has_message(self) -> bool:
        """Whether something was said that nobody has read."""
        return bool(select.select([self._connection], [], [], 0)[0])

    def flags(self, path: str) -> Flags:
        """All that was said of a path."""
        flags = NO_FLAGS
        for change in self.changes:
            if change.path == os.fsencode(path):
                flags |= change.flags
        return flags

    def wait_for(self, *paths: str, flags: Flags = NO_FLAGS) -> None:
        """Wait until these paths were reported, all with these flags, and forget it."""
        wanted = set(map(os.fsencode, paths))

        def came() -> bool:
            return wanted <= {change.path for change in self.changes if change.flags & flags == flags}

        wait_until(came, f"changes of {paths} in {self.changes}")
        self.changes.clear()


class Mounted:
    """A mount.

    Attributes:
        point: where it is.
        disk: the directory behind it, for a daemon.
        tree: its path.
    """

    def __init__(self, base: Path, *options: str, user: int | None = None, limit: int | None = None) -> None:
        """
        Args:
            base: an empty directory.
            options: of the server.
            user: who runs it.
            limit: of its descriptors.
        """
        self.base, self.point, home = base, base / "mnt", base / "home"
        self.tree, self.log = home / "tree", base / "log"
        for directory in (self.point, home):
            directory.mkdir(exist_ok=True)
            if user is not None:
                os.chown(directory, user, user)
        if user is not None:
            base.chmod(0o777)
        # As a daemon before has said.
        (home / "rights.json").write_text('{"/": 0}')
        command = [
            *(("prlimit", f"--nofile={limit}:{limit}") if limit else ()),
            *(("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user is not None else ()),
            sys.executable, "-m", "basefs.fs.server", "--tree", home, "--socket", base / "socket", "--name", "conf",
            "--mountpoint", self.point, *options,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()
        self.disk = Disk(home, cached=False) if user is None else None
        self._daemons: list[Daemon] = []

    def daemon(self, *, start: bool = True, patience: float = DEADLINE) -> Daemon:
        """A daemon that connects; without `start` it takes nothing yet."""
        made = Daemon(self.base / "socket", start=start, patience=patience)
        self._daemons.append(made)
        return made

    def close(self) -> None:
        """Unmount, and let nothing remain."""
        for daemon in self._daemons:
            daemon.server.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(DEADLINE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        if self.disk is not None:
            self.disk.close()
        subprocess.run(["umount", "-l", self.point], check=False, capture_output=True)
        written = self.log.read_text()
        assert "Traceback" not in written, written

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def expected(self, path: str) -> Expected | None:
        """What is on the disk now."""
        assert self.disk is not None
        found = self.disk.look(os.fsencode(path))
        return None if found is None else Expected(*found[:4], found.uid, found.gid)

    def prepare(self, name: str, content: bytes, mode: int = 0o644, mtime: int = 10**18) -> bytes:
        """A file in `incoming`; returns its name."""
        assert self.disk is not None
        raw = os.fsencode(name)
        with open(raw, "wb", opener=lambda n, flags: os.open(n, flags, 0o600, dir_fd=self.disk.incoming)) as file:
            file.write(content)
        self.disk.set_attributes(self.disk.incoming, raw, FileAttributes(mode, None, mtime))
        return raw

    def put(self, daemon: Daemon, path: str, content: bytes, expected: Expected | None = None) -> JobResult:
        """Have a file brought by a daemon that has seen all changes."""
        job = TreeJob(
            os.fsencode(path), JobAction.PUT, expected or self.expected(path), self.prepare("prepared", content)
        )
        return self.perform(daemon, job)

    @staticmethod
    def perform(daemon: Daemon, job: TreeJob) -> JobResult:
        """Have one job done."""
        return daemon.server.perform([job], daemon.seen)[0]


@contextlib.contextmanager
def mounted(base: Path, *options: str, user: int | None = None, limit: int | None = None) -> Iterator[Mounted]:
    """A mount, for a while."""
    made = Mounted(base, *options, user=user, limit=limit)
    try:
        assert made.said == "ready", made.said
        yield made
    finally:
        made.close()


class Watch:
    """What inotify says of a path, or of a tree."""

    def __init__(self, *paths: Path, recursive: bool = False) -> None:
        command = ["inotifywait", "-m", *(["-r"] if recursive else []), "--format", "%e %f", *paths]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        while "established" not in self._process.stderr.readline():
            assert self._process.poll() is None

    def until(self, event: str) -> list[str]:
        """The events up to one that begins so."""
        assert self._process.stdout is not None
        found = []
        while not (found and found[-1].startswith(event)):
            line = self._process.stdout.readline()
            assert line, found
            found.append(line.strip())
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


@contextlib.contextmanager
def watching(*paths: Path, recursive: bool = False) -> Iterator[Watch]:
    """Events from now on."""
    watch = Watch(*paths, recursive=recursive)
    try:
        yield watch
    finally:
        watch.close()
