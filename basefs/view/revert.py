"""Reverting to an earlier state: one path, or a directory with everything below it.

A revert is an entry like any other, so it can be reverted as well, and nothing of the history is lost.  A tree is
restored by supposing: differences from the past are reverted or removed, the result is supposed and compared again,
until it is the past tree.  Most often once is enough; a directory that was made anew meanwhile takes two rounds,
because the names of its first incarnation show only when that is back.

Entries of a key that was revoked may have ceased to count, so that the path does not end with them.  A revert behind
one makes it count again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from basefs.view.leaving import leave
from basefs.view.permissions import Authority
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
        if not revision.state.complete and revision.standing not in (RevisionStatus.WITHHELD, RevisionStatus.OVER):
            raise IncompleteContent(f"the content of {target.hex()[:12]} has not arrived yet")
        # A version that has lost may look the same: to bring it back settles the conflict.
        if revision.standing is not RevisionStatus.LOST and _shows(found.outcome, revision.state):
            return []
        if found.outcome is None:
            return self._behind(tree, path, [revision.entry], revision.state)
        return [
            *self._left(tree, path, revision.state, path),
            *self._restore(tree, path, found.outcome, target, revision.state),
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
            outcome = tree.resolver.past(found, directory, [end.hash])
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
        resolver = self._tree.resolver
        if state.link is not None and not _same_file(resolver.state_after(target), state):
            shown = resolver.state_after(tip.hash)
            if is_shown and _same_file(shown, state):
                return [] if _same_attributes(shown, state) else [self._mode(path, tip, authority, state)]
            linked = self._linked(tree, path, tip, authority, state)
            if linked:
                return linked
        mtime = None if state.kind is Kind.ABSENT else state.mtime
        is_again = tip.hash == target or (tip.action, tip.content, tip.mtime) == (Action.REVERT, target, mtime)
        if is_shown and is_again:
            return []
        return [self._signed(path, tip, authority, Action.REVERT, target, mtime)]

    def _linked(self, tree: Tree, path: Path, tip: Entry, authority: Authority, state: State) -> list[Entry]:
        """A new link behind a tip by which a path is the name of a file again; nothing if no link shows that state.

        The former link shows another state where its key may no longer write at the first name.  So it does where the
        first name was removed and has come back: it follows the file as that has gone on without it.
        """
        resolver = self._tree.resolver
        for key in self._signer.valid(authority):
            for target, is_moved in self._targets(tree, path, state):
                draft, now = Draft(), self._signer.now()
                link = key.sign(tip.hash, now, Action.LINK, tip.name, target, Extensions(is_moved=is_moved))
                placed = self._store.place(link)
                shown = None if placed is None else resolver.named(placed)
                if shown is not None and _same_file(shown, state):
                    draft.entries.append(link)
                    draft.follow_with_mode(key, link, shown, state.mode, state.owner, state.mtime)
                    return draft.entries
        return []

    def _targets(self, tree: Tree, path: Path, state: State) -> Iterator[tuple[EntryHash, bool]]:
        """The entries by which a link may show a state again, and whether with the mark of a move."""
        is_moved = state.shared is not None
        if state.link is not None:
            yield state.link, is_moved
        if (first := tree.find(tree.first_name(state) or path)) is not None:
            yield tree.end_of(first), False
        # Follows no key that is granted at the first name only.
        yield _version(state), True
        if (rewound := self._last_revert_to(_version(state))) is not None:
            yield rewound.hash, is_moved

    def tree(self, path: Path, sequence: int, *, keep_new: bool = False) -> Draft:
        """Restore a path and everything below it to the moment at which an entry had just arrived here.

        Args:
            path: a directory, now or then; or any other path.
            sequence: number of the entry in the order of arrival on this node.
            keep_new: remove nothing that is there now and was not then, also where something else was in its place.  A
                new path that is the first name of a file which goes back goes back with it.

        Raises `NotFound` if nothing was there, and `PermissionDenied` if any of it cannot be brought back.
        """
        past = self._past(path, sequence)
        if not past:
            raise NotFound(f"nothing was at {display(path)} then")
        now = subtree(self._tree, path) if keep_new else {}
        goal = _Goal(path, past, keep_new, {at: node for at, node in now.items() if at not in past})
        entries: list[Entry] = []
        # Each round brings back at least one level, and the last ones hard links.
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
        restored: set[Path] = set()
        # What a hard link shows is known once the first name of its file is back.
        for at in sorted(past, key=lambda at: (past[at].state.link is not None, len(at), at)):
            was = past[at]
            if was.state.link is None or tree.first_name(was.state) not in restored:
                found = self._nearer(tree, goal, at, now.get(at), was)
                if found:
                    restored.add(at)
                    entries.extend(found)
        for at in () if goal.keep_new else sorted(now.keys() - past.keys(), key=len, reverse=True):
            if at:
                entries.extend(self._left(tree, at, None, goal.top))
                entries.extend(self._removed(at, now[at].outcome))
        # A rewound branch ends with a removal, and may now win a conflict that it had lost: what is new comes back.
        for at in sorted(goal.new.keys() - now.keys(), key=len):
            entries.extend(self._nearer(tree, goal, at, None, goal.new[at]))
        return entries or self._rewind_links(tree, goal, now)

    def _rewind_links(self, tree: Tree, goal: _Goal, now: dict[Path, Node]) -> list[Entry]:
        """The entries that hard links need to show what they did, where nothing else is left to do."""
        files: dict[EntryHash, State] = {}
        for at, was in goal.past.items():
            node = now.get(at)
            is_done = node is not None and (_alike(node.outcome, was.outcome) or (goal.keep_new and node.is_directory))
            if was.state.link is not None and not is_done and tree.find(at[:-1]) is not None:
                files.setdefault(_version(was.state), was.state)
        return [entry for file in files.values() for entry in self._rewind(tree, goal, file)]

    def _rewind(self, tree: Tree, goal: _Goal, file: State) -> list[Entry]:
        """The entries that take a file back to a version, at the end of the branch that its links show.

        Mostly its first name shows another branch: somebody wrote while the file was moved, or another one has won a
        conflict.  The file is then removed at that end, so that the first name stays what it is.  With `keep_new` the
        first name may be new and show this branch: then the file is not removed, and goes back under all its names.
        """
        resolver, version = self._tree.resolver, _version(file)
        end, rewound = self._store.get(resolver.linked_end(version)), self._last_revert_to(version)
        if end is None or (rewound is not None and end.entry.hash in (rewound.hash, rewound.parent)):
            # It has gone back already.
            return []
        path = self._store.paths.path_of(end.path_id)
        above, shown = tree.find(path[:-1]), tree.find(path)
        is_shown = shown is not None and tree.end_of(shown) == end.entry.hash
        if path[: len(goal.top)] != goal.top or above is None or (is_shown and path not in goal.new):
            return []
        directory = above.outcome.as_directory(len(path))
        outcome = resolver.past(self._store.entries_at(end.path_id), directory, [end.entry.hash])
        if outcome is None:
            return []
        authority = outcome.authority
        entries = [self._signed(path, end.entry, authority, Action.REVERT, version, file.mtime)]
        if not _same_attributes(resolver.state_after(version)._replace(mtime=file.mtime), file):
            entries.append(self._mode(path, entries[-1], authority, file))
        return entries if is_shown else [*entries, self._signed(path, entries[-1], authority, Action.DELETE)]

    def _last_revert_to(self, version: EntryHash) -> Entry | None:
        """The last revert to a version of a file at its first name."""
        placed = self._store.get(version)
        for each in [] if placed is None else reversed(self._store.entries_at(placed.path_id)):
            if (each.entry.action, each.entry.content) == (Action.REVERT, version):
                return each.entry
        return None

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
        back = self._back(tree, path, outcome, was.outcome)
        return [*self._left(tree, path, was.state, goal.top), *back] if back else []

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

    def _removed(self, path: Path, now: Outcome) -> list[Entry]:
        """The entries that remove a path."""
        ends = zip(now.tips, now.authorities, strict=True)
        return [self._signed(path, tip, authority, Action.DELETE) for tip, authority in ends]

    def _modes(self, path: Path, now: Outcome, then: State) -> list[Entry]:
        """The mode entries that give a directory its mode, owner and time again.

        For one that cannot or need not be reverted.
        """
        ends = zip(now.tips, now.authorities, strict=True)
        return [self._mode(path, tip, authority, then) for tip, authority in ends]

    def _mode(self, path: Path, tip: Entry, authority: Authority, then: State) -> Entry:
        return self._signed(path, tip, authority, Action.MODE, encode_mode(then.mode, then.owner), then.mtime)

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


def _same_file(now: State, then: State) -> bool:
    """Whether a path is a name of the same file, with the same content."""
    return (now.origin, now.content, now.target) == (then.origin, then.content, then.target)


def _version(file: State) -> EntryHash:
    """The entry that gave a file its content."""
    version = file.content or file.origin
    assert version is not None
    return version


def _same_attributes(now: State, then: State) -> bool:
    return (now.mode, now.owner, now.mtime) == (then.mode, then.owner, then.mtime)


def _shows(now: Outcome | None, state: State) -> bool:
    """Whether a path is what it was after one of its revisions; a directory: the same one, among those merged."""
    if now is None or state.kind is Kind.ABSENT:
        return (Kind.ABSENT if now is None else now.state.kind) is state.kind
    same_directory = state.kind is not Kind.DIRECTORY or state.origin in now.directories
    return same_directory and visible(now.state) == visible(state)
