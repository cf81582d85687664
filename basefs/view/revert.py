"""Reverting to an earlier state: one path, or a directory with everything below it.

A revert is an entry like any other, so it can be reverted as well, and nothing of the history is lost.  A tree is
restored by supposing: differences from the past are reverted or removed, the result is supposed and compared again,
until it is the past tree.  Most often once is enough; a directory that was made anew meanwhile takes two rounds,
because the names of its first incarnation show only when that is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from basefs.errors import IncompleteContent, NotADirectory, NotFound, NotPermitted
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash
from basefs.log.store import Store
from basefs.path import Path, display
from basefs.view.changes import visible
from basefs.view.draft import Draft
from basefs.view.history import RevisionStatus, survey
from basefs.view.leaving import leave
from basefs.view.signer import Signer
from basefs.view.states import Kind, State, encode_mode
from basefs.view.supposing import Difference, affected, differences, reach, subtree, supposed
from basefs.view.tree import Node, Tree
from basefs.view.walk import Outcome


@dataclass(frozen=True, slots=True)
class RevertPlan:
    """The effect of a revert: its entries, none if there is nothing to do, and the paths that it changes."""

    draft: Draft
    changed: Sequence[Difference]

    @property
    def deleted(self) -> int:
        """The number of paths that it removes."""
        return sum(change.after is None for change in self.changed)


class Reverter:
    """Drafts reverts.  Nothing here changes the log."""

    def __init__(self, store: Store, tree: Tree, signer: Signer) -> None:
        self._store = store
        self._tree = tree
        self._signer = signer

    def plan(self, path: Path, draft: Draft) -> RevertPlan:
        """What a revert of a path does."""
        top = affected(self._tree, path)
        before = reach(self._store, self._tree, top)
        with supposed(self._store, self._tree.resolver, draft.entries) as tree:
            return RevertPlan(draft, differences(before, reach(self._store, tree, top)))

    def path(self, path: Path, target: EntryHash) -> Draft:
        """Restore the state of a path after one of its entries; a deleted path comes back.

        So do the directories above that were removed, with nothing else in them.

        Raises `NotFound` if that is no entry of the path, `NotADirectory` if something else is in place of a directory
        above, `NotPermitted` for the root directory and for grants and revokes, `IncompleteContent` while content is
        missing, `PermissionDenied`.
        """
        if not path:
            raise NotPermitted("the root directory itself cannot be reverted: give --at, or a path in it")
        if self._tree.find(path[:-1]) is not None:
            return Draft(self._path(self._tree, path, target))
        above: list[Entry] = []
        for depth in range(1, len(path)):
            with supposed(self._store, self._tree.resolver, above) as tree:
                above.extend(self._directory(tree, path[:depth]))
        with supposed(self._store, self._tree.resolver, above) as tree:
            return Draft([*above, *self._path(tree, path, target)])

    def _directory(self, tree: Tree, path: Path) -> list[Entry]:
        """The entry that brings a removed directory back; none if it is there.  Its directory is there."""
        if tree.find(path) is not None:
            return []
        above = tree.find(path[:-1])
        if above is None or not above.is_directory:
            raise NotADirectory(f"{display(path[:-1])} is not a directory")
        found = survey(self._store, tree, path)
        if found is None or found.outcome is None:
            raise NotFound(f"the log has nothing at {display(path)}")
        for revision in found.revisions():
            if revision.standing is RevisionStatus.LAST and revision.state and revision.state.kind is Kind.DIRECTORY:
                return self._restore(path, found.outcome, revision.entry.hash, revision.state)
        raise NotADirectory(f"{display(path)} was no directory when it was removed")

    def _path(self, tree: Tree, path: Path, target: EntryHash) -> list[Entry]:
        """The entries that restore a path whose directory exists."""
        above = tree.find(path[:-1])
        if above is None or not above.is_directory:
            raise NotADirectory(f"{display(path[:-1])} is not a directory")
        found = survey(self._store, tree, path)
        revision = next((r for r in found.revisions() if r.entry.hash == target), None) if found is not None else None
        if found is None or revision is None:
            raise NotFound(f"{target.hex()[:12]} is not a revision of {display(path)}: 'basefs log' lists them")
        if found.outcome is None or revision.standing is RevisionStatus.GONE:
            raise NotFound(
                f"{target.hex()[:12]} belongs to an earlier directory {display(path[:-1])}, which was deleted: "
                f"restore that with '--at {target.hex()[:12]} --keep-new'"
            )
        if revision.state is None:
            raise NotPermitted(f"{target.hex()[:12]} cannot be restored: it is not a version of {display(path)}")
        # A withheld content comes once a revert that counts names it.
        if not revision.state.complete and revision.standing not in (RevisionStatus.WITHHELD, RevisionStatus.OVER):
            raise IncompleteContent(f"the content of {target.hex()[:12]} has not arrived yet")
        # A version that has lost may look the same: to bring it back settles the conflict.
        if revision.standing is not RevisionStatus.LOST and _shows(found.outcome, revision.state):
            return []
        return [
            *self._left(tree, path, revision.state, path),
            *self._restore(path, found.outcome, target, revision.state),
        ]

    def _left(self, tree: Tree, path: Path, state: State | None, top: Path) -> list[Entry]:
        """The entries by which a file goes on under its other names, if this becomes the state of its first one."""
        node = tree.find(path)
        if node is None or (state is not None and state.origin == node.state.origin):
            return []
        return leave(tree, self._signer, path, node, top)

    def accept(self, path: Path) -> Draft:
        """End the losing branches of a path with the state of the winner, so that no conflict is left.

        The state of the path stays the same regardless of which of these entries a node has, and of which branch wins
        then.  A branch that another name of the file still shows is left as it is.

        Raises `NotFound` if nothing ever was there, `PermissionDenied`.
        """
        found = survey(self._store, self._tree, path)
        if found is None:
            raise NotFound(f"the log has nothing at {display(path)}")
        path_id = self._store.paths.id_of(path)
        linked = set() if path_id is None else {node.state.link for _, node in self._tree.links(path_id)}
        entries = []
        for conflict in found.conflicts():
            if linked & found.branch_of(conflict):
                continue
            won = conflict.won.hash
            entries.extend(self._restore(path, conflict.branch.outcome(), won, found.states[won]))
        return Draft(entries)

    def _restore(self, path: Path, outcome: Outcome, target: EntryHash, state: State) -> list[Entry]:
        """The reverts that give a path a state, that after `target`, with the time that the file had then."""
        mtime = None if state.kind is Kind.ABSENT else state.mtime
        return self._follow(path, outcome, Action.REVERT, target, mtime=mtime)

    def _follow(
        self, path: Path, outcome: Outcome, action: Action, target: EntryHash | None = None, *, mtime: int | None = None
    ) -> list[Entry]:
        """An entry behind every tip of a path; `mtime`: nanoseconds, `None` is now.  Raises `PermissionDenied`."""
        entries = []
        for tip, authority in zip(outcome.tips, outcome.authorities, strict=True):
            if tip.hash != target:
                key = self._signer.key_for(authority, path)
                extensions = Extensions(mtime=mtime)
                entries.append(key.sign(tip.hash, self._signer.now(), action, tip.name, target or b"", extensions))
        return entries

    def tree(self, path: Path, sequence: int, *, keep_new: bool = False) -> Draft:
        """Restore a path and everything below it to the moment at which an entry had just arrived here.

        Args:
            path: a directory, now or then; or any other path.
            sequence: number of the entry in the order of arrival on this node.
            keep_new: leave what is there now and was not then, also where something else was in its place.

        Raises `NotFound` if nothing was there, and `PermissionDenied` if any of it cannot be brought back.
        """
        past = self._past(path, sequence)
        if not past:
            raise NotFound(f"nothing was at {display(path)} then")
        entries: list[Entry] = []
        # Each round brings back at least one level.
        for _ in range(2 + max((len(at) for at in past), default=0)):
            with supposed(self._store, self._tree.resolver, entries) as tree:
                found = self._round(tree, path, past, keep_new=keep_new)
            if not found:
                break
            entries.extend(found)
        return Draft(entries)

    def kept(self, path: Path, sequence: int, draft: Draft) -> list[Path]:
        """Where `tree` with `keep_new` leaves a directory in the place of something else, or the other way round."""
        past = self._past(path, sequence)
        with supposed(self._store, self._tree.resolver, draft.entries) as tree:
            now = subtree(tree, path)
        return sorted(at for at in past.keys() & now.keys() if past[at].is_directory != now[at].is_directory)

    def _past(self, path: Path, sequence: int) -> dict[Path, Node]:
        with self._store.as_of(sequence):
            return subtree(Tree(self._store, self._tree.resolver), path)

    def _round(self, tree: Tree, path: Path, past: dict[Path, Node], *, keep_new: bool) -> list[Entry]:
        """The entries that bring a tree nearer to the past."""
        entries: list[Entry] = []
        now = subtree(tree, path)
        for at in sorted(past.keys() & now.keys() | past.keys() - now.keys(), key=lambda at: (len(at), at)):
            node, was = now.get(at), past[at]
            if node is not None and _alike(node.outcome, was.outcome):
                continue
            if node is not None and keep_new and (node.is_directory or was.is_directory):
                if node.is_directory and was.is_directory:
                    entries.extend(self._joined(tree, at, node.outcome, was.outcome))
                continue
            if node is not None and (not at or _is_merged_again(node.outcome, was.outcome)):
                entries.extend(self._modes(at, node.outcome, was.state))
                continue
            above = tree.find(at[:-1])
            if above is None or not above.is_directory:
                if at == path:
                    raise NotFound(f"{display(at[:-1])} does not exist: revert that first")
                continue
            outcome = tree.absent(above, at[-1]) if node is None else node.outcome
            if outcome is not None:
                entries.extend(self._left(tree, at, was.state, path))
                entries.extend(self._back(tree, at, outcome, was.outcome))
        for at in () if keep_new else sorted(now.keys() - past.keys(), key=len, reverse=True):
            if at:
                entries.extend(self._left(tree, at, None, path))
                entries.extend(self._follow(at, now[at].outcome, Action.DELETE))
        return entries

    def _back(self, tree: Tree, path: Path, now: Outcome, then: Outcome) -> list[Entry]:
        """The reverts that restore a path.

        Of a merged directory each branch goes back to its own end: names hang on the branch in which they were made.
        """
        first = self._made(then.tips[0])
        if len(then.directories) < 2:
            return self._restore(path, now, first, then.state)
        found = survey(self._store, tree, path)
        entries: list[Entry] = []
        followed: set[EntryHash] = set()
        for end in then.tips:
            branch = None if found is None else found.begun.get(end.hash)
            if branch is not None:
                there = branch.outcome()
                entries.extend(self._restore(path, there, self._made(end), then.state))
                followed.update(tip.hash for tip in there.tips)
        for tip, authority in zip(now.tips, now.authorities, strict=True):
            if tip.hash not in followed:
                other = now._replace(tips=(tip,), authorities=(authority,))
                entries.extend(self._restore(path, other, first, then.state))
        return entries

    def _made(self, end: Entry) -> EntryHash:
        """The entry that made what was shown at the end of a branch: a directory may outlive its own removal.

        It is shown while there is something in it, and to revert to the removal would not bring it back.
        """
        entry = end
        while entry.action is Action.DELETE and (placed := self._store.get(EntryHash(entry.parent))) is not None:
            entry = placed.entry
        return entry.hash

    def _joined(self, tree: Tree, path: Path, now: Outcome, then: Outcome) -> list[Entry]:
        """The entries that merge a directory with what it was: behind its removal it comes back beside the new one."""
        if set(then.directories) <= set(now.directories):
            return self._modes(path, now, then.state)
        above, path_id = tree.find(path[:-1]), self._store.paths.id_of(path)
        assert above is not None and path_id is not None, "the path is live"
        found = self._store.entries_at(path_id)
        removal = tree.resolver.past(found, above.outcome.as_directory(len(path)), None)
        if removal is None:
            return [] if visible(now.state) == visible(then.state) else self._modes(path, now, then.state)
        return [entry for tip in then.tips for entry in self._restore(path, removal, self._made(tip), then.state)]

    def _modes(self, path: Path, now: Outcome, then: State) -> list[Entry]:
        """The mode entries that give a directory its mode, owner and time again.

        For one that cannot or need not be reverted.
        """
        content, extensions = encode_mode(then.mode, then.owner), Extensions(mtime=then.mtime)
        return [
            self._signer.key_for(authority, path).sign(
                tip.hash, self._signer.now(), Action.MODE, tip.name, content, extensions
            )
            for tip, authority in zip(now.tips, now.authorities, strict=True)
        ]


def _is_merged_again(now: Outcome, then: Outcome) -> bool:
    """Whether a directory that was merged from several branches is merged from them now."""
    return len(then.directories) > 1 and set(then.directories) <= set(now.directories)


def _alike(now: Outcome, then: Outcome) -> bool:
    """Whether a path is the same, its mode, owner and time included.

    A directory that was created again is another one: it does not hold the contents of the first one.
    """
    return visible(now.state) == visible(then.state) and set(then.directories) <= set(now.directories)


def _shows(now: Outcome, state: State) -> bool:
    """Whether a path is what it was after one of its revisions; a directory: the same one, among those merged."""
    if state.kind is Kind.ABSENT:
        return now.state.kind is Kind.ABSENT
    same_directory = state.kind is not Kind.DIRECTORY or state.origin in now.directories
    return same_directory and visible(now.state) == visible(state)
