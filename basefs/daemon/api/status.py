"""What commands can ask about the state of a whole filesystem on this node."""

from __future__ import annotations

from typing import Any

from basefs.daemon.api.history import PastServices
from basefs.path import to_text
from basefs.replica.replica import Replica

Json = Any


class StatusServices:
    """Sizes and state in few words."""

    #: How many conflicts there were when the log had this Merkle hash.
    _counted: tuple[bytes, int] | None = None

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def do_summary(self) -> Json:
        """Identity, Merkle hash and sizes."""
        return {
            "identity": self._replica.identity.hex(),
            "root_hash": self._replica.root_hash().hex(),
            "damaged": self._replica.damaged,
            **self._replica.totals(),
        }

    def do_status(self) -> Json:
        """The summary, and what has come last, is incomplete, has lost, and where this node's keys may write.

        May be called in any thread; the replica's lock is held for one path at a time.
        """
        mine = {key.fingerprint for key in self._replica.keys}
        granted = self._replica.plan(lambda author: author.past.grants())
        found = {
            "latest": self._latest(),
            "incomplete": len(self._replica.incomplete()),
            "conflicts": self._conflicts(),
            "keys": len(mine),
            "writable": sorted(
                {to_text(one.path) for one in granted if one.standing == "valid" and one.fingerprint in mine}
            ),
        }
        # Last, since it also tells of the damage that was met on the way.
        return {**self.do_summary(), **found}

    def _conflicts(self) -> int:
        """The number of conflicts, counted anew only when the log has changed."""
        root = self._replica.root_hash()
        if self._counted is None or self._counted[0] != root:
            self._counted = root, PastServices(self._replica).count_conflicts()
        return self._counted[1]

    def _latest(self) -> Json:
        """The entry that came last."""
        found = self._replica.plan(lambda author: author.past.latest())
        if found is None:
            return None
        return {
            "path": to_text(found.path),
            "entry": found.entry.hash.hex(),
            "action": found.entry.action.name.lower(),
            "key": self._replica.key_names().get(found.entry.fingerprint),
            "fingerprint": found.entry.fingerprint.hex(),
            "time": found.entry.timestamp,
            "arrived": found.time,
        }
