"""Removed names that may be given to another file in a moment: until then nobody else needs to know."""

from __future__ import annotations

from collections.abc import Callable

from basefs.fs.staging.overlay import MISSING, Overlay
from basefs.path import Path
from basefs.view.states import Kind

#: Seconds for which a name stays unpublished after libfuse took it away from an open file: the rename that gives it to
#: another one comes with the same system call.
HIDE_SECONDS = 0.05
#: Seconds for which the removal of a file whose content got a scratch name waits for the new content, and a new file
#: with a temporary name for its real one.  Tools need milliseconds, on a busy machine more than the quiet window.
RENAME_SECONDS = 1.0


class Vacancies:
    """The names of one working set; whoever calls holds its lock."""

    def __init__(self, overlay: Overlay, note_gone: Callable[[Path], bool], steady: Callable[[], float]) -> None:
        """`note_gone`: makes durable that a name is gone for good, and returns whether it is; `steady`: seconds."""
        self._overlay = overlay
        self._note_gone = note_gone
        self._steady = steady
        #: Until when, on the steady clock.
        self._until: dict[Path, float] = {}
        #: Those of them that are known to be gone after a crash, too.
        self._noted: set[Path] = set()

    def __contains__(self, path: Path) -> bool:
        """Whether a name may be given to another file."""
        return path in self._until

    def keep(self, path: Path, seconds: float, *, noted: bool = False) -> None:
        """A name is gone, or about to be, and probably given to another file before so many seconds have passed.

        `noted`: that it is gone is durable already.
        """
        self._until[path] = self._steady() + seconds
        if noted:
            self._noted.add(path)

    def filled(self, path: Path) -> None:
        """A name is given to a file."""
        self._until.pop(path, None)
        self._noted.discard(path)

    def end(self) -> None:
        """Wait for none of them."""
        for path in list(self._until):
            self._end(path)

    def until(self, path: Path, now: float) -> float:
        """Until when a name may be given to another file, 0 if that is over (seconds, steady clock)."""
        until = self._until.get(path, 0.0)
        if until > now and not self._is_covered(path):
            return until
        if path in self:
            self._end(path)
        return 0.0

    def note(self, path: Path) -> None:
        """Make durable that a name is gone, if it is, though it may still be given to another file."""
        if path in self and path not in self._noted and self._overlay.get(path) is None and self._note_gone(path):
            self._noted.add(path)

    def _end(self, path: Path) -> None:
        self.note(path)
        self.filled(path)

    def _is_covered(self, path: Path) -> bool:
        """Whether a directory above was removed, too: nothing comes back there, and what it holds has to go first."""
        above = self._overlay.along(path[:-1])[1:]
        return any(slot is None or (slot is not MISSING and slot.kind is not Kind.DIRECTORY) for slot in above)
