"""Conflicts as they begin: one log line and one event for each, on every node that receives both sides."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

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


class ConflictWatch:
    """Examines what commits have touched, in a thread of its own.  Conflicts that are there at first are known."""

    def __init__(self, replica: Replica, report: Callable[[LostRevision], None]) -> None:
        """`report` is called with each conflict that begins, in that thread."""
        self._replica = replica
        self._report = report
        self._history = HistoryServices(replica)
        #: Path -> the first entries of the branches that have lost there and are not settled.
        self._known: dict[Path, set[EntryHash]] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="conflicts")
        self._submit(self._begin)
        replica.subscribe(self._applied)

    def wait(self) -> None:
        """Return when all that was committed until now is examined, or was there at first."""
        self._worker.submit(lambda: None).result()

    def stop(self) -> None:
        """End the thread; what it has not examined is dropped."""
        self._worker.shutdown(cancel_futures=True)

    def _submit(self, work: Callable[[], None]) -> None:
        # It is shut down when the daemon ends.
        with contextlib.suppress(RuntimeError):
            self._worker.submit(_guarded, work)

    def _applied(self, applied: Applied) -> None:
        touched = [*(entry.hash for entry in applied.entries), *applied.completed]
        if any(entry.action in (Action.GRANT, Action.REVOKE) for entry in applied.entries):
            # Who wins may change everywhere below.
            self._submit(lambda: self._examine(self._replica.forked_paths()))
        elif touched:
            self._submit(lambda: self._examine(self._replica.competing_paths(touched)))

    def _begin(self) -> None:
        for path in self._replica.forked_paths():
            self._take(path)

    def _examine(self, paths: Iterable[Path]) -> None:
        for path in paths:
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
        # The pool keeps what a task raises to itself.
        log.exception("cannot look for conflicts")


def _log(conflict: LostRevision) -> None:
    lost, won = (f"{row.entry[:12]} by {row.key or row.fingerprint}" for row in (conflict.lost, conflict.won))
    log.info("conflict at %s: %s lost to %s, by %s", conflict.path, lost, won, conflict.rule)
