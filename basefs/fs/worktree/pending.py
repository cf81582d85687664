"""What the view may show otherwise than the worktree: paths that are to be looked at, and brought to the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from basefs.fs.worktree.index import above, to_bytes
from basefs.log.hashes import EntryHash
from basefs.replica.replica import Applied, Replica


class Pending:
    """A queue of paths: directories before what they hold, removals afterwards and from below.  Thread-safe.

    Attributes:
        applied: the number of the entry up to which the worktree shows all, but for what is in the queue or in a row
            as `coming`.
    """

    def __init__(self, replica: Replica, wake: Callable[[], None]) -> None:
        """`wake` is called where something has come."""
        self._replica = replica
        self._wake = wake
        self._lock = threading.Lock()
        #: Path -> whether all below it is to be looked at as well.
        self._incoming: dict[bytes, bool] = {}
        self._order: list[bytes] = []
        self._leaving: set[bytes] = set()
        self._postponed: set[bytes] = set()
        #: What was delivered, and the number of the last entry whose path is in the queue.
        self._delivered = self._queued = self.applied = 0
        self._completed: list[EntryHash] = []
        self._taken_completed: list[EntryHash] = []

    def begin(self, applied: int, completed: Iterable[EntryHash]) -> None:
        """Take up what has come since the worktree showed all up to an entry."""
        with self._lock:
            self.applied = self._queued = applied
            self._delivered = max(self._delivered, self._replica.entry_count)
            if applied:
                self._completed += completed
            else:
                self._queued = self._delivered
                self._taken_completed += completed
                self._incoming[b"/"] = True

    def on_applied(self, applied: Applied) -> None:
        """The log has changed."""
        with self._lock:
            self._delivered = max(self._delivered, applied.last)
            self._completed += applied.completed
        self._wake()

    def add(self, paths: Iterable[bytes], *, deep: bool = False) -> None:
        """Look at paths."""
        with self._lock:
            for path in paths:
                self._incoming[path] = self._incoming.get(path, False) or deep

    def leave(self, path: bytes) -> None:
        """Look at a directory that is to go once nothing is in it."""
        with self._lock:
            self._leaving.add(path)

    def postpone(self, path: bytes) -> None:
        """A path cannot be brought to the disk now."""
        with self._lock:
            self._postponed.add(path)

    def retry(self, paths: Iterable[bytes] | None = None) -> None:
        """Something has changed at paths, or (`None`) anywhere: try what was postponed at, above and below them."""
        with self._lock:
            if not self._postponed:
                return
            found = set(self._postponed)
            if paths is not None:
                changed = set(paths)
                around = {up for path in changed for up in (path, above(path))}
                found = {path for path in found if path in around or any(up in changed for up in _upwards(path))}
            self._postponed -= found
            self._incoming.update((path, False) for path in found if path not in self._incoming)
        if found:
            self._wake()

    def retry_one(self, path: bytes) -> None:
        """Try a path again, if it was postponed."""
        with self._lock:
            if path in self._postponed:
                self._postponed.remove(path)
                self._incoming.setdefault(path, False)

    def is_pending(self, path: bytes) -> bool:
        """Whether the view may show something else at a path."""
        return path in self._incoming or path in self._leaving or path in self._postponed

    @property
    def has_work(self) -> bool:
        """Whether something is to be looked at now."""
        return bool(self._incoming or self._order or self._leaving or self._completed) or self._delivered > self._queued

    def take(self, most: int) -> tuple[dict[bytes, bool], bool]:
        """The next paths, and whether directories among them may go now; empty if there are none."""
        self._arrive()
        with self._lock:
            if not self._order and self._incoming:
                self._order = sorted(self._incoming, reverse=True)
            if self._order:
                paths = [self._order.pop() for _ in range(min(most, len(self._order)))]
                return {path: self._incoming.pop(path, False) for path in paths}, False
            paths = sorted(self._leaving, reverse=True)[:most]
            self._leaving.difference_update(paths)
            return dict.fromkeys(paths, False), True

    def _arrive(self) -> None:
        with self._lock:
            behind, delivered, completed = self._queued, self._delivered, self._completed
            self._completed = []
            if delivered <= behind and not completed:
                return
        found = self._replica.arrived(behind, completed)
        with self._lock:
            for path, deep in found.items():
                text = to_bytes(path)
                self._incoming[text] = self._incoming.get(text, False) or deep
                for up in _upwards(text):
                    self._incoming.setdefault(up, False)
            self._queued = delivered
            self._taken_completed += completed

    def finish(self) -> tuple[int, list[EntryHash]] | None:
        """The entry up to which all was looked at, and the writes that were; `None` while there is more."""
        with self._lock:
            if self.has_work:
                return None
            done, self._taken_completed = self._taken_completed, []
            self.applied = self._queued
            return self._queued, done


def _upwards(path: bytes) -> list[bytes]:
    """The directories above a path."""
    found = []
    while path != b"/":
        path = above(path)
        found.append(path)
    return found
