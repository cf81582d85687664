"""Reverting to an earlier state: one path, or a directory with everything below it.

A revert is an entry like any other, so it can be reverted as well, and nothing of the history is lost.  A tree is
restored by supposing: differences from the past are reverted or removed, the result is supposed and compared again,
until it is the past tree.  Most often once is enough; a directory that was made anew meanwhile takes two rounds,
because the names of its first incarnation show only when that is back.

Entries of a key that was revoked may have ceased to count, so that the path does not end with them.  A revert behind
one makes it count again.
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
from basefs.view.history import RevisionStatus, Survey, survey
from basefs.view.permissions import Authority
from basefs.view.signer import Signer
from basefs.view.states import Kind, State, encode_mode, encode_xattrs
from basefs.view.supposing import Difference, affected, differences, subtree, supposed
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


@dataclass(frozen=True, slots=True)
class _Goal:
    """What the restore of a tree is to lead to.

    Attributes:
        top: the path that is restored, with everything below it.
        past: what was there.
        keep_new: whether nothing is removed that is there now and was not then.
        new: what that is; empty where it does not stay.
    """

    top: Path
    past: dict[Path, Node]
    keep_new: bool
    new: dict[Path, Node]


class Reverter:
    """Drafts reverts.  Nothing here changes the log."""

    def __init__(self, store: Store, tree: Tree, signer: Signer) -> None:
        self._store = store
        self._tree = tree
        self._signer = signer

    def plan(self, path: Path, draft: Draft) -> RevertPlan:
        """What a revert of a path does."""
        top = affected(self._tree, path)
        before = subtree(self._tree, top)
        with supposed(self._store, self._tree.resolver, draft.entries) as tree:
            return RevertPlan(draft, differences(before, subtree(tree, top)))

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
        outcome = None if found is None else found.outcome
        for revision in [] if found is None else found.revisions():
            entry, state = revision.entry, revision.state
            if state is not None and state.kind is Kind.DIRECTORY:
                if outcome is None:
                    return self._behind(tree, path, [entry], state)
                if revision.standing is RevisionStatus.LAST:
                    return self._restore(tree, path, outcome, entry.hash, state)
        if outcome is None:
            raise NotFound(f"the log has nothing at {display(path)}")
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
        if revision.standing is RevisionStatus.GONE:
            raise NotFound(
                f"{target.hex()[:12]} belongs to an earlier directory {display(path[:-1])}, which was deleted: "
                f"restore that with '--at {target.hex()[:12]} --keep-new'"
            )
        if revision.state is None:
            raise NotPermitted(f"{target.hex()[:12]} cannot be restored: it is not a version of {display(path)}")
        # A withheld content comes once a revert that counts names it.
        if not revision.state.complete and revision.standing is not RevisionStatus.WITHHELD:
            raise IncompleteContent(f"the content of {target.hex()[:12]} has not arrived yet")
        # A version that has lost may look the same: to bring it back settles the conflict.
        if revision.standing is not RevisionStatus.LOST and _shows(found.outcome, revision.state):
            return []
        if found.outcome is None:
            return self._behind(tree, path, [revision.entry], revision.state)
        entries = self._restore(tree, path, found.outcome, target, revision.state)
        if revision.state.kind is Kind.ABSENT:
            # What has lost to the object that goes would take its place.
            entries += self._removed(tree, path, besides=found.outcome.tips)
        return entries

    def accept(self, path: Path) -> Draft:
        """End the losing branches of a path with the state of the winner, so that no conflict is left.

        The state of the path stays the same regardless of which of these entries a node has, and of which branch wins
        then.

        Raises `NotFound` if nothing ever was there, `PermissionDenied`.
        """
        found = survey(self._store, self._tree, path)
        if found is None:
            raise NotFound(f"the log has nothing at {display(path)}")
        entries = []
        for conflict in found.conflicts():
            won = conflict.won.hash
            entries.extend(self._restore(self._tree, path, conflict.branch.outcome(), won, found.states[won]))
        return Draft(entries)

    def _restore(self, tree: Tree, path: Path, outcome: Outcome, target: EntryHash, state: State) -> list[Entry]:
        """The entries that give a path a state, that after `target`, with the time that the file had then.

        Raises `PermissionDenied`.
        """
        entries: list[Entry] = []
        for tip, authority in zip(outcome.tips, outcome.authorities, strict=True):
            entries.extend(self._again(tree, path, tip, authority, target, state))
        return entries

    def _behind(self, tree: Tree, path: Path, ends: Sequence[Entry], state: State) -> list[Entry]:
        """The entries that bring back what a path was at entries that it does not end with, also if these do not count.

        Each follows its own end, and not what the path ends with.  None in a directory that is not there.  Raises
        `PermissionDenied`.
        """
        above, path_id = tree.find(path[:-1]), self._store.paths.id_of(path)
        assert above is not None and path_id is not None, "the path has entries, and its directory is there"
        found, directory = self._store.entries_at(path_id), above.outcome.as_directory(len(path))
        entries: list[Entry] = []
        for end in ends:
            outcome = tree.resolver.past(found, directory, end.hash)
            if outcome is not None:
                entries.extend(self._again(tree, path, end, outcome.authority, self._made(end), state, is_shown=False))
        return entries

    def _again(
        self,
        tree: Tree,
        path: Path,
        tip: Entry,
        authority: Authority,
        target: EntryHash,
        state: State,
        *,
        is_shown: bool = True,
    ) -> list[Entry]:
        """What follows a tip for a path to have a state again, that after `target`; nothing where the tip shows that.

        `is_shown`: whether the tip shows anything.  Raises `PermissionDenied`.
        """
        mtime = None if state.kind is Kind.ABSENT else state.mtime
        is_again = tip.hash == target or (tip.action, tip.content, tip.mtime) == (Action.REVERT, target, mtime)
        if is_shown and is_again:
            return []
        return [self._signed(path, tip, authority, Action.REVERT, target, mtime)]

    def tree(self, path: Path, sequence: int, *, keep_new: bool = False) -> Draft:
        """Restore a path and everything below it to the moment at which an entry had just arrived here.

        Args:
            path: a directory, now or then; or any other path.
            sequence: number of the entry in the order of arrival on this node.
            keep_new: remove nothing that is there now and was not then, also where something else was in its place.

        Raises `NotFound` if nothing was there, and `PermissionDenied` if any of it cannot be brought back.
        """
        past = self._past(path, sequence)
        if not past:
            raise NotFound(f"nothing was at {display(path)} then")
        now = subtree(self._tree, path) if keep_new else {}
        goal = _Goal(path, past, keep_new, {at: node for at, node in now.items() if at not in past})
        entries: list[Entry] = []
        # Each round brings back at least one level.
        for _ in range(5 + max((len(at) for at in past), default=0)):
            with supposed(self._store, self._tree.resolver, entries) as tree:
                found = self._round(tree, goal)
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

    def _round(self, tree: Tree, goal: _Goal) -> list[Entry]:
        """The entries that bring a tree nearer to the goal."""
        entries: list[Entry] = []
        past, now = goal.past, subtree(tree, goal.top)
        for at in sorted(past, key=lambda at: (len(at), at)):
            entries.extend(self._nearer(tree, goal, at, now.get(at), past[at]))
        for at in () if goal.keep_new else sorted(now.keys() - past.keys(), key=len, reverse=True):
            if at:
                entries.extend(self._removed(tree, at))
        # A rewound branch ends with a removal, and may now win a conflict that it had lost: what is new comes back.
        for at in sorted(goal.new.keys() - now.keys(), key=len):
            entries.extend(self._nearer(tree, goal, at, None, goal.new[at]))
        return entries

    def _nearer(self, tree: Tree, goal: _Goal, path: Path, node: Node | None, was: Node) -> list[Entry]:
        """The entries that bring one path nearer to what it was."""
        if node is not None and _alike(node.outcome, was.outcome):
            return []
        if node is not None and goal.keep_new and (node.is_directory or was.is_directory):
            both = node.is_directory and was.is_directory
            return self._joined(tree, path, node.outcome, was.outcome) if both else []
        if node is not None and (not path or _is_merged_again(node.outcome, was.outcome)):
            return self._modes(path, node.outcome, was.state)
        above = tree.find(path[:-1])
        if above is None or not above.is_directory:
            if path == goal.top:
                raise NotFound(f"{display(path[:-1])} does not exist: revert that first")
            return []
        outcome = tree.absent(above, path[-1]) if node is None else node.outcome
        if outcome is None:
            return self._behind(tree, path, was.outcome.tips, was.state)
        return self._back(tree, path, outcome, was.outcome)

    def _back(self, tree: Tree, path: Path, now: Outcome, then: Outcome) -> list[Entry]:
        """The reverts that restore a path.

        Of a merged directory each branch goes back to its own end: names hang on the branch in which they were made.
        """
        first = self._made(then.tips[0])
        if len(then.directories) < 2:
            return self._restore(tree, path, now, first, then.state)
        begun = self._survey(tree, path).begun
        entries: list[Entry] = []
        followed: set[EntryHash] = set()
        for end in then.tips:
            branch = begun.get(end.hash)
            if branch is None:
                entries.extend(self._behind(tree, path, [end], then.state))
            else:
                there = branch.outcome()
                entries.extend(self._restore(tree, path, there, self._made(end), then.state))
                followed.update(tip.hash for tip in there.tips)
        for tip, authority in zip(now.tips, now.authorities, strict=True):
            if tip.hash not in followed:
                other = now._replace(tips=(tip,), authorities=(authority,))
                entries.extend(self._restore(tree, path, other, first, then.state))
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
        """The entries that merge a directory with what it was: what is not shown any more comes back beside it."""
        if set(then.directories) <= set(now.directories):
            return self._modes(path, now, then.state)
        found = self._survey(tree, path)
        entries: list[Entry] = []
        for end in then.tips:
            made = self._made(end)
            state, branch = found.states.get(made), found.begun.get(end.hash)
            if state is None or state.origin in now.directories:
                continue
            there = None if branch is None else branch.outcome()
            if there is None or not set(now.tips).isdisjoint(there.tips):
                # Behind its end, beside the branch that leads to what is shown, if one does.
                entries.extend(self._behind(tree, path, [end], then.state))
            else:
                entries.extend(self._restore(tree, path, there, made, then.state))
        return entries

    def _survey(self, tree: Tree, path: Path) -> Survey:
        """All that is known of a path that was live."""
        found = survey(self._store, tree, path)
        assert found is not None, "it has entries"
        return found

    def _removed(self, tree: Tree, path: Path, besides: Sequence[Entry] = ()) -> list[Entry]:
        """The entries that remove a path, behind all of its live ends but these.  Raises `PermissionDenied`."""
        node, followed = tree.find(path), {entry.hash for entry in besides}
        shown = () if node is None else node.outcome.tips
        entries: list[Entry] = []
        for hash, authority in tree.live_ends(path).items():
            placed = self._store.get(hash)
            if hash in followed or placed is None:
                continue
            # A key that may not end what has lost leaves it: that is no reason to keep the rest.
            if placed.entry in shown or self._signer.may_write(authority):
                entries.append(self._signed(path, placed.entry, authority, Action.DELETE))
        return entries

    def _modes(self, path: Path, now: Outcome, then: State) -> list[Entry]:
        """The entries that give a directory its mode, owner, time and extended attributes again.

        For one that cannot or need not be reverted.
        """
        entries: list[Entry] = []
        for tip, authority in zip(now.tips, now.authorities, strict=True):
            mode = encode_mode(then.mode, then.owner)
            entries.append(self._signed(path, tip, authority, Action.MODE, mode, then.mtime))
            if now.state.xattrs != then.xattrs:
                xattrs = encode_xattrs(then.xattrs)
                entries.append(self._signed(path, entries[-1], authority, Action.XATTR, xattrs))
        return entries

    def _signed(
        self,
        path: Path,
        tip: Entry,
        authority: Authority,
        action: Action,
        content: bytes = b"",
        mtime: int | None = None,
    ) -> Entry:
        """An entry behind a tip of a path; `mtime`: nanoseconds, `None` is now.  Raises `PermissionDenied`."""
        key = self._signer.key_for(authority, path)
        return key.sign(tip.hash, self._signer.now(), action, tip.name, content, Extensions(mtime=mtime))


def _is_merged_again(now: Outcome, then: Outcome) -> bool:
    """Whether a directory that was merged from several branches is merged from them now."""
    return len(then.directories) > 1 and set(then.directories) <= set(now.directories)


def _alike(now: Outcome, then: Outcome) -> bool:
    """Whether a path is the same, its mode, owner and time included.

    A directory that was created again is another one: it does not hold the contents of the first one.
    """
    return visible(now.state) == visible(then.state) and set(then.directories) <= set(now.directories)


def _shows(now: Outcome | None, state: State) -> bool:
    """Whether a path is what it was after one of its revisions; a directory: the same one, among those merged."""
    if now is None or state.kind is Kind.ABSENT:
        return (Kind.ABSENT if now is None else now.state.kind) is state.kind
    same_directory = state.kind is not Kind.DIRECTORY or state.origin in now.directories
    return same_directory and visible(now.state) == visible(state)
