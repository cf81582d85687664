"""How soon a change is everywhere where nothing goes wrong: sessions that compare would hide that a push was lost."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.loop import Loop
from tests.simulation.node import Node

#: Seconds within which each node has a change: less than from one periodic session to the next.
LATEST = 4.0


class Soon:
    """Notes when a change was there first, and looks whether all nodes have it in time.

    Attributes:
        found: what is late.
    """

    def __init__(self, loop: Loop, nodes: Sequence[Node]) -> None:
        self._loop, self._nodes = loop, nodes
        self._counts = {node.host: len(node.entries) for node in nodes}
        #: Entries that some node lacks, and since when they are somewhere.
        self._since: dict[bytes, float] = {}
        self.found: list[str] = []

    def committed(self, node: Node) -> None:
        """The log of a node has grown."""
        for hash in list(node.entries)[self._counts[node.host] :]:
            self._since.setdefault(hash, self._loop.time())
            if all(hash in other.entries for other in self._nodes):
                del self._since[hash]
        self._counts[node.host] = len(node.entries)

    def now(self) -> None:
        """At any time: what some node lacks is new."""
        late = [hash for hash, since in self._since.items() if self._loop.time() - since > LATEST]
        self.found += [f"some node lacks {hash.hex()[:8]} after {LATEST:g} s" for hash in late]
