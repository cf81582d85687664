"""The system user as which Serf runs under root: what parses packets of strangers reads neither the log nor the keys.

The node's home is root's alone, so Serf has a directory of its own elsewhere: `HOME/NAME-DIGITS`, where HOME is that of
the user.  It is root's, the group reads the configuration there, and Serf itself writes in `state` below it only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import shutil
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

log = logging.getLogger(__name__)

#: Made by the Debian package; without it Serf runs as the user of the daemon.  No other user will do: what runs as
#: `nobody` shares that user with other programs.
NAME = "basefs-serf"
_STATE = "state"


@dataclass(frozen=True, slots=True)
class Account:
    """User and group id, and the directory of one node."""

    uid: int
    gid: int
    directory: Path

    @classmethod
    def find(cls, node: Path) -> Account | None:
        """The account for the filesystem whose log is in the directory `node`.

        `None` if this process is not root's, or there is no such user.
        """
        if os.geteuid() != 0:
            return None
        try:
            entry = pwd.getpwnam(NAME)
        except KeyError:
            return None
        digits = sha256(os.fsencode(node.resolve())).hexdigest()[:16]
        return cls(entry.pw_uid, entry.pw_gid, Path(entry.pw_dir) / f"{node.name}-{digits}")

    @property
    def snapshot(self) -> Path:
        """Where Serf keeps its snapshot."""
        return self.directory / _STATE / "serf.snapshot"

    def prepare(self, former: Path) -> None:
        """Make the directories; `former`: a snapshot from before there was the user, which is taken along.

        Raises OSError, also where the user could replace them: its home is somebody's else than root's.
        """
        home = self.directory.parent
        home.mkdir(mode=0o711, exist_ok=True)
        status = home.stat()
        if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{home} is not root's alone: type 'chown root:root {home} && chmod 711 {home}'")
        home.chmod(status.st_mode | 0o111)
        self.directory.mkdir(mode=0o710, exist_ok=True)
        os.chown(self.directory, 0, self.gid)
        self.directory.chmod(0o710)
        state = self.directory / _STATE
        state.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            # While it is root's nothing in it is replaced.
            os.fchown(descriptor, 0, 0)
            self._take_along(former, descriptor)
            self._own(descriptor)
            os.fchown(descriptor, self.uid, self.gid)
        finally:
            os.close(descriptor)

    def _take_along(self, former: Path, directory: int) -> None:
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            data = former.read_bytes()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(self.snapshot.name, flags, 0o600, dir_fd=directory), "wb") as file:
                file.write(data)

    def _own(self, directory: int) -> None:
        """Give the user its files, which are another's if Serf ran as root, or the user was made anew."""
        for name in os.listdir(directory):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            # A second name could be one of a file elsewhere.
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid != self.uid:
                os.chown(name, self.uid, self.gid, dir_fd=directory, follow_symlinks=False)

    def may_run(self, program: str) -> bool:
        """Whether the user reaches a program, as all others do."""
        path = Path(os.path.realpath(program))
        return all(each.stat().st_mode & stat.S_IXOTH for each in (path, *path.parents))

    def remove(self) -> None:
        """Remove all that Serf has here of the node."""
        shutil.rmtree(self.directory, ignore_errors=True)
