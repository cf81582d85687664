"""What the view showed when somebody last asked, so that who asks again need not wait for a batch that is arriving.

Invariant: whoever holds the replica's lock while no transaction is under way finds here what the view shows, or
nothing.  Who looks without the lock sees the view as it was before or after the transaction under way, never between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from basefs.path import Path

T = TypeVar("T")

#: Paths that are remembered, about 300 bytes each; all are forgotten when there are more.
MAX_SHOWN = 65_536


class Shown(Generic[T]):
    """Answers by path.  `get` may be called by any thread, everything else by who holds the replica's lock."""

    def __init__(self) -> None:
        self._known: dict[Path, T] = {}

    def get(self, path: Path) -> T | None:
        """What was shown at a path; `None` if that is not known."""
        return self._known.get(path)

    def put(self, path: Path, answer: T) -> None:
        """Remember what is shown at a path."""
        if len(self._known) >= MAX_SHOWN:
            self._known.clear()
        self._known[path] = answer

    def among(self, changed: Iterable[Path]) -> list[Path]:
        """Those that are remembered, of these paths and their directories."""
        paths = dict.fromkeys(one for path in changed for one in (path, path[:-1]))
        return [path for path in paths if path in self._known]

    def forget(self, changed: Iterable[Path]) -> None:
        """These paths have changed, and with each the time of its directory."""
        for path in changed:
            self._known.pop(path, None)
            self._known.pop(path[:-1], None)

    def clear(self) -> None:
        """Anything may have changed."""
        self._known.clear()

    def items(self) -> Iterator[tuple[Path, T]]:
        """All that is remembered."""
        yield from list(self._known.items())
