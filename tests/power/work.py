"""Programs at work on a worktree: `python -m tests.power.work HOME SEED STEPS ENDING`, which strace records.

Without a mount: programs change the directory, and the filesystem in this process is told, publishes and syncs at
moments of chance.  What became of each name is printed, a line of JSON each.  ENDING is `close` or `kill`.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path

from basefs.fs.channel import Changed, Flags
from basefs.fs.filesystem import Filesystem
from basefs.fs.worktree.owners import Owners
from basefs.replica.replica import Replica
from tests.support.helpers import ROOT_KEY, noise

#: Bytes of the contents: in an entry, in blocks.  None is empty: that is what a cut makes of a file.
SIZES = (10, 3000, 9000, 9000, 40_000, 200_000)
FILES = ("a", "b", "c", "old/d", "old/e", "new/f", "new/g")
DIRECTORIES = ("old", "new", "other")
#: What a program calls a file that it has not finished; the first one never leaves the node.
UNFINISHED = ("{}~", "{}.tmp", "{}.2")
NOTHING = Flags(0)


def digest(content: bytes) -> str:
    """By which a content is known."""
    return f"{len(content)}:{hashlib.sha224(content).hexdigest()[:16]}"


class Programs:
    """Programs at work."""

    def __init__(self, replica: Replica, filesystem: Filesystem, seed: int) -> None:
        self._replica, self._filesystem = replica, filesystem
        self._chance = random.Random(seed)
        self._contents, self._changes = seed * 1000, 0

    def run(self, steps: int) -> None:
        """Do something, so many times."""
        todo = [self._save] * 5 + [self._replace] * 4 + [self._append, self._remove, self._move] * 2
        todo += [self._move_directory, self._make_directory, self._remove_directory]
        for _ in range(steps):
            self._chance.choice(todo)()
            if self._chance.random() < 0.5:
                self._filesystem.publish()
            if self._chance.random() < 0.3:
                self._replica.sync_to_disk()

    # -- calls --------------------------------------------------------------------------------------------------------

    def _place(self, path: str) -> Path:
        return self._filesystem.tree / path

    def _tell(self, path: str, began: float, *, flags: Flags = NOTHING, is_promised: bool = False) -> None:
        """What a name is from now on, to the filesystem and to the test."""
        place, status, content = self._place(path), None, None
        if place.exists():
            status = place.lstat()
            content = "directory" if place.is_dir() else digest(place.read_bytes())
        self._changes += 1
        self._filesystem.changed(self._changes, [Changed(f"/{path}".encode(), status.st_ino if status else 0, flags)])
        stamps = None if status is None else [status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
        line = json.dumps([path, content, began, time.time() if is_promised else None, stamps])
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def _decide(self) -> bool:
        return self._chance.random() < 0.5

    def _file(self, *, there: bool | None = None) -> str | None:
        """A file whose directory is there, and which is itself, or not."""
        fitting = [
            path
            for path in FILES
            if self._place(path).parent.is_dir() and (there is None or there == self._place(path).exists())
        ]
        return self._chance.choice(fitting) if fitting else None

    def _sync(self, path: str) -> None:
        descriptor = os.open(self._place(path), os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def _write(self, path: str, flags: int = os.O_TRUNC) -> bool:
        """Write and close a file; returns whether its bytes and its name are durable."""
        self._contents += 1
        content, sync = noise(self._contents, self._chance.choice(SIZES)), self._decide()
        began = time.time()
        descriptor = os.open(self._place(path), os.O_WRONLY | os.O_CREAT | flags, 0o644)
        end = os.lseek(descriptor, 0, os.SEEK_END)
        for offset in range(0, len(content), 16 * 1024):
            os.pwrite(descriptor, content[offset : offset + 16 * 1024], end + offset)
        if sync:
            os.fsync(descriptor)
        os.close(descriptor)
        if sync:
            self._sync(os.path.dirname(path))
        self._tell(path, began, flags=Flags.CLOSED, is_promised=sync)
        return sync

    def _rename(self, source: str, target: str, *, is_synced: bool = False) -> None:
        began = time.time()
        self._place(source).rename(self._place(target))
        if is_synced:
            self._sync(os.path.dirname(target))
        self._tell(source, began)
        self._tell(target, began, is_promised=is_synced)

    # -- deeds --------------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if (path := self._file()) is not None:
            self._write(path)

    def _append(self) -> None:
        if (path := self._file(there=True)) is not None:
            self._write(path, 0)

    def _replace(self) -> None:
        """By way of another name."""
        if (path := self._file()) is not None:
            above, name = os.path.split(path)
            other = os.path.join(above, self._chance.choice(UNFINISHED).format(name))
            self._rename(other, path, is_synced=self._write(other) and self._decide())

    def _move(self) -> None:
        source, target = self._file(there=True), self._file()
        if source is not None and target is not None and source != target:
            self._rename(source, target)

    def _remove(self) -> None:
        if (path := self._file(there=True)) is not None:
            began = time.time()
            self._place(path).unlink()
            if self._decide():
                # That promises nothing: what is missing after a cut comes back from the log.
                self._sync(os.path.dirname(path))
            self._tell(path, began)

    def _make_directory(self) -> None:
        if missing := [path for path in DIRECTORIES if not self._place(path).exists()]:
            path, began = self._chance.choice(missing), time.time()
            self._place(path).mkdir()
            # What is synced in it is promised only with its own name.
            self._sync("")
            self._tell(path, began)

    def _remove_directory(self) -> None:
        places = [path for path in DIRECTORIES if self._place(path).is_dir()]
        if empty := [path for path in places if not any(self._place(path).iterdir())]:
            path, began = self._chance.choice(empty), time.time()
            self._place(path).rmdir()
            self._tell(path, began)

    def _move_directory(self) -> None:
        """With all that is in it."""
        there = [path for path in DIRECTORIES if self._place(path).is_dir()]
        missing = [path for path in DIRECTORIES if path not in there]
        if there and missing:
            source, target, began = self._chance.choice(there), self._chance.choice(missing), time.time()
            names = sorted(place.name for place in self._place(source).iterdir())
            self._place(source).rename(self._place(target))
            for above in (source, target):
                self._tell(above, began)
                for name in names:
                    self._tell(f"{above}/{name}", began)


def main(home: str, seed: str, steps: str, ending: str) -> None:
    """Work on the filesystem in a directory, and end."""
    replica = Replica(Path(home), [ROOT_KEY])
    filesystem = Filesystem(replica, Owners(os.getuid(), os.getgid(), keep=False), 0.0)
    Programs(replica, filesystem, int(seed)).run(int(steps))
    if ending == "close":
        filesystem.close()
        replica.close()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
