"""What a subscriber makes of the changes that a replica tells it of, as kernel caches, handlers and watchers do."""

from __future__ import annotations

from basefs.path import Path, display
from basefs.replica.replica import Applied, Replica
from basefs.view.changes import visible
from basefs.view.states import State


class Heard:
    """The live paths as one subscriber knows them.

    Attributes:
        found: changes that began with something else than what was there.
    """

    def __init__(self, replica: Replica) -> None:
        """It hears of all changes from now on."""
        self._replica = replica
        self._known: dict[Path, State] = {}
        self.found: list[str] = []
        replica.subscribe(self._changed)
        for portion in replica.observed():
            self._known.update((path, visible(state)) for path, state, _ in portion)

    def _changed(self, applied: Applied) -> None:
        for change in applied.changes:
            before = None if change.before is None else visible(change.before)
            if before != self._known.get(change.path):
                self.found.append(f"a change of {display(change.path)} begins with something else than what was there")
            if change.after is None:
                self._known.pop(change.path, None)
            else:
                self._known[change.path] = visible(change.after)

    def differs(self) -> list[Path]:
        """The paths that are not as this subscriber knows them."""
        live = {path: visible(node.state) for path, node in self._replica._tree.walk()}
        return sorted(path for path in live.keys() | self._known.keys() if live.get(path) != self._known.get(path))
