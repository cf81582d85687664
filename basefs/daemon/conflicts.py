"""Conflicts as they begin: one log line and one event for each, on every node that receives both sides."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial

from basefs.daemon.api.history import HistoryServices
from basefs.daemon.api.messages import LostRevision
from basefs.errors import BaseFSError
from basefs.log.entries import Action
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.replica.applied import Applied
from basefs.replica.replica import Replica
from basefs.view.history import Survey

log = logging.getLogger(__name__)


#: Share of the time that surveys after grants and revokes may take: a key holder can sign any number of them.
_SHARE = 0.1


class ConflictWatch:
    """Examines what commits have touched, in a thread of its own.  Conflicts that are there at first are known.

    A grant or revoke may change who wins at its path, below it, and at the directories above, which count by what is in
    them.  All that have come since the last survey share the next one.
    """

    def __init__(self, replica: Replica, report: Callable[[LostRevision], None]) -> None:
        """`report` is called with each conflict that begins, in that thread."""
        self._replica = replica
        self._report = report
        self._history = HistoryServices(replica)
        #: Path -> the first entries of the branches that have lost there and are not settled.
        self._known: dict[Path, set[EntryHash]] = {}
        #: Guards what follows.
        self._changed = threading.Condition()
        self._touched: dict[EntryHash, None] = {}
        self._rights: dict[EntryHash, None] = {}
        self._is_idle = self._is_stopped = False
        #: When the next survey may begin, monotonic seconds.
        self._due = 0.0
        self._thread = threading.Thread(target=self._run, name="conflicts", daemon=True)
        replica.subscribe(self._applied)
        self._thread.start()

    def wait(self) -> None:
        """Return when all that was committed until now is examined, or was there at first."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle and not self._touched and not self._rights)

    def stop(self) -> None:
        """End the thread; what it has not examined is dropped."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _applied(self, applied: Applied) -> None:
        with self._changed:
            for entry in applied.entries:
                is_right = entry.action in (Action.GRANT, Action.REVOKE)
                (self._rights if is_right else self._touched)[entry.hash] = None
            self._touched.update(dict.fromkeys(applied.completed))
            self._changed.notify_all()

    def _run(self) -> None:
        _guarded(self._begin)
        while (work := self._next()) is not None:
            touched, rights = work
            _guarded(lambda touched=touched: self._examine(self._replica.competing_paths(touched)))  # type: ignore[misc]
            if rights:
                began = time.monotonic()
                _guarded(lambda rights=rights: self._survey(self._replica.paths_of(rights)))  # type: ignore[misc]
                self._due = time.monotonic() + (time.monotonic() - began) * (1 / _SHARE - 1)

    def _next(self) -> tuple[Collection[EntryHash], Collection[EntryHash]] | None:
        """What is to be examined, and the grants and revokes after which to look around; `None` at the end."""
        with self._changed:
            while not self._is_stopped:
                left = self._due - time.monotonic()
                touched, rights = self._touched, self._rights if left <= 0 else {}
                if touched or rights:
                    self._touched = {}
                    if rights:
                        self._rights = {}
                    self._is_idle = False
                    return touched, rights
                self._is_idle = True
                self._changed.notify_all()
                self._changed.wait(max(left, 0.0) if self._rights else None)
        return None

    def _begin(self) -> None:
        for path in self._replica.forked_paths():
            self._take(path)

    def _survey(self, places: Collection[Path]) -> None:
        """Examine all paths at which these have a say."""
        tops = set(places)
        above = {top[:depth] for top in tops for depth in range(len(top))}
        self._examine(
            path
            for path in self._replica.forked_paths()
            if path in above or any(path[:depth] in tops for depth in range(len(path) + 1))
        )

    def _examine(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if self._is_stopped:
                return
            # What fails at one path must not hide the others.
            _guarded(partial(self._examine_one, path))

    def _examine_one(self, path: Path) -> None:
        if self._take(path):
            for conflict in self._history.conflicts_at(path):
                _log(conflict)
                self._report(conflict)

    def _take(self, path: Path) -> bool:
        """Look at a path; returns whether a conflict has begun there."""
        found = {conflict.branch.first for conflict in self._replica.examine(path, Survey.conflicts)}
        known = self._known.pop(path, set())
        if found:
            self._known[path] = found
        return bool(found - known)


def _guarded(work: Callable[[], None]) -> None:
    try:
        work()
    except BaseFSError as error:
        log.error("cannot look for conflicts: %s", error)
    except Exception:
        # The thread goes on.
        log.exception("cannot look for conflicts")


def _log(conflict: LostRevision) -> None:
    lost, won = (f"{row.entry[:12]} by {row.key or row.fingerprint}" for row in (conflict.lost, conflict.won))
    log.info("conflict at %s: %s lost to %s, by %s", conflict.path, lost, won, conflict.rule)
