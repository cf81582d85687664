"""Bringing back what was: one path, or a directory with all below it.

A revert is an entry like any other, so it can be reverted as well, and nothing of the history is lost.  A tree is
brought back by supposing: what differs from the past is reverted or removed, the result is supposed and compared
again, until it is the past tree.  Most often once is enough; a directory that was made anew meanwhile takes two rounds,
because the names of its first incarnation show only when that is back.
"""

from __future__ import annotations

from dataclasses import replace

from basefs.errors import IncompleteContent, NotADirectory, NotFound, NotPermitted
from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash
from basefs.log.store import Store
from basefs.view.changes import visible
from basefs.view.draft import Draft
from basefs.view.names import Names, display
from basefs.view.node import Node
from basefs.view.outcome import Outcome
from basefs.view.signer import Signer
from basefs.view.states import encode_mode
from basefs.view.supposing import subtree, supposed
from basefs.view.tree import Tree


class Reverter:
    """Drafts reverts.  Nothing here changes the log."""

    def __init__(self, store: Store, tree: Tree, signer: Signer) -> None:
        self._store = store
        self._tree = tree
        self._signer = signer

    def path(self, names: Names, target: EntryHash) -> Draft:
        """Make a path again what it was after one of its entries; a deleted path comes back.

        Raises `NotFound` if that is no entry of the path or its directory is gone, `NotPermitted` for the root
        directory and for grants and revokes, `IncompleteContent` while content is missing, `PermissionDenied`.
        """
        if not names:
            raise NotPermitted("the root directory has no other state: revert what is in it")
        directory = self._signer.node(names[:-1])
        if not directory.is_directory:
            raise NotADirectory(f"{display(names[:-1])} is not a directory")
        survey = self._tree.survey(names)
        found = next((r for r in survey.revisions() if r.entry.hash == target), None) if survey is not None else None
        if survey is None or survey.outcome is None or found is None:
            raise NotFound(f"{target.hex()[:12]} is no revision of {display(names)}: 'basefs log' lists them")
        if found.state is None:
            raise NotPermitted(f"{target.hex()[:12]} is not a state of {display(names)} that can come back")
        if not found.state.complete:
            raise IncompleteContent(f"the content of {target.hex()[:12]} has not arrived yet")
        return Draft(self._follow(names, survey.outcome, Action.REVERT, target))

    def _follow(self, names: Names, outcome: Outcome, action: Action, target: EntryHash | None = None) -> list[Entry]:
        """An entry behind every tip of a path.  Raises `PermissionDenied`."""
        entries = []
        for tip, authority in zip(outcome.tips, outcome.authorities, strict=True):
            if tip.hash != target:
                key = self._signer.signer(authority, names)
                entries.append(key.sign(tip.hash, self._signer.now(), action, tip.name, target or b""))
        return entries

    def tree(self, names: Names, sequence: int) -> Draft:
        """Make a path and all below it again what they were when an entry had just arrived here.

        Args:
            names: a directory, now or then; or any other path.
            sequence: number of the entry in the order of arrival on this node.

        Raises `NotFound` if nothing was there, and `PermissionDenied` if any of it cannot be brought back.
        """
        with self._store.as_of(sequence):
            then = Tree(self._store, self._tree.resolver)
            past = subtree(then, names)
        if not past:
            raise NotFound(f"nothing was at {display(names)} then")
        entries: list[Entry] = []
        # Each round brings back at least one level.
        for _ in range(2 + max((len(path) for path in past), default=0)):
            with supposed(self._store, self._tree.resolver, entries) as tree:
                found = self._round(tree, names, past)
            if not found:
                break
            entries.extend(found)
        return Draft(entries)

    def _round(self, tree: Tree, names: Names, past: dict[Names, Node]) -> list[Entry]:
        """The entries that bring a tree nearer to the past."""
        entries: list[Entry] = []
        now = subtree(tree, names)
        for path in sorted(past.keys() & now.keys() | past.keys() - now.keys(), key=lambda path: (len(path), path)):
            node, was = now.get(path), past[path]
            if node is not None and _alike(node.outcome, was.outcome):
                continue
            if not path:
                entries.append(self._root_mode(now[()], was))
                continue
            above = tree.find(path[:-1])
            if above is None or not above.is_directory:
                if path == names:
                    raise NotFound(f"{display(path[:-1])} is gone: revert that first")
                continue
            outcome = tree.absent(above, path[-1]) if node is None else node.outcome
            target = was.outcome.tips[0].hash
            if outcome is not None:
                entries.extend(self._follow(path, outcome, Action.REVERT, target))
        for path in sorted(now.keys() - past.keys(), key=len, reverse=True):
            if path:
                entries.extend(self._follow(path, now[path].outcome, Action.DELETE))
        return entries

    def _root_mode(self, now: Node, then: Node) -> Entry:
        """The root directory cannot be reverted, but have its mode and owner again."""
        key = self._signer.signer(now.outcome.authorities[0], ())
        tip = now.outcome.tips[0]
        content = encode_mode(then.state.mode, then.state.owner)
        return key.sign(tip.hash, self._signer.now(), Action.MODE, tip.name, content)


def _alike(now: Outcome, then: Outcome) -> bool:
    """Whether a path is the same but for the time of the last change, which a revert is itself.

    A directory that was made anew is another one: what was in the first one is not in it.
    """
    same_state = replace(visible(now.state), mtime=0) == replace(visible(then.state), mtime=0)
    return same_state and set(then.directories) <= set(now.directories)
