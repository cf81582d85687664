"""History: every revision of a path, and which of them lost a conflict to what (docs/authority.md).

It is read from the same two passes that resolve the path, so it always agrees with the view.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash
from basefs.log.placement import EntryKind, Placed
from basefs.log.store import Store
from basefs.path import Path
from basefs.view.resolution import Resolver
from basefs.view.states import Kind, State
from basefs.view.tree import Tree
from basefs.view.walk import Branch, MergedDirectory, Outcome


class RevisionStatus(enum.Enum):
    """The standing of a revision."""

    CURRENT = "current"  # the state of the path
    PAST = "past"  # the current one builds on it
    LAST = "last"  # the last one before the path was removed
    LOST = "lost"  # another branch won
    IGNORED = "ignored"  # its key is not valid, and nothing that counts builds on it
    INCOMPLETE = "incomplete"  # its content has not arrived
    WITHHELD = "withheld"  # likewise, and it is not fetched, since its key is not valid
    GONE = "gone"  # made in a directory that was deleted since, and not the last one there


class ForkRule(enum.Enum):
    """Why a branch lost (paper, section 3.1)."""

    AUTHORITY = "a contributor with higher authority"
    LIFE = "the edit, over a removal"
    CONTRIBUTORS = "more contributors"
    HASH = "the higher hash"
    DIRECTORY = "the contributors of everything below the directory"


@dataclass(frozen=True, slots=True)
class Revision:
    """One entry of a path.

    Attributes:
        entry: the entry.
        state: the state of the path after it; `None` for grants and revokes, and if unknown.
        standing: its present standing.
        accepts: whether it ends a branch that had lost, with the state of the winner.
    """

    entry: Entry
    state: State | None
    standing: RevisionStatus
    accepts: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """A branch that lost.

    Attributes:
        branch: where the branch that lost ends.
        won: the entry with which the path ends.
        rule: which rule decided.
    """

    branch: Branch
    won: Entry
    rule: ForkRule

    @property
    def lost(self) -> Entry:
        """The last entry of the branch that lost: reverting to it brings it back."""
        return self.branch.tip


@dataclass(frozen=True, slots=True)
class _Story:
    """How a path came to what it shows.

    Attributes:
        acceptances: the reverts that end a branch that had lost.
        way: the entries on the way to what is shown.
        shown: those whose state is shown, one for each merged branch.
        last: the last one before the path was removed; `None` if it is there.
    """

    acceptances: frozenset[EntryHash]
    way: frozenset[EntryHash]
    shown: frozenset[EntryHash]
    last: EntryHash | None


@dataclass(frozen=True, slots=True)
class Survey:
    """All that the two passes found out about one path.

    Attributes:
        entries: all entries of the path, in order of arrival.
        outcome: the outcome of the path; `None` if no entry counts.
        states: entry -> the state of the path after it.
        begun: entry -> the branch that it begins; `None` if it does not count.
        is_removed: whether the directory that holds the path was removed; the rest then describes the path before.
        resolve: the outcome of the path if it had only some of its entries.
        withheld: the writes whose contents do not come because nothing shows them.
    """

    entries: Sequence[Placed]
    outcome: Outcome | None
    states: Mapping[EntryHash, State]
    begun: Mapping[EntryHash, Branch | None]
    is_removed: bool = False
    resolve: Callable[[Sequence[Placed]], Outcome | None] | None = field(default=None, compare=False)
    withheld: frozenset[EntryHash] = frozenset()

    @classmethod
    def of(
        cls,
        resolver: Resolver,
        entries: Sequence[Placed],
        directory: MergedDirectory,
        *,
        is_removed: bool = False,
    ) -> Survey:
        """Look at a path; arguments as for `Resolver.path`."""
        outcome, walk = resolver.survey(entries, directory)

        def resolve(some: Sequence[Placed]) -> Outcome | None:
            return resolver.path(some, directory)

        return cls(entries, outcome, walk.states, walk.branches, is_removed, resolve)

    def _walk(self) -> set[EntryHash]:
        """The entries from the path's beginning to its end."""
        parents = {placed.entry.hash: placed.entry.parent for placed in self.entries if placed.kind.is_state}
        found: set[EntryHash] = set()
        for tip in () if self.outcome is None else self.outcome.tips:
            hash: EntryHash | None = tip.hash
            while hash is not None and hash not in found:
                found.add(hash)
                hash = parents.get(hash)
        return found

    def revisions(self) -> list[Revision]:
        """Every revision, the newest first."""
        story = self._story()
        return [
            Revision(
                placed.entry,
                self.states.get(placed.entry.hash),
                self._standing(placed, story),
                placed.entry.hash in story.acceptances,
            )
            for placed in reversed(self.entries)
        ]

    def _story(self) -> _Story:
        """How the path came to what it shows: behind an acceptance stands what it accepted, not the branch it ended."""
        entries = {placed.entry.hash: placed.entry for placed in self.entries if placed.kind.is_state}
        acceptances = frozenset(hash for hash, entry in entries.items() if self._accepts(entry, entries))
        if self.outcome is None:
            return _Story(acceptances, frozenset(), frozenset(), None)
        shown = [tip.hash for tip in self.outcome.tips]
        while any(hash in acceptances for hash in shown):
            shown = [EntryHash(entries[hash].content) if hash in acceptances else hash for hash in shown]
        # A directory that a revert has brought back on another branch is merged with itself.
        named = {entries[hash].content for hash in shown if entries[hash].action is Action.REVERT}
        shown = [hash for hash in shown if hash not in named]
        way: set[EntryHash] = set()
        todo = [tip.hash for tip in self.outcome.tips]
        while todo:
            hash = todo.pop()
            if hash in way or hash not in entries:
                continue
            way.add(hash)
            entry = entries[hash]
            if hash not in acceptances:
                todo.append(entry.parent)
            if entry.action is Action.REVERT:
                todo.append(EntryHash(entry.content))
        return _Story(acceptances, frozenset(way), frozenset(shown), self._last(shown[0], entries))

    def _accepts(self, entry: Entry, entries: Mapping[EntryHash, Entry]) -> bool:
        """Whether a revert names what would have won without it: it then ends the branch that has lost."""
        target = EntryHash(entry.content)
        if entry.action is not Action.REVERT or target not in entries or self.resolve is None:
            return False
        if target in _ancestors(entry.parent, entries):
            return False
        without: set[EntryHash] = {entry.hash}
        for placed in self.entries:
            # Parents come first.
            if placed.entry.parent in without:
                without.add(placed.entry.hash)
        outcome = self.resolve([placed for placed in self.entries if placed.entry.hash not in without])
        return outcome is not None and any(target in _ancestors(tip.hash, entries) for tip in outcome.tips)

    def _last(self, shown: EntryHash, entries: Mapping[EntryHash, Entry]) -> EntryHash | None:
        """The last revision before the path was removed, `None` if it is there."""
        for hash in _ancestors(shown, entries):
            state = self.states.get(hash)
            if state is not None and state.kind is not Kind.ABSENT:
                return hash if self.is_removed or hash != shown else None
        return None

    def branches(self) -> list[tuple[int, Revision]]:
        """Every revision behind the one that it builds on, with the number of forks before it; grants come first."""
        revisions = {revision.entry.hash: revision for revision in reversed(self.revisions())}
        behind: dict[EntryHash | None, list[EntryHash]] = {}
        for hash, revision in revisions.items():
            parent = revision.entry.parent
            behind.setdefault(parent if parent in revisions else None, []).append(hash)
        found = []
        todo = [(0, hash) for hash in reversed(behind.get(None, ()))]
        while todo:
            forks, hash = todo.pop()
            found.append((forks, revisions[hash]))
            following = sorted(behind.get(hash, ()), key=lambda hash: revisions[hash].entry.action.is_state)
            states = [hash for hash in following if revisions[hash].entry.action.is_state]
            deeper = forks + (len(states) > 1)
            todo.extend((deeper if next in states else forks, next) for next in reversed(following))
        return found

    def _standing(self, placed: Placed, story: _Story) -> RevisionStatus:
        hash = placed.entry.hash
        if hash == story.last:
            return RevisionStatus.LAST
        if self.is_removed:
            return RevisionStatus.GONE
        if not placed.kind.is_state:
            outcome = self.outcome
            in_force = outcome is not None and any(grant.entry.hash == hash for grant in outcome.authority.grants)
            return RevisionStatus.CURRENT if in_force else RevisionStatus.PAST
        if hash in story.shown:
            return RevisionStatus.CURRENT
        state = self.states.get(hash)
        if hash in story.way or (hash in story.acceptances and self.begun.get(hash) is not None):
            return RevisionStatus.PAST
        if state is None:
            return RevisionStatus.GONE
        if self.begun.get(hash) is not None:
            return RevisionStatus.LOST
        if state.complete:
            return RevisionStatus.IGNORED
        return RevisionStatus.WITHHELD if state.content in self.withheld else RevisionStatus.INCOMPLETE

    def conflicts(self) -> list[Conflict]:
        """The branches that lost at any fork of the winning one, and were neither restored nor settled since.

        An acceptance of the winner settles a branch, and one that ends with what is shown is none: two machines have
        done the same.  In a removed directory: the branches that lost to a removal.
        """
        if self.outcome is None:
            return []
        walk = self._walk()
        entries = [placed.entry for placed in self.entries]
        deletes = {entry.hash for entry in entries if entry.action is Action.DELETE}
        restored = {entry.content for entry in entries if entry.action is Action.REVERT and entry.hash in walk}
        found: list[Conflict] = []
        for branches in self._forks(walk):
            best = max((branch for branch in branches if branch.first in walk), key=_rank, default=None)
            # The removal of a directory followed the branch that had won there.
            if best is not None and not (self.is_removed and best.first not in deletes):
                losers = [branch for branch in branches if branch.first not in walk and self._is_loss(branch)]
                found += [
                    Conflict(loser, self.outcome.tips[0], _rule(best, loser))
                    for loser in losers
                    if not _is_settled(loser.tip, walk, restored) and not self._is_shown(loser.state)
                ]
        return found

    def _is_shown(self, state: State) -> bool:
        """Whether the path shows such a state, whenever and by whom it was made."""
        assert self.outcome is not None
        shown = self.outcome.state
        if state._replace(mtime=0, origin=None, content=None) != shown._replace(mtime=0, origin=None, content=None):
            return False
        if state.content == shown.content:
            return state.kind is not Kind.ABSENT
        writes = {placed.entry.hash: placed.entry for placed in self.entries}
        one, other = (None if hash is None else writes.get(hash) for hash in (state.content, shown.content))
        return one is not None and other is not None and one.encoded == other.encoded

    def _forks(self, walk: Set[EntryHash]) -> Iterable[list[Branch]]:
        """The branches of each fork on the way of the path."""
        forks: dict[EntryHash | None, list[Branch]] = {}
        for placed in self.entries:
            branch = self.begun.get(placed.entry.hash)
            if not placed.kind.is_state or branch is None:
                continue
            at = None if placed.kind is EntryKind.CHILD else placed.entry.parent
            if at is None or at in walk:
                forks.setdefault(at, []).append(branch)
        return forks.values()

    def _is_loss(self, branch: Branch) -> bool:
        """Whether a branch is a loss: a removal is none where nothing is there, or a directory that outlived it."""
        if branch.state.kind is not Kind.ABSENT or self.outcome is None:
            return True
        return self.outcome.state.kind is not Kind.ABSENT and not self.outcome.directories


def _ancestors(hash: EntryHash, entries: Mapping[EntryHash, Entry]) -> Iterator[EntryHash]:
    """An entry of a path and those that it builds on, the newest first."""
    entry = entries.get(hash)
    while entry is not None:
        yield entry.hash
        entry = entries.get(entry.parent)


def _rank(branch: Branch) -> tuple[int, bool, int, EntryHash]:
    return branch.rank


def _is_settled(lost: Entry, walk: Set[EntryHash], restored: Set[bytes]) -> bool:
    """Whether the end of a branch was restored, or accepts the winner.

    The accepted branch may itself have lost since, to a branch that was accepted concurrently.
    """
    if lost.hash in restored:
        return True
    return lost.action is Action.REVERT and (lost.content in walk or lost.content in restored)


def _rule(winner: Branch, loser: Branch) -> ForkRule:
    if winner.rank < loser.rank:
        return ForkRule.DIRECTORY
    rules = (ForkRule.AUTHORITY, ForkRule.LIFE, ForkRule.CONTRIBUTORS, ForkRule.HASH)
    return next(rule for rule, ours, theirs in zip(rules, winner.rank, loser.rank, strict=True) if ours != theirs)


def survey(store: Store, tree: Tree, path: Path) -> Survey | None:
    """All that is known of a path; `None` where no entry ever named it."""
    path_id = store.paths.id_of(path)
    if path_id is None:
        return None
    entries = store.entries_at(path_id)
    found = _survey(store, tree, path, entries)
    lacking = {state.content for state in found.states.values() if state.content is not None and not state.complete}
    return replace(found, withheld=frozenset(write for write in lacking if tree.resolver.is_withheld(write)))


def _survey(store: Store, tree: Tree, path: Path, entries: Sequence[Placed]) -> Survey:
    resolver = tree.resolver
    if not path:
        return Survey.of(resolver, entries, resolver.root_directory())
    above = tree.find(path[:-1])
    if above is not None and above.is_directory:
        return Survey.of(resolver, entries, above.outcome.as_directory(len(path)))
    gone = removed(store, tree, path[:-1])
    if gone is None:
        # Something else has won against the directory, and with it against everything in it.
        return Survey(entries, None, {}, {})
    return Survey.of(resolver, entries, gone, is_removed=True)


def removed(store: Store, tree: Tree, path: Path) -> MergedDirectory | None:
    """The directory that was at a path and is gone; `None` if it was not removed."""
    live = next(depth for depth in range(len(path), -1, -1) if tree.find(path[:depth]) is not None)
    above = tree.find(path[:live])
    found = None if above is None or not above.is_directory else above.outcome.as_directory(live + 1)
    for depth in range(live + 1, len(path) + 1):
        path_id = store.paths.id_of(path[:depth])
        if path_id is None or found is None:
            return None
        found = tree.resolver.removed(store.entries_at(path_id), found)
    return found
