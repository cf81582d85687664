"""One real node: its own home, keys, Serf agent, mount point and address.  For tests, demonstration and evaluation."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from basefs.daemon.api.control import call
from basefs.daemon.mounts import mounts
from basefs.gossip.account import Account
from basefs.gossip.config import KEYRING_FILE
from tests.support.forked import CommandServer
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

#: The command as users have it: beside the interpreter that runs this.
COMMAND = Path(sys.executable).with_name("basefs")
#: Seconds for what was saved to reach the log.
PUBLISH_TIMEOUT = 600.0

_MNT_DETACH = 2  # umount2(2)
#: See `forked_commands`.
_forked: CommandServer | None = None


@contextlib.contextmanager
def forked_commands() -> Iterator[None]:
    """Meanwhile the commands of all nodes are forked, which takes another time and memory."""
    global _forked
    with CommandServer() as _forked:
        yield
    _forked = None


class CommandFailed(Exception):
    """A command that should have succeeded did not; the message holds what it printed."""


def mount_points(below: Path) -> list[Path]:
    """The BaseFS mounts at and below a directory, dead ones too, the latest first."""
    points = (mount.point for mount in reversed(mounts()))
    return [point for point in points if point == below or below in point.parents]


def detach(point: Path) -> None:
    """Unmount lazily, whatever state the mount is in."""
    ctypes.CDLL(None).umount2(os.fsencode(point), _MNT_DETACH)


def has_ended(pid: int) -> bool:
    """Whether a process and all of its threads have ended, so that their files are closed; nobody may reap it."""
    try:
        threads = len(os.listdir(f"/proc/{pid}/task"))
        return threads <= 1 and psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return True


@dataclass
class Node:
    """A node that runs the `basefs` command of this very installation.

    Attributes:
        base: directory that holds its home and its mount points.
        address: IP address on which it gossips and syncs, `None` for a node without a network.
        port: gossip port; sync is on the next one.
        namespace: name of its network namespace, `None` for the machine's own.
    """

    base: Path
    address: str | None = None
    port: int = 18374
    namespace: str | None = None

    @classmethod
    @contextlib.contextmanager
    def temporary(cls, base: Path) -> Iterator[Node]:
        """A node without a network, of which nothing runs afterwards."""
        node = cls(base)
        try:
            yield node
        finally:
            node.clean_up()

    @property
    def home(self) -> Path:
        """Its $BASEFS_HOME."""
        return self.base / "home"

    @property
    def mountpoint(self) -> Path:
        """Where it mounts unless told otherwise."""
        return self.base / "mnt"

    @property
    def endpoint(self) -> str:
        """`ip:port` of gossip."""
        return f"{self.address}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        return {**os.environ, "BASEFS_HOME": str(self.home)}

    def prefix(self) -> list[str]:
        """What a command line starts with in order to run in the node's network.

        `ip netns exec` would give the command a mount namespace of its own, in which nobody else sees its mounts.
        """
        return [] if self.namespace is None else ["nsenter", f"--net=/run/netns/{self.namespace}"]

    def spawn(self, *arguments: str | bytes | Path) -> subprocess.CompletedProcess[str]:
        """Run the real command and wait for it; whatever comes of it is in the result."""
        if _forked is not None and _forked.suits(self.environment):
            return _forked.run(list(map(os.fsdecode, arguments)), str(self.home), self.namespace, DEADLINE)
        return subprocess.run(
            [*self.prefix(), COMMAND, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=DEADLINE,
            check=False,
        )

    def basefs(self, *arguments: str | bytes | Path) -> str:
        """Run the real command, which must succeed, and return what it printed.  Raises `CommandFailed`."""
        done = self.spawn(*arguments)
        if done.returncode != 0:
            words = " ".join(map(str, arguments))
            raise CommandFailed(f"basefs {words} in {self.base}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def query(self, *arguments: str | Path) -> Any:
        """The JSON that a command prints.  Raises `CommandFailed`."""
        return json.loads(self.basefs(*arguments, "--json"))

    def mount(self, name: str, *options: str | Path, point: str = "mnt") -> Path:
        """Mount a filesystem below the node's directory; returns where.  Raises `CommandFailed`."""
        directory = self.base / point
        # It may be there and not answer: a mount whose daemon is dead.
        with contextlib.suppress(FileExistsError):
            directory.mkdir(parents=True)
        network = ("-s",) if self.address is None else ("-b", self.endpoint)
        self.basefs("mount", name, directory, *network, *options)
        return directory

    def summary(self, name: str) -> Mapping[str, Any]:
        """The row of `basefs list` for a filesystem."""
        return next(row for row in self.query("list") if row["name"] == name)

    def status(self, name: str) -> dict[str, Any]:
        """What a running filesystem tells of itself.

        Asked without a command, since a child process closes the files that this one has open.
        """
        status: dict[str, Any] = call(self.home / "run" / f"{name}.sock", "summary", {})
        return status

    def settle(self, name: str) -> None:
        """Wait until everything that was saved on this node is in its log."""
        # Of these two this one waits for what is on its way from the mount to the daemon.
        socket = self.home / "run" / f"{name}.sock"
        wait_until(lambda: not call(socket, "status", {})["unpublished"], PUBLISH_TIMEOUT, "nothing unpublished")

    def entries(self, name: str) -> int:
        """How many entries the log of a running filesystem holds, once everything that was saved is in it."""
        self.settle(name)
        return int(self.status(name)["entries"])

    def alive(self, name: str) -> int:
        """How many members of a filesystem's cluster the node sees alive."""
        return sum(member["status"] == "alive" for member in self.query("members", name))

    def log(self, name: str) -> str:
        """What the daemon has logged."""
        path = self.home / "logs" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def daemon(self, name: str) -> int:
        """The process id of the daemon of a filesystem."""
        return int(json.loads((self.home / "run" / f"{name}.json").read_text())["pid"])

    def gossip_key(self, name: str) -> bytes:
        """The keys that Serf has, as it keeps them in its file."""
        account = Account.find(self.home / "fs" / name)
        directory = self.home / "run" / name if account is None else account.directory
        return (directory / KEYRING_FILE).read_bytes()

    def kill(self, name: str) -> None:
        """End the daemon of a filesystem as a crash does, and wait until it has gone."""
        _end(self.daemon(name))

    def server(self, name: str) -> int:
        """The process id of the mount server of a filesystem."""
        socket = str(self.home / "run" / f"{name}.mount.sock")
        return next(
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if f"--socket={socket}" in (process.info["cmdline"] or ())
        )

    def kill_server(self, name: str) -> None:
        """End the mount server of a filesystem as a crash does, and wait until it has gone."""
        _end(self.server(name))

    def clean_up(self) -> None:
        """Unmount everything and end all that runs from this home, whatever state it is in."""
        for point in mount_points(self.base):
            detach(point)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("BASEFS_HOME") == str(self.home) and process.pid != os.getpid():
                    _end(process.pid)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        # A stopped process dies of this one as well.
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: has_ended(pid), DEADLINE, f"the end of process {pid}")
