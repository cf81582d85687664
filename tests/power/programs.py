"""What programs do on a mount, told to a history."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from tests.power.history import History
from tests.support.helpers import noise

#: Bytes of the contents: in the journal, in a spool file, in blocks that are stored before their entry.
SIZES = (0, 10, 3000, 9000, 9000, 40_000, 40_000, 200_000)
#: Seconds between two steps: some are published together, others before the next one begins.
PAUSES = (0.0, 0.0, 0.0, 0.01, 0.06, 0.15)
FILES = ("a", "b", "c", "old/d", "old/e", "new/f", "new/g")
DIRECTORIES = ("old", "new", "other")
#: What a program calls a file that it has not finished; the first ones never leave the node.
UNFINISHED = ("{}~", ".{}.swp", "{}.tmp")


class Programs:
    """Programs at work on a mount."""

    def __init__(self, point: Path, history: History, seed: int) -> None:
        self._point = point
        self._history = history
        self._chance = random.Random(seed)
        self._contents = seed * 1000

    def run(self, steps: int) -> None:
        """Do something, so many times."""
        todo = [self.save] * 5 + [self.replace] * 4 + [self.append, self.remove, self.move, self.back_up] * 2
        todo += [self.move_directory] * 2 + [self.replace_open, self.make_directory, self.remove_directory]
        for _ in range(steps):
            self._chance.choice(todo)()
            time.sleep(self._chance.choice(PAUSES))

    def _content(self) -> bytes:
        self._contents += 1
        return noise(self._contents, self._chance.choice(SIZES))

    def _is_there(self, path: str) -> bool:
        return path in self._history.now_at()

    def _file(self, *, there: bool | None = None) -> str | None:
        """A file whose directory is there, and which is itself, or not."""
        now = self._history.now_at()
        fitting = [
            path
            for path in FILES
            if ("/" not in path or path.rpartition("/")[0] in now) and (there is None or there == (path in now))
        ]
        return self._chance.choice(fitting) if fitting else None

    def _write(self, path: str, content: bytes, *, sync: bool, flags: int = os.O_TRUNC) -> None:
        began = self._history.now()
        descriptor = os.open(self._point / path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
        try:
            before = self._history.now_at().get(path, b"") if flags & os.O_APPEND else b""
            for offset in range(0, len(content), 16 * 1024):
                os.write(descriptor, content[offset : offset + 16 * 1024])
            if sync:
                os.fsync(descriptor)
                self._history.set(path, before + content, began)
                self._history.synced(path)
        finally:
            os.close(descriptor)
        if not sync:
            self._history.set(path, before + content, began)

    def _sync_directory(self, path: str) -> None:
        above = path.rpartition("/")[0]
        descriptor = os.open(self._point / above, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._history.synced_names(other for other in self._history.paths() if other.rpartition("/")[0] == above)

    def _decide(self) -> bool:
        return self._chance.random() < 0.5

    def save(self) -> None:
        """In place."""
        path = self._file()
        if path is not None:
            self._write(path, self._content(), sync=self._decide())

    def append(self) -> None:
        """To the end, as a log does."""
        path = self._file()
        if path is not None:
            self._write(path, self._content(), sync=self._decide(), flags=os.O_APPEND)

    def replace(self) -> None:
        """By way of another name."""
        path = self._file()
        if path is None:
            return
        above, slash, name = path.rpartition("/")
        other = above + slash + self._chance.choice(UNFINISHED).format(name)
        self._write(other, self._content(), sync=self._decide())
        self._rename(other, path)
        if self._decide():
            self._sync_directory(path)

    def replace_open(self) -> None:
        """By a file that is closed after it has the name, while others are saved."""
        path = self._file(there=True)
        if path is None:
            return
        began, content = self._history.now(), self._content()
        descriptor = os.open(self._point / f"{path}.new", os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, content)
            (self._point / f"{path}.new").rename(self._point / path)
            other = self._file()
            if other is not None and other != path:
                self._write(other, self._content(), sync=True)
        finally:
            os.close(descriptor)
        self._history.set(path, content, began)

    def back_up(self) -> None:
        """What was there is moved aside before."""
        path = self._file(there=True)
        if path is not None:
            self._rename(path, f"{path}~")
            self._write(path, self._content(), sync=self._decide())

    def _rename(self, source: str, target: str) -> None:
        began = self._history.now()
        (self._point / source).rename(self._point / target)
        self._history.moved(source, target, began)

    def move(self) -> None:
        """Another name for a file."""
        source, target = self._file(there=True), self._file()
        if source is not None and target is not None and source != target:
            self._rename(source, target)

    def remove(self) -> None:
        """A file goes."""
        path = self._file(there=True)
        if path is not None:
            began = self._history.now()
            (self._point / path).unlink()
            self._history.set(path, None, began)
            if self._decide():
                self._sync_directory(path)

    def make_directory(self) -> None:
        """A new one."""
        missing = [path for path in DIRECTORIES if not self._is_there(path)]
        if missing:
            path = self._chance.choice(missing)
            began = self._history.now()
            (self._point / path).mkdir()
            self._history.set(path, path.encode(), began)

    def remove_directory(self) -> None:
        """An empty one."""
        now = self._history.now_at()
        empty = [path for path in DIRECTORIES if path in now and not any(p.startswith(f"{path}/") for p in now)]
        if empty:
            path = self._chance.choice(empty)
            began = self._history.now()
            (self._point / path).rmdir()
            self._history.set(path, None, began)

    def move_directory(self) -> None:
        """With all that is in it."""
        there = [path for path in DIRECTORIES if self._is_there(path)]
        missing = [path for path in DIRECTORIES if not self._is_there(path)]
        if there and missing:
            self._rename(self._chance.choice(there), self._chance.choice(missing))
            if self._decide():
                self._sync_directory(missing[0])
