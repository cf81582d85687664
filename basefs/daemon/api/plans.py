"""Plans: what a grant, a revoke or a revert changes, as messages."""

from __future__ import annotations

from collections.abc import Sequence

from basefs.daemon.api.messages import PathVersions, Version
from basefs.daemon.api.versions import version_of
from basefs.path import to_text
from basefs.view.supposing import Difference
from basefs.view.tree import Node


def path_changes(changed: Sequence[Difference]) -> list[PathVersions]:
    """The paths that a plan changes, those above first."""
    return [PathVersions(to_text(change.path), _version(change.before), _version(change.after)) for change in changed]


def _version(node: Node | None) -> Version | None:
    return None if node is None else version_of(node.state, node.outcome.tips[0])
