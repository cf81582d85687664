"""One real node: its own home, keys, Serf agent, mount point and address."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Seconds that one command may take before it counts as hanging.
COMMAND_TIMEOUT = 120.0


class CommandFailed(Exception):
    """A command that should have succeeded did not; the message holds what it printed."""


@dataclass
class Node:
    """A node that runs the `basefs` command of this very installation.

    Attributes:
        directory: holds its home and its mount point.
        address: IP address on which it gossips and syncs.
        port: gossip port; sync is on the next one.
        namespace: name of its network namespace, `None` for the machine's own.
    """

    directory: Path
    address: str
    port: int = 18374
    namespace: str | None = None

    def __post_init__(self) -> None:
        self.mountpoint.mkdir(parents=True, exist_ok=True)

    @property
    def home(self) -> Path:
        """Its $BASEFS_HOME."""
        return self.directory / "home"

    @property
    def mountpoint(self) -> Path:
        """Where it mounts."""
        return self.directory / "mnt"

    @property
    def endpoint(self) -> str:
        """`ip:port` of gossip."""
        return f"{self.address}:{self.port}"

    def prefix(self) -> list[str]:
        """What a command line starts with in order to run in the node's network.

        `ip netns exec` would give the command a mount namespace of its own, in which nobody else sees its mounts.
        """
        return [] if self.namespace is None else ["nsenter", f"--net=/run/netns/{self.namespace}"]

    def environment(self) -> dict[str, str]:
        """Its environment variables."""
        return {**os.environ, "BASEFS_HOME": str(self.home)}

    def try_basefs(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run `basefs` on the node; whatever comes of it is in the result."""
        return subprocess.run(
            [*self.prefix(), sys.executable, "-m", "basefs", *map(str, arguments)],
            env=self.environment(),
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=COMMAND_TIMEOUT,
            check=False,
        )

    def basefs(self, *arguments: str | Path) -> str:
        """Run `basefs` on the node and return what it prints.  Raises `CommandFailed`."""
        done = self.try_basefs(*arguments)
        if done.returncode != 0:
            words = " ".join(map(str, arguments))
            raise CommandFailed(f"basefs {words} on {self.endpoint}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def query(self, *arguments: str | Path) -> Any:
        """The JSON that a command prints.  Raises `CommandFailed`."""
        return json.loads(self.basefs(*arguments, "--json"))

    def mount(self, name: str, *options: str) -> None:
        """Mount a filesystem on the node's mount point.  Raises `CommandFailed`."""
        self.basefs("mount", name, self.mountpoint, "-b", self.endpoint, *options)

    def summary(self, name: str) -> Mapping[str, Any]:
        """The row of `basefs list` for a filesystem."""
        return next(row for row in self.query("list") if row["name"] == name)

    def alive(self, name: str) -> int:
        """How many members of a filesystem's cluster the node sees alive."""
        return sum(member["status"] == "alive" for member in self.query("members", name))

    def pid(self, name: str) -> int:
        """The process id of the daemon."""
        return int(json.loads((self.home / "run" / f"{name}.json").read_text())["pid"])

    def log(self, name: str) -> str:
        """What the daemon has logged."""
        path = self.home / "logs" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def clean_up(self) -> None:
        """End what runs and unmount what is mounted, whatever state it is in."""
        for run_file in self.home.glob("run/*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                os.kill(int(json.loads(run_file.read_text())["pid"]), signal.SIGKILL)
        while os.path.ismount(self.mountpoint) or _is_dead_mount(self.mountpoint):
            done = subprocess.run(["umount", "-l", self.mountpoint], capture_output=True, check=False)
            if done.returncode != 0:
                break


def _is_dead_mount(path: Path) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
