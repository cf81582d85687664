"""Run files: what a running daemon tells other commands about itself."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from basefs.daemon.config import Home
from basefs.durable import write_file


class RunFile:
    """`run/NAME.json` of a filesystem: the daemon's process id and mount point."""

    def __init__(self, home: Home, name: str) -> None:
        self._path = home.run_directory() / f"{name}.json"

    def write(self, mountpoint: Path | None) -> None:
        """Record this process.  Raises OSError."""
        facts = {"pid": os.getpid(), "mountpoint": None if mountpoint is None else str(mountpoint)}
        write_file(self._path, json.dumps(facts).encode(), mode=0o600)

    def read(self) -> tuple[int, Path | None] | None:
        """Process id and mount point of the last daemon that did not end cleanly or still runs, else `None`."""
        try:
            facts = json.loads(self._path.read_text())
            mountpoint = facts["mountpoint"]
            return int(facts["pid"]), None if mountpoint is None else Path(mountpoint)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """Forget it."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
