"""The worktree's parts, as publishing, receiving and scanning share them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from basefs.fs.disk import Disk
from basefs.fs.worktree.index import TreeIndex
from basefs.fs.worktree.machine import THIS_MACHINE, Machine
from basefs.fs.worktree.owners import Owners
from basefs.fs.worktree.pending import Pending
from basefs.fs.worktree.scratch import ScratchNames
from basefs.replica.replica import Replica


@dataclass(frozen=True, slots=True)
class Worktree:
    """A directory, its index, and the log that both are compared with.

    Attributes:
        pending: what the log has and the directory may not have yet.
        scratch: the names that never leave this node.
    """

    replica: Replica
    disk: Disk
    index: TreeIndex
    pending: Pending
    owners: Owners
    scratch: ScratchNames
    machine: Machine

    @classmethod
    def of(
        cls,
        replica: Replica,
        owners: Owners,
        scratch: ScratchNames,
        machine: Machine = THIS_MACHINE,
        wake: Callable[[], None] = lambda: None,
    ) -> Worktree:
        """That of a replica; `wake` is called where something has come.  Raises `OSError`."""
        disk = Disk(replica.directory, cached=True)
        return cls(replica, disk, TreeIndex(replica), Pending(replica, wake), owners, scratch, machine)
