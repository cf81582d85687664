"""The walk over one path: two passes over its entries, which form a forest (paper, section 3.1; docs/authority.md).

* forward, from each chain's first entry: the state after each entry, and the keys valid there;
* backward, from the last entries: the *outcome* of each branch, choosing at every fork by the paper's rules:
  1. a branch without a complete, effective entry is no branch;
  2. the branch holding a contributor with the higher authority wins;
  3. then the branch with more contributors;
  4. then the branch whose first entry has the higher hash.

An entry is effective if its key is valid at its path and it is not over the key's quota, or if any effective entry
builds on it.  All branches that end
as a live directory are one candidate; a deleted directory in which something lives is a live directory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from basefs.log.entries import CHILD_ACTIONS, Action, Entry
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.placement import EntryKind, Placed
from basefs.view.permissions import Authority
from basefs.view.states import ABSENT, UNKNOWN, Kind, State, step

#: Rank of a branch without contributors: below every depth that a path can have.
_NO_AUTHORITY = 1 << 30
#: Kinds that a hard link can name.
LINKABLE = (Kind.FILE, Kind.SYMLINK)
#: Actions that continue the file that a hard link names.
SAME_FILE = frozenset({Action.WRITE, Action.MODE, Action.XATTR, Action.ACK, Action.REVERT})


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a branch, or a path, ends.

    Attributes:
        state: the state of the path.
        tips: the last entry of each merged branch, the highest ranked first: the next entry is appended there.
        directories: the mkdir entries of a live directory, the highest ranked first; empty for anything else.
        authority: the keys valid at the path, if this is its outcome.
        authorities: for each tip, the keys that are valid on its branch and may append there.
        contributors: keys valid now that signed an entry of the branch, with the depth of their authority.
        first: hash of the branch's first entry; the highest one of merged branches.
        from_below: whether entries below the path had a say, so that a change below may change the outcome.
        awaited: whether a revert on this path names an entry that is not here, so that any entry may decide something.
    """

    state: State
    tips: tuple[Entry, ...]
    directories: tuple[EntryHash, ...]
    authority: Authority
    authorities: tuple[Authority, ...]
    contributors: Mapping[Fingerprint, int]
    first: EntryHash
    from_below: bool = False
    awaited: bool = False

    @property
    def rank(self) -> tuple[int, int, EntryHash]:
        """The value that rules 2 to 4 compare; the highest wins."""
        best = min(self.contributors.values(), default=_NO_AUTHORITY)
        return -best, len(self.contributors), self.first


def unite(into: dict[Fingerprint, int], contributors: Mapping[Fingerprint, int]) -> None:
    """Add contributors, each with its highest authority."""
    for fingerprint, depth in contributors.items():
        into[fingerprint] = min(depth, into.get(fingerprint, depth))


@dataclass(slots=True)
class Forest:
    """The entries of one path, under some incarnations of its directory."""

    heads: list[Placed] = field(default_factory=list)
    successors: dict[EntryHash, list[Placed]] = field(default_factory=dict)
    #: mkdir or write -> the grants and revokes that hang on it
    hanging: dict[EntryHash, list[Entry]] = field(default_factory=dict)
    #: the heads and successors: the entries after which the path has a state
    states: dict[EntryHash, Entry] = field(default_factory=dict)
    _bases: dict[EntryHash, EntryHash | None] = field(default_factory=dict)

    def basis(self, hash: EntryHash) -> EntryHash | None:
        """The hard link on whose state that after an entry depends."""
        passed: list[EntryHash] = []
        found: EntryHash | None = None
        while hash not in self._bases and (entry := self.states.get(hash)) is not None:
            passed.append(hash)
            if entry.action is Action.LINK:
                found = hash
                break
            if entry.action not in SAME_FILE or entry.action is Action.WRITE:
                # A write behind a link parts from its file, so the file of the link does not matter any more.
                break
            hash = EntryHash(entry.content) if entry.action is Action.REVERT else entry.parent
        else:
            found = self._bases.get(hash)
        self._bases.update(dict.fromkeys(passed, found))
        return found

    @classmethod
    def of(cls, entries: Iterable[Placed], directories: Collection[EntryHash]) -> Forest:
        forest = cls()
        owners: dict[EntryHash, EntryHash] = {}
        for placed in entries:
            if placed.directory not in directories or placed.kind is EntryKind.ANNOTATION:
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

    def is_over(self, placed: Placed, authority: Authority) -> bool:
        """Whether an entry is over the quotas of its key, which is valid by this authority."""

    def named(self, link: Entry, hops: int) -> State:
        """The state that a hard link shows: of the file that it names, or of a copy."""

    def may_change(self, fingerprint: Fingerprint, file: State) -> bool:
        """Whether a key may write at the path at which a file began."""

    def has_effective_below(self, mkdir: EntryHash, authority: Authority, depth: int) -> bool:
        """Whether any entry below one incarnation of a directory, however deep, counts."""

    def has_life_below(self, mkdir: EntryHash, authority: Authority, depth: int) -> bool:
        """Whether any path below one incarnation of a directory, however deep, is live."""

    def contributors_below(self, mkdir: EntryHash, authority: Authority, depth: int) -> dict[Fingerprint, int]:
        """The keys valid now that signed anything below one incarnation of a directory, with their authority."""


class Walk:
    """The two passes over one forest."""

    def __init__(
        self,
        others: OtherPaths,
        forest: Forest,
        authority: Authority,
        depth: int,
        *,
        files: bool = False,
        basis: EntryHash | None = None,
        hops: int = 0,
        shallow: bool = False,
    ) -> None:
        """A walk over a path.

        `files`: the outcome of an entry is that of its file alone, of all files that depend on the hard link `basis`
        or on none.  `shallow`: ignore the paths below.
        """
        self._others = others
        self._forest = forest
        self._depth = depth
        self._hops = hops
        self._shallow = shallow
        #: In a shallow walk: the directories that a deep one would have examined: mkdir and the keys valid there.
        self.deleted: list[tuple[EntryHash, Authority]] = []
        self.unproven: list[tuple[EntryHash, Authority]] = []
        self.states: dict[EntryHash, State] = {}
        self.outcomes: dict[EntryHash, Outcome | None] = {}
        self._authorities: dict[EntryHash, Authority] = {}
        #: The entries that are over the quotas of their keys.
        self.over: set[EntryHash] = set()
        self._order: list[Placed] = []
        #: Whether a revert names an entry that is not here.
        self.awaits = False
        #: Of a walk over files: whether they depend on a hard link.
        self.depends_on_link = basis is not None
        self._base = authority
        self._files = files
        self._basis = basis
        self._forward()
        for placed in reversed(self._order):
            self.outcomes[placed.entry.hash] = self._outcome(placed)

    def order_heads(self) -> list[Placed]:
        """The heads that the forward pass reached."""
        return [head for head in self._forest.heads if head.entry.hash in self.outcomes]

    def _forward(self) -> None:
        todo: list[tuple[Placed, State, Authority]] = [(head, ABSENT, self._base) for head in self._forest.heads]
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
                if target in self._forest.states and target not in self.states:
                    waiting.setdefault(target, []).append((placed, before, inherited))
                    continue
                here = self._authorities.get(target, inherited)
            elif hanging := self._forest.hanging.get(entry.hash):
                here = inherited.extended(hanging, self._depth)
            state = self._state(placed, before)
            self.states[entry.hash] = state
            self._authorities[entry.hash] = here
            self._order.append(placed)
            todo.extend((successor, state, here) for successor in self._forest.successors.get(entry.hash, ()))
            todo.extend(waiting.pop(entry.hash, ()))

    def _state(self, placed: Placed, before: State) -> State:
        entry = placed.entry
        if entry.action is Action.LINK:
            if self._files and entry.hash != self._basis:
                # Only links older than the entry that is looked at are followed from here, so that links among names
                # that were swapped come to an end.
                return UNKNOWN
            return self._others.named(entry, self._hops)
        if entry.action is Action.REVERT:
            target = EntryHash(entry.content)
            self.awaits |= target not in self.states
            state = self.states.get(target, UNKNOWN)
            return self._parted(state if state.kind is Kind.ABSENT else replace(state, mtime=entry.mtime), entry)
        complete = entry.action is not Action.WRITE or self._others.is_complete(placed)
        state = step(before, entry, complete=complete)
        return self._parted(state, entry) if entry.action is Action.MODE else state

    def _parted(self, state: State, entry: Entry) -> State:
        """The state after a change of a hard link: a file of its own if the key may not write at the file's path."""
        is_same = state.link is None or self._others.may_change(entry.fingerprint, state)
        return state if is_same else replace(state, link=entry.hash, origin=entry.hash)

    def _outcome(self, placed: Placed) -> Outcome | None:
        entry = placed.entry
        if self._files and self.states[entry.hash].kind not in LINKABLE:
            return None
        authority = self._authorities[entry.hash]
        own: dict[Fingerprint, int] = {}
        if authority.allows(entry.fingerprint):
            if entry.fingerprint in authority.limits and self._others.is_over(placed, authority):
                self.over.add(entry.hash)
            else:
                own[entry.fingerprint] = authority.depths[entry.fingerprint]
        branches = [
            outcome
            for successor in self._forest.successors.get(entry.hash, ())
            if (outcome := self.outcomes.get(successor.entry.hash)) is not None
            and (not self._files or successor.entry.action in SAME_FILE)
        ]
        chosen = self.choose(branches)
        if chosen is not None:
            contributors = dict(own)
            for branch in branches:
                unite(contributors, branch.contributors)
            return replace(chosen, contributors=contributors, first=entry.hash)
        state = self.states[entry.hash]
        if not state.complete:
            return None
        from_below = not own
        if not own and not self._is_built_upon(placed, authority):
            return None
        directories: tuple[EntryHash, ...] = ()
        if state.kind is Kind.ABSENT and state.remains is not None:
            from_below = True
            if self._has_life(state.remains, authority):
                state = state.remains
        if state.kind is Kind.DIRECTORY:
            assert state.origin is not None
            directories = (state.origin,)
        return Outcome(state, (entry,), directories, authority, (authority,), own, entry.hash, from_below)

    def end(self, hash: EntryHash) -> Outcome | None:
        """The outcome if the path ended with this entry, for any contributor; `None` if it is not of this path."""
        entry, state = self._forest.states.get(hash), self.states.get(hash)
        if entry is None or state is None:
            return None
        authority = self._authorities[hash]
        if state.kind is Kind.ABSENT and state.remains is not None and self._has_life(state.remains, authority):
            state = state.remains
        directories = (state.origin,) if state.kind is Kind.DIRECTORY and state.origin is not None else ()
        return Outcome(state, (entry,), directories, authority, (authority,), {}, hash)

    def last_absence(self) -> Outcome | None:
        """The last outcome without an object, on the way to the present one; `None` if there always was one."""
        outcome = self.choose([self.outcomes[head.entry.hash] for head in self.order_heads()])
        entry = None if outcome is None else outcome.tips[0]
        while entry is not None:
            if self.states[entry.hash].kind is Kind.ABSENT:
                return self.end(entry.hash)
            entry = self._forest.states.get(entry.parent)
        return None

    def _is_built_upon(self, placed: Placed, authority: Authority) -> bool:
        """Whether anything valid builds on an entry whose own key is not: a grant, or an entry anywhere below."""
        if any(authority.may_grant(entry.fingerprint) for entry in self._forest.hanging.get(placed.entry.hash, ())):
            return True
        if placed.entry.action is not Action.MKDIR:
            return False
        if self._shallow:
            self.unproven.append((placed.entry.hash, authority))
            return False
        return self._others.has_effective_below(placed.entry.hash, authority, self._depth)

    def _has_life(self, remains: State, authority: Authority) -> bool:
        """Whether anything lives in a directory that was deleted."""
        assert remains.origin is not None
        if self._shallow:
            self.deleted.append((remains.origin, authority))
            return False
        return self._others.has_life_below(remains.origin, authority, self._depth)

    def choose(self, branches: Sequence[Outcome | None]) -> Outcome | None:
        """The winner among branches by the rules; directories are merged first.  `None` without any branch."""
        candidates = sorted((branch for branch in branches if branch is not None), key=lambda o: o.rank, reverse=True)
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        from_below = any(candidate.from_below for candidate in candidates)
        directories = [candidate for candidate in candidates if candidate.directories]
        others = [candidate for candidate in candidates if not candidate.directories]
        if directories:
            # rmdir removes the branches that it saw; another one that is a directory stays.
            others = [candidate for candidate in others if candidate.state.remains is None]
            merged = self._merged(directories, against_others=bool(others))
            if not others:
                return replace(merged, from_below=from_below)
            others.append(merged)
        winner = max(others, key=lambda outcome: outcome.rank)
        return replace(winner, from_below=from_below or bool(directories))

    def _merged(self, directories: Sequence[Outcome], *, against_others: bool) -> Outcome:
        contributors: dict[Fingerprint, int] = {}
        mkdirs: dict[EntryHash, None] = {}
        for outcome in directories:
            unite(contributors, outcome.contributors)
            mkdirs.update(dict.fromkeys(outcome.directories))
            if against_others:
                for mkdir in outcome.directories:
                    unite(contributors, self._others.contributors_below(mkdir, outcome.authority, self._depth))
        return replace(
            directories[0],
            tips=tuple(tip for outcome in directories for tip in outcome.tips),
            authorities=tuple(authority for outcome in directories for authority in outcome.authorities),
            directories=tuple(mkdirs),
            contributors=contributors,
            first=max(outcome.first for outcome in directories),
        )
