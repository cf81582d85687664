"""What the view showed when somebody last asked, so that who asks again need not wait for a batch that is arriving.

Invariant: whoever holds the replica's lock while no transaction is under way finds here what the view shows, or
nothing.  Who looks without the lock sees the view as it was before or after the transaction under way, never between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from basefs.path import Names

T = TypeVar("T")

#: Paths that are remembered, about 300 bytes each; all are forgotten when there are more.
MAX_SHOWN = 65_536


class Shown(Generic[T]):
    """Answers by path.  `get` may be called by any thread, everything else by who holds the replica's lock."""

    def __init__(self) -> None:
        self._known: dict[Names, T] = {}

    def get(self, names: Names) -> T | None:
        """What was shown at a path; `None` if that is not known."""
        return self._known.get(names)

    def put(self, names: Names, answer: T) -> None:
        """Remember what is shown at a path."""
        if len(self._known) >= MAX_SHOWN:
            self._known.clear()
        self._known[names] = answer

    def among(self, changed: Iterable[Names]) -> list[Names]:
        """Those that are remembered, of these paths and their directories."""
        paths = dict.fromkeys(path for names in changed for path in (names, names[:-1]))
        return [names for names in paths if names in self._known]

    def forget(self, changed: Iterable[Names]) -> None:
        """These paths have changed, and with each the time of its directory."""
        for names in changed:
            self._known.pop(names, None)
            self._known.pop(names[:-1], None)

    def clear(self) -> None:
        """Anything may have changed."""
        self._known.clear()

    def items(self) -> Iterator[tuple[Names, T]]:
        """All that is remembered."""
        yield from list(self._known.items())
