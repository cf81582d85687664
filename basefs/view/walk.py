"""The walk over one path: two passes over its entries, which form a forest (paper, section 3.1; docs/authority.md).

* forward, from each chain's first entry: the state after each entry, and the keys valid there;
* backward, from the last entries: the *outcome* of each branch, choosing at every fork by the paper's rules:
  1. a branch without a complete, effective entry is no branch;
  2. the branch holding a contributor with the higher authority wins;
  3. then the branch with which something is there;
  4. then the branch with more contributors;
  5. then the branch whose first entry has the higher hash.

An entry is effective if its key is valid at its path, or if any effective entry builds on it.  All branches that end as
a live directory are one candidate; a deleted directory in which something lives is a live directory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from basefs.log.entries import CHILD_ACTIONS, Action, Entry
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.placement import EntryKind, Placed
from basefs.view.contributors import NOBODY, Contributors
from basefs.view.permissions import Authority
from basefs.view.states import ABSENT, UNKNOWN, Kind, State, step


class Outcome(NamedTuple):
    """Where a branch, or a path, ends.

    Attributes:
        state: the state of the path.
        tips: the last entry of each merged branch, the highest ranked first: the next entry is appended there.
        directories: the mkdir entries of a live directory, the highest ranked first; empty for anything else.
        authority: the keys valid at the path, if this is its outcome.
        authorities: for each tip, the keys that are valid on its branch and may append there.
        contributors: keys valid now that signed an entry of the branch.
        first: hash of the branch's first entry; the highest one of merged branches.
        from_below: whether entries below the path had a say, so that a change below may change the outcome.
        elsewhere: if this is the outcome of a path, the keys that are not valid at the path, and are behind one of its
            entries: in a directory that is not shown, and may win by what they sign there.
    """

    state: State
    tips: tuple[Entry, ...]
    directories: tuple[EntryHash, ...]
    authority: Authority
    authorities: tuple[Authority, ...]
    contributors: Contributors
    first: EntryHash
    from_below: bool = False
    elsewhere: frozenset[Fingerprint] = frozenset()

    def as_directory(self, depth: int) -> MergedDirectory:
        """The directory that the path is, for the paths in it; these have so many components."""
        return MergedDirectory(self.directories, self.authority, depth)


class Branch(NamedTuple):
    """An entry and all behind it on its path, as far as that counts.

    Directories that are merged keep what each of them ends with: a list of all ends at each fork would cost the square
    of the number of forks.

    Attributes:
        state: the state with which it ends.
        tip: its last entry; of merged branches that of the highest ranked one.
        authority: the keys valid there.
        contributors: keys valid now that signed an entry of the branch.
        first: hash of its first entry; the highest one of merged branches.
        from_below: as of an `Outcome`.
        merged: the branches of one directory that this one was merged from, the highest ranked first.
        below: the contributors of what is in its directories, once they were asked for.
    """

    state: State
    tip: Entry
    authority: Authority
    contributors: Contributors
    first: EntryHash
    from_below: bool = False
    merged: tuple[Branch, ...] = ()
    below: Contributors | None = None

    @property
    def rank(self) -> tuple[int, bool, int, EntryHash]:
        """The value that rules 2 to 5 compare; the highest wins."""
        return -self.contributors.best, self.state.kind is not Kind.ABSENT, len(self.contributors), self.first

    @property
    def is_directory(self) -> bool:
        """Whether it ends as a live directory."""
        return self.state.kind is Kind.DIRECTORY

    def ends(self) -> Iterator[Branch]:
        """The branches of which it was merged, this one if it was not; the highest ranked first."""
        todo = [self]
        while todo:
            branch = todo.pop()
            if branch.merged:
                todo.extend(reversed(branch.merged))
            else:
                yield branch

    def outcome(self) -> Outcome:
        """The outcome of the path, if this branch is what is left of it."""
        ends = list(self.ends())
        directories = [end.state.origin for end in ends if end.is_directory and end.state.origin is not None]
        return Outcome(
            self.state,
            tuple(end.tip for end in ends),
            tuple(dict.fromkeys(directories)),
            self.authority,
            tuple(end.authority for end in ends),
            self.contributors,
            self.first,
            self.from_below,
        )


class MergedDirectory(NamedTuple):
    """The directory that holds a path: some incarnations of it, as one.

    Attributes:
        mkdirs: their entries.
        authority: the keys valid in it.
        depth: number of components of the paths in it.
    """

    mkdirs: tuple[EntryHash, ...]
    authority: Authority
    depth: int


@dataclass(slots=True)
class Forest:
    """The entries of one path, under some incarnations of its directory."""

    heads: list[Placed] = field(default_factory=list)
    successors: dict[EntryHash, list[Placed]] = field(default_factory=dict)
    #: mkdir or write -> the grants and revokes that hang on it
    hanging: dict[EntryHash, list[Entry]] = field(default_factory=dict)
    #: the heads and successors: the entries after which the path has a state
    states: dict[EntryHash, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Placed], directories: Collection[EntryHash] | None = None) -> Forest:
        """`directories`: the incarnations, `None` for all."""
        forest = cls()
        owners: dict[EntryHash, EntryHash] = {}
        for placed in entries:
            is_outside = directories is not None and placed.directory not in directories
            if is_outside or placed.kind is EntryKind.ANNOTATION:
                continue
            entry = placed.entry
            if placed.kind is EntryKind.CHILD:
                forest.states[entry.hash] = entry
                forest.heads.append(placed)
            elif placed.kind is EntryKind.SUCCESSOR:
                if entry.parent in forest.states:
                    # Not behind a damaged row: parents come first.
                    forest.states[entry.hash] = entry
                    forest.successors.setdefault(entry.parent, []).append(placed)
            else:
                owner = owners.setdefault(entry.hash, owners.get(entry.parent, entry.parent))
                forest.hanging.setdefault(owner, []).append(entry)
        return forest


class OtherPaths(Protocol):
    """The properties of other paths that the walk over one path needs."""

    def is_complete(self, write: Placed) -> bool:
        """Whether the content of a write can be read."""

    def snapshot(self, entry: EntryHash) -> State:
        """The state of a file after an entry, whatever its path; not known of anything else."""

    def has_effective_below(self, directory: MergedDirectory) -> bool:
        """Whether any entry below a directory, however deep, counts."""

    def has_life_below(self, directory: MergedDirectory) -> bool:
        """Whether any path below a directory, however deep, is live."""

    def contributors_below(self, directories: Collection[MergedDirectory]) -> Contributors:
        """The keys valid now that signed anything below any of these directories."""


class Walk:
    """The two passes over one forest.

    Attributes:
        forest: the entries of the path.
        directory: that holds it.
        states: entry -> the state of the path after it.
        authorities: entry -> the keys valid behind it.
        deleted: the directories that were removed, once `branches` were asked for.
        decided_below: those of which the entries below decide what counts here, likewise.
    """

    def __init__(self, others: OtherPaths, forest: Forest, directory: MergedDirectory) -> None:
        self._others = others
        self.forest = forest
        self.directory = directory
        self._depth = directory.depth
        self.states: dict[EntryHash, State] = {}
        self.authorities: dict[EntryHash, Authority] = {}
        self.deleted: list[MergedDirectory] = []
        self.decided_below: set[EntryHash] = set()
        self._order: list[Placed] = []
        self._base = directory.authority
        self._forward()

    @cached_property
    def branches(self) -> dict[EntryHash, Branch | None]:
        """Entry -> the branch that it begins; `None` if it does not count."""
        found: dict[EntryHash, Branch | None] = {}
        for placed in reversed(self._order):
            behind = (found.get(one.entry.hash) for one in self.forest.successors.get(placed.entry.hash, ()))
            found[placed.entry.hash] = self._branch(placed.entry, [each for each in behind if each is not None])
        return found

    def united(self, mkdirs: Iterable[EntryHash]) -> Authority:
        """The keys valid at a directory that these entries of the path have made, with what hangs on each of them."""
        hanging = [entry for mkdir in mkdirs for entry in self.forest.hanging.get(mkdir, ())]
        return self._base.extended(hanging, self._depth)

    def live_ends(self) -> list[EntryHash]:
        """The entries behind which nothing comes, and which count and leave something there."""
        behind = self.forest.successors
        return [
            hash
            for hash, branch in self.branches.items()
            if branch is not None and not behind.get(hash) and branch.state.kind is not Kind.ABSENT
        ]

    def keys_besides(self, authority: Authority) -> frozenset[Fingerprint]:
        """The keys that are valid behind any entry, and not by this authority."""
        # Most entries share one object, which has the keys of the directory, and those granted where it begins.
        others = {id(other): other for other in self.authorities.values() if other is not authority}
        granted = (grant.fingerprint for other in others.values() for grant in other.grants)
        return frozenset(key for key in granted if not authority.allows(key))

    def _forward(self) -> None:
        todo: list[tuple[Placed, State, Authority]] = [(head, ABSENT, self._base) for head in self.forest.heads]
        #: Entry -> the reverts that name it, and that this pass has reached before it.  Every wait ends: an entry holds
        #: the hashes of its parent and of what it names, so none of these comes behind it.
        waiting: dict[EntryHash, list[tuple[Placed, State, Authority]]] = {}
        while todo:
            placed, before, inherited = todo.pop()
            entry = placed.entry
            if before.kind is Kind.ABSENT and entry.action in CHILD_ACTIONS:
                # Grants belong to one incarnation: a path that is created again after a delete does not inherit them.
                inherited = self._base
            here = inherited
            if entry.action is Action.REVERT:
                target = EntryHash(entry.content)
                if target in self.forest.states and target not in self.states:
                    waiting.setdefault(target, []).append((placed, before, inherited))
                    continue
                here = self.authorities.get(target, inherited)
            elif hanging := self.forest.hanging.get(entry.hash):
                here = inherited.extended(hanging, self._depth)
            state = self.state_after(placed, before)
            self.states[entry.hash] = state
            self.authorities[entry.hash] = here
            self._order.append(placed)
            todo.extend((successor, state, here) for successor in self.forest.successors.get(entry.hash, ()))
            todo.extend(waiting.pop(entry.hash, ()))

    def state_after(self, placed: Placed, before: State) -> State:
        """The state after an entry of this path; `before`: that before it.  A revert comes after what it names."""
        entry = placed.entry
        if entry.action is Action.LINK:
            state = self._others.snapshot(EntryHash(entry.content))
            return state._replace(origin=entry.hash) if state.kind.is_linkable else state
        if entry.action is Action.REVERT:
            target = EntryHash(entry.content)
            state = self.states.get(target, UNKNOWN)
            return state if state.kind is Kind.ABSENT else state._replace(mtime=entry.mtime)
        complete = entry.action is not Action.WRITE or self._others.is_complete(placed)
        return step(before, entry, complete=complete)

    def _branch(self, entry: Entry, behind: Sequence[Branch]) -> Branch | None:
        """The branch that an entry begins; `behind`: those of its successors."""
        authority = self.authorities[entry.hash]
        own = NOBODY
        if authority.allows(entry.fingerprint):
            own = Contributors.of(entry.fingerprint, authority.depths[entry.fingerprint])
        chosen = self.choose(behind)
        if chosen is not None:
            contributors = Contributors.united([*(branch.contributors for branch in behind), own])
            return chosen._replace(contributors=contributors, first=entry.hash)
        state = self.states[entry.hash]
        if not state.complete:
            return None
        from_below = not own
        if not own and not self._is_built_upon(entry, authority):
            return None
        if state.kind is Kind.ABSENT and state.remains is not None:
            from_below = True
            if self._has_life(state.remains, authority):
                state = state.remains
        return Branch(state, entry, authority, own, entry.hash, from_below)

    def end(self, hash: EntryHash) -> Outcome | None:
        """The outcome if the path ended with this entry, for any contributor; `None` if it is not of this path."""
        entry, state = self.forest.states.get(hash), self.states.get(hash)
        if entry is None or state is None:
            return None
        authority = self.authorities[hash]
        if state.kind is Kind.ABSENT and state.remains is not None and self._has_life(state.remains, authority):
            state = state.remains
        return Branch(state, entry, authority, NOBODY, hash).outcome()

    def _is_built_upon(self, entry: Entry, authority: Authority) -> bool:
        """Whether anything valid builds on an entry whose own key is not: a grant, or an entry anywhere below."""
        if any(authority.allows(key.fingerprint) for key in self.forest.hanging.get(entry.hash, ())):
            return True
        if entry.action is not Action.MKDIR:
            return False
        self.decided_below.add(entry.hash)
        return self._others.has_effective_below(self._made_by(entry.hash, authority))

    def _made_by(self, mkdir: EntryHash, authority: Authority) -> MergedDirectory:
        """The directory that one entry of the path has made, in which these keys are valid."""
        return MergedDirectory((mkdir,), authority, self._depth + 1)

    def _has_life(self, remains: State, authority: Authority) -> bool:
        """Whether anything lives in a directory that was deleted."""
        assert remains.origin is not None
        directory = self._made_by(remains.origin, authority)
        self.deleted.append(directory)
        return self._others.has_life_below(directory)

    def winner(self) -> Branch | None:
        """The branch that the path shows."""
        begun = (self.branches[head.entry.hash] for head in self.forest.heads)
        return self.choose([branch for branch in begun if branch is not None])

    def choose(self, branches: Sequence[Branch]) -> Branch | None:
        """The winner among branches by the rules; directories are merged first.  `None` without any branch."""
        candidates = sorted(branches, key=lambda branch: branch.rank, reverse=True)
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        from_below = any(candidate.from_below for candidate in candidates)
        directories = [candidate for candidate in candidates if candidate.is_directory]
        others = [candidate for candidate in candidates if not candidate.is_directory]
        if directories:
            # rmdir removes the branches that it saw; another one that is a directory stays.
            others = [candidate for candidate in others if candidate.state.remains is None]
            merged = self._merged(directories)
            if not others:
                return merged._replace(from_below=from_below)
            others.append(self._weighed(merged))
        winner = max(others, key=lambda branch: branch.rank)
        return winner._replace(from_below=from_below or bool(directories))

    def _merged(self, directories: Sequence[Branch]) -> Branch:
        if len(directories) == 1:
            return directories[0]
        return directories[0]._replace(
            contributors=Contributors.united(branch.contributors for branch in directories),
            first=max(branch.first for branch in directories),
            merged=tuple(directories),
            below=None,
        )

    def _weighed(self, branch: Branch) -> Branch:
        """A branch that ends as a directory, together with the contributors of what is in that."""
        known: list[Contributors] = []
        places: list[MergedDirectory] = []
        todo = [branch]
        while todo:
            part = todo.pop()
            if part.below is not None:
                known.append(part.below)
            elif part.merged:
                todo.extend(part.merged)
            elif part.state.origin is not None:
                places.append(self._made_by(part.state.origin, part.authority))
        below = Contributors.united([*known, self._others.contributors_below(places)])
        return branch._replace(contributors=branch.contributors.with_others(below), below=below)
