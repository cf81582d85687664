"""What must be true: at any time, and at the end."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any, cast

from basefs.errors import IncompleteContent
from basefs.log.entries import Action
from basefs.log.hashes import BlockHash, EntryHash
from basefs.path import display
from basefs.view.states import Kind
from tests.simulation.mount import Saves, digest
from tests.simulation.node import Node
from tests.support.helpers import STRANGER
from tests.view.test_oracle import oracle_of
from tests.view.test_oracle import shown as shown_by


class Checks:
    """Looks at all nodes from outside.

    Attributes:
        found: what is not as it must be.
    """

    def __init__(self, nodes: list[Node], *, loses_contents: bool, is_closed: bool = False) -> None:
        """`nodes`: all; others may be added.  `is_closed`: whether only members need be equal in the end.

        `loses_contents`: whether a node may forget what it has told others of, as an old backup makes it do.
        """
        self._nodes = nodes
        self._is_closed = is_closed
        self._loses_contents = loses_contents
        #: What was seen of whole logs, and where: entries and what was shown by root hash, and root hashes by entries.
        self._logs: dict[bytes, tuple[str, frozenset[bytes]]] = {}
        self._roots: dict[frozenset[bytes], tuple[str, bytes]] = {}
        self._views: dict[bytes, tuple[str, dict[str, str]]] = {}
        self._seen: dict[str, bytes] = {}
        self._rebuilt: dict[str, bytes] = {}
        self.found: list[str] = []

    def committed(self, node: Node) -> None:
        """After each change of a log: equal root hashes mean equal logs."""
        if node.running:
            self._compare(node)

    def now(self) -> None:
        """At any time: no node accuses or bans another one, and equal logs have equal hashes and show the same."""
        for node in self._nodes:
            self.found += node.accusations + node.watched.accusations
            node.accusations.clear()
            node.watched.accusations.clear()
            self.found += [f"{node.host} tells of changes: {what}" for what in node.heard.found]
            node.heard.found.clear()
            if not node.running:
                continue
            for other in self._nodes:
                if node.sync.banned_for((other.host, other.sync.port)) is not None:
                    self.found.append(f"{node.host} has banned {other.host}")
            self._compare(node)
            self._compare_views(node)

    def _compare_views(self, node: Node) -> None:
        root = node.replica.root_hash()
        if self._rebuilt.get(node.host) != root:
            self._rebuilt[node.host] = root
            self.found += self._stale(node)
            self.found += [f"{node.host} has not told of {display(path)}" for path in node.heard.differs()[:1]]
        # As nodes compare themselves: the root hash does not tell of a content that may turn out to be needed.
        if self._seen.get(node.host) == root or node.replica.digest().missing:
            return
        self._seen[node.host] = root
        shown = self._shown(node, contents=False)
        other, known = self._views.setdefault(root, (node.host, shown))
        if known != shown:
            differ = sorted({path for path, _ in known.items() ^ shown.items()})
            self.found.append(f"{node.host} and {other} have equal logs and differ at {' '.join(differ)}")

    @staticmethod
    def _stale(node: Node) -> list[str]:
        wrong = node.replica.check_view()
        return [f"{node.host} shows something else than a rebuilt view at {display(path)}" for path in wrong[:1]]

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
        other, root = self._roots.setdefault(entries, (node.host, node.replica.root_hash()))
        if root != node.replica.root_hash():
            self.found.append(f"{node.host} and {other} have the same {len(entries)} entries and other root hashes")

    @property
    def _alike(self) -> list[Node]:
        """The nodes that must be equal in the end: in a closed filesystem the members, as the first node sees it."""
        if not self._is_closed:
            return self._nodes
        members = self._nodes[0].replica.members()
        return [node for node in self._nodes if node.keys[0].public in members]

    def difference(self) -> str:
        """How the nodes differ, "" if they do not."""
        if found := self.log_difference():
            return found
        for node in self._alike:
            if differing := node.differing():
                return f"{node.host} shows something else on its mount at {display(differing[0])}"
        return ""

    def log_difference(self) -> str:
        """How their logs differ."""
        nodes = self._alike
        everything = frozenset[bytes]().union(*(node.entries for node in nodes))
        for node in nodes:
            if lacking := len(everything) - len(node.entries):
                return f"{node.host} lacks {lacking} of {len(everything)} entries"
            wanted = node.replica.missing_blocks(100)
            if missing := [hash for _, hash in wanted if self._must_come(hash)]:
                return f"{node.host} lacks blocks of {len(missing)} contents"
            if not wanted and node.replica.digest().missing:
                return f"{node.host} does not know which contents it needs"
        if len({node.replica.root_hash() for node in nodes}) > 1:
            return "root hashes differ"
        return ""

    def _must_come(self, block: BlockHash) -> bool:
        """Whether a node that lacks a block must get it from others."""
        may_be_lost = self._loses_contents or any(block in node.cut for node in self._nodes)
        return not may_be_lost or any(node.replica.block(block) is not None for node in self._alike)

    def lost(self, saves: Saves) -> list[str]:
        """The contents that programs have saved and nobody has removed, and that are neither in a log nor on a disk."""
        found = set[str]()
        for node in self._nodes:
            if node.is_mounted:
                found |= node.mount.contents()
            for entry in node.entries.values():
                if entry.action is Action.WRITE:
                    with contextlib.suppress(IncompleteContent):
                        found.add(digest(node.replica.content_at(entry.hash)))
        return saves.missing(found)

    def end(self, written: Mapping[EntryHash, bytes]) -> list[str]:
        """Of nodes that do not differ: what they show, and who signed it; `written`: contents of users, by entry."""
        found = []
        first, nodes = self._nodes[0], self._alike
        shown = {node.host: self._shown(node, contents=True) for node in nodes}
        for node in nodes:
            if any(entry.fingerprint == STRANGER.fingerprint for entry in node.entries.values()):
                found.append(f"{node.host} has taken an entry of a key that was never granted")
            if shown[node.host] != shown[first.host]:
                differ = [path for path, _ in shown[node.host].items() ^ shown[first.host].items()]
                found.append(f"{node.host} and {first.host} show something else at {' '.join(sorted(differ))}")
            found += self._stale(node)
        oracle = oracle_of(cast(Any, first))
        if shown_by(first.replica) != oracle.tree():
            found.append(f"{first.host} shows something else than the rules say")
        if first.replica.members() != oracle.members():
            found.append(f"{first.host} has other members than the rules say")
        return found + self._forged(first, written)

    @staticmethod
    def _forged(node: Node, written: Mapping[EntryHash, bytes]) -> list[str]:
        """The files whose content is not what a user has written."""
        found = []
        for path, _ in node.replica.live_paths():
            content = written.get(node.replica.attributes(path).content or EntryHash(b""))
            with contextlib.suppress(IncompleteContent):
                if content is not None and node.replica.read(path) != content:
                    found.append(f"{node.host} shows something else at {display(path)} than what was written")
        return found

    @staticmethod
    def _shown(node: Node, *, contents: bool) -> dict[str, str]:
        """Each live path, and all that is the same on each node; `contents`: also what can be read."""
        shown = {}
        for path, kind in node.replica.live_paths():
            attributes = node.replica.attributes(path)
            content = b""
            if contents and kind is not Kind.DIRECTORY:
                with contextlib.suppress(IncompleteContent):
                    content = node.replica.read(path)
            time = 0 if kind is Kind.DIRECTORY else attributes.mtime
            facts = (kind, attributes.mode, attributes.owner, attributes.size, attributes.entry, time)
            shown[display(path)] = f"{facts} {hashlib.sha224(content).hexdigest()}"
        return shown
