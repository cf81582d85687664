"""Plans: what a grant, a revoke or a revert changes, as messages."""

from __future__ import annotations

from collections.abc import Sequence

from basefs.daemon.api.messages import PathChange, PathState
from basefs.path import to_text
from basefs.view.supposing import Difference
from basefs.view.tree import Node


def path_changes(changed: Sequence[Difference]) -> list[PathChange]:
    """The paths that a plan changes, those above first."""
    return [PathChange(to_text(change.path), _state(change.before), _state(change.after)) for change in changed]


def _state(node: Node | None) -> PathState | None:
    return None if node is None else PathState(node.state.kind.value, node.state.size, node.outcome.tips[0].hash.hex())
