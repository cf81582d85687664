"""What must be true: at any time, and at the end."""

from __future__ import annotations

import hashlib
from typing import Any, cast

from basefs.path import display
from basefs.view.states import Kind
from tests.simulation.node import Node
from tests.support.helpers import STRANGER
from tests.view.test_oracle import oracle_of
from tests.view.test_oracle import shown as shown_by


class Checks:
    """Looks at all nodes from outside.

    Attributes:
        found: what is not as it must be.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._hosts = [node.host for node in nodes]
        self._logs: dict[bytes, tuple[str, frozenset[bytes]]] = {}
        self.found: list[str] = []

    def now(self) -> None:
        """At any time: no node accuses or bans another one, and equal hashes mean equal logs."""
        for node in self._nodes:
            self.found += node.accusations + node.watched.accusations
            node.accusations.clear()
            node.watched.accusations.clear()
            if not node.running:
                continue
            for other in self._nodes:
                if node.sync.banned_for((other.host, other.sync.port)) is not None:
                    self.found.append(f"{node.host} has banned {other.host}")
            self._compare(node)

    def _compare(self, node: Node) -> None:
        entries = frozenset(node.entries)
        if node.replica.digest().entries != len(entries):
            number = node.replica.digest().entries
            self.found.append(f"{node.host} has a log of {number} entries, and {len(entries)} were accepted")
        if node.replica.missing_blocks(1):
            # What is arriving is not in the hash.
            return
        other, known = self._logs.setdefault(node.replica.root_hash(), (node.host, entries))
        if known != entries:
            lacks, more = sorted(known - entries), sorted(entries - known)
            which = " ".join(["-" + hash.hex()[:8] for hash in lacks] + ["+" + hash.hex()[:8] for hash in more])
            self.found.append(f"{node.host} and {other} have the same root hash and other entries: {which}")

    def difference(self) -> str:
        """How the nodes differ, "" if they do not."""
        everything = frozenset[bytes]().union(*(node.entries for node in self._nodes))
        for node in self._nodes:
            if lacking := len(everything) - len(node.entries):
                return f"{node.host} lacks {lacking} of {len(everything)} entries"
            if missing := node.replica.missing_blocks(100):
                return f"{node.host} lacks blocks of {len(missing)} contents"
        if len({node.replica.root_hash() for node in self._nodes}) > 1:
            return "root hashes differ"
        return ""

    def end(self) -> list[str]:
        """Of nodes that do not differ: what they show, and who signed it."""
        found = []
        first = self._nodes[0]
        shown = {node.host: self._shown(node) for node in self._nodes}
        for node in self._nodes:
            if any(entry.fingerprint == STRANGER.fingerprint for entry in node.entries.values()):
                found.append(f"{node.host} has taken an entry of a key that was never granted")
            if shown[node.host] != shown[first.host]:
                differ = [path for path, _ in shown[node.host].items() ^ shown[first.host].items()]
                found.append(f"{node.host} and {first.host} show something else at {' '.join(sorted(differ))}")
            if wrong := node.replica.check_view():
                found.append(f"{node.host} shows something else than a rebuilt view at {display(wrong[0])}")
        if shown_by(first.replica) != oracle_of(cast(Any, first)).tree():
            found.append(f"{first.host} shows something else than the rules say")
        return found

    @staticmethod
    def _shown(node: Node) -> dict[str, str]:
        """Each live path, and all that is the same on each node."""
        shown = {}
        for path, kind in node.replica.live_paths():
            attributes = node.replica.attributes(path)
            content = b"" if kind is Kind.DIRECTORY else node.replica.read(path)
            time = 0 if kind is Kind.DIRECTORY else attributes.mtime
            facts = (kind, attributes.mode, attributes.owner, attributes.size, attributes.links, attributes.entry, time)
            shown[display(path)] = f"{facts} {hashlib.sha224(content).hexdigest()}"
        return shown
