"""A node of the live tree."""

from __future__ import annotations

from basefs.view.outcome import Outcome
from basefs.view.permissions import Authority
from basefs.view.states import Kind, State


class Node:
    """One live path.

    Attributes:
        name: last component; empty for the root.
        path_id: id of the path in the store.
        outcome: what the path is, and what its next entry builds on.
        children: live names below a directory, or `None` while not loaded.
        touched: UNIX seconds of the last change of the names in a directory that this node saw; 0 while there is none
            since the directory's own last entry, which may have set its time.
    """

    __slots__ = ("children", "name", "outcome", "path_id", "touched")

    def __init__(self, name: bytes, path_id: int, outcome: Outcome) -> None:
        self.name = name
        self.path_id = path_id
        self.outcome = outcome
        self.children: dict[bytes, Node] | None = None
        self.touched = 0

    @property
    def state(self) -> State:
        """What is at the path."""
        return self.outcome.state

    @property
    def authority(self) -> Authority:
        """The keys valid at the path."""
        return self.outcome.authority

    @property
    def is_directory(self) -> bool:
        """Whether the path is a directory."""
        return self.outcome.state.kind is Kind.DIRECTORY
