"""Crowds: paths with many entries, kept in memory so that one more entry costs no look at the others.

A key holder can write any number of entries at one path, in branches, with reverts to entries that come later.  A crowd
is what a `Walk` over the path found, in a form that a new entry extends.  Invariants

1. `outcome` equals what a new walk over all entries finds, which `Tree.check` compares.
2. An entry counts if it has contributors: those of itself and of all branches that build on it.  These only become
   more, so the rank of a branch only rises, and a branch that has become another one is compared with the best alone.
3. The state of an entry depends on one other entry at the most, and changes when something arrives that a revert names.
   Only what depends on that is looked at again.

So an entry costs a step, and one for each entry that counts, or has another contributor, or another state by it.  Paths
on which directories were made or keys granted, and those at which keys have quotas, have no crowd.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple

from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.placement import EntryKind, Placed
from basefs.view.permissions import Authority
from basefs.view.states import ABSENT
from basefs.view.walk import Forest, Outcome, Walk

#: Entries from which on a path is kept: resolving fewer takes less than a millisecond.
LEAST = 8
#: Entries of all crowds that are kept, about 1.5 kB each.
MOST = 32_768


class _Contributors(NamedTuple):
    """The keys that have contributed to a branch, with their authority, and the highest of these."""

    depths: dict[Fingerprint, int]
    best: int

    def with_others(self, others: _Contributors) -> _Contributors:
        """These and others; this object where there is none more."""
        depths = self.depths
        if all(depth >= depths.get(key, depth + 1) for key, depth in others.depths.items()):
            return self
        united = dict(depths)
        for key, depth in others.depths.items():
            united[key] = min(depth, united.get(key, depth))
        return _Contributors(united, min(self.best, others.best))


class _Branch(NamedTuple):
    """The branch that wins at an entry, or at the path: its rank (`Outcome.rank`) and first entry."""

    rank: tuple[int, int, EntryHash]
    first: EntryHash


class Crowd:
    """The entries of one path in some incarnations of its directory.

    Attributes:
        directories: these.
        authority: the keys valid there.
    """

    def __init__(
        self, forest: Forest, walk: Walk, directories: Collection[EntryHash], authority: Authority, *, has_links: bool
    ) -> None:
        """`walk`: over the forest; both belong to the crowd from here on.  `has_links`: whether links are among it."""
        self.directories = tuple(directories)
        self.authority = authority
        self._forest = forest
        self._walk = walk
        self._has_links = has_links
        #: What reverts name, whether it is here or not -> these reverts.
        self._named: dict[EntryHash, list[Placed]] = {}
        self._counting: dict[EntryHash, _Contributors] = {}
        #: Entry, or `None` for the path -> the branch that wins behind it.
        self._best: dict[EntryHash | None, _Branch] = {}
        #: The entries that win, from the first one to the last, and the position of each.
        self._line: list[EntryHash] = []
        self._positions: dict[EntryHash, int] = {}
        #: What one key alone contributes.
        self._own = {key: _Contributors({key: depth}, depth) for key, depth in authority.depths.items()}
        self._adopt(walk)

    @classmethod
    def of(cls, forest: Forest, walk: Walk, directories: Collection[EntryHash], authority: Authority) -> Crowd | None:
        """The crowd that a walk has found, `None` where it cannot be kept."""
        if not LEAST <= len(forest.states) <= MOST or len(walk.states) != len(forest.states):
            return None
        if forest.hanging or authority.limits:
            return None
        actions = {entry.action for entry in forest.states.values()}
        if Action.MKDIR in actions or (Action.LINK in actions and walk.has_quotas):
            return None
        return cls(forest, walk, directories, authority, has_links=Action.LINK in actions)

    def __len__(self) -> int:
        return len(self._forest.states)

    def _adopt(self, walk: Walk) -> None:
        for hash, outcome in walk.outcomes.items():
            entry = self._forest.states[hash]
            if outcome is None:
                continue
            depths = dict(outcome.contributors)
            only = self._own.get(entry.fingerprint) if len(depths) == 1 else None
            if only is None or only.depths != depths:
                only = _Contributors(depths, min(depths.values()))
            self._counting[hash] = only
        for placed in (*self._forest.heads, *(one for some in self._forest.successors.values() for one in some)):
            if placed.entry.action is Action.REVERT:
                self._named.setdefault(EntryHash(placed.entry.content), []).append(placed)
            if placed.entry.hash in self._counting:
                self._compare(placed.entry.hash, self._above(placed))
        walk.outcomes.clear()
        self._follow(None)

    @staticmethod
    def _above(placed: Placed) -> EntryHash | None:
        return None if placed.kind is EntryKind.CHILD else placed.entry.parent

    def outcome(self) -> Outcome | None:
        """The outcome of the path, as `Resolver.path` returns it."""
        if not self._line:
            return None
        tip = self._forest.states[self._line[-1]]
        first = self._line[0]
        return Outcome(
            self._walk.states[tip.hash],
            (tip,),
            (),
            self.authority,
            (self.authority,),
            self._counting[first].depths,
            first,
        )

    def add(self, placed: Placed) -> bool:
        """Take a new entry of the path in; returns whether the crowd goes on."""
        entry = placed.entry
        if placed.kind is EntryKind.ANNOTATION:
            return True
        if (
            placed.kind is EntryKind.KEY
            or entry.action is Action.MKDIR
            or placed.directory not in self.directories
            or (placed.kind is EntryKind.SUCCESSOR and entry.parent not in self._forest.states)
        ):
            return False
        self._has_links |= entry.action is Action.LINK
        if self._has_links and self._walk.has_quotas:
            return False
        if placed.kind is EntryKind.CHILD:
            self._forest.heads.append(placed)
        else:
            self._forest.successors.setdefault(entry.parent, []).append(placed)
        self._forest.states[entry.hash] = entry
        if entry.action is Action.REVERT:
            self._named.setdefault(EntryHash(entry.content), []).append(placed)
        changed = self._update_states(placed)
        if changed is None:
            return False
        forks: dict[EntryHash | None, None] = {}
        for one in changed:
            self._count(one, forks)
        for fork in forks:
            self._follow(fork)
        return True

    def _update_states(self, placed: Placed) -> list[Placed] | None:
        """Find the state of a new entry, and of those that depend on it; returns these.

        `None` if any was complete and is not any more, which no arrival of an entry of this path can cause.
        """
        states = self._walk.states
        changed: list[Placed] = []
        todo = [placed]
        while todo:
            one = todo.pop()
            hash = one.entry.hash
            above = self._above(one)
            known, state = states.get(hash), self._walk.state_after(one, ABSENT if above is None else states[above])
            if state == known:
                continue
            if known is not None and known.complete and not state.complete:
                return None
            states[hash] = state
            changed.append(one)
            todo += self._forest.successors.get(hash, ())
            todo += self._named.get(hash, ())
        return changed

    def _count(self, placed: Placed, forks: dict[EntryHash | None, None]) -> None:
        """Let an entry count if it does by itself; `forks` gets the entries behind which another branch wins then."""
        entry = placed.entry
        own = self._own.get(entry.fingerprint)
        if own is None or entry.hash in self._counting or not self._walk.states[entry.hash].complete:
            return
        self._counting[entry.hash] = own
        hash, above = entry.hash, self._above(placed)
        while True:
            if self._compare(hash, above):
                forks[above] = None
            if above is None:
                return
            before = self._counting.get(above)
            base = before or self._own.get(self._forest.states[above].fingerprint)
            after = self._counting[hash] if base is None else base.with_others(self._counting[hash])
            if after is before:
                return
            self._counting[above] = after
            hash, above = above, self._parent(self._forest.states[above])

    def _parent(self, entry: Entry) -> EntryHash | None:
        """The entry before one of this path; `None` before a first one."""
        return entry.parent if entry.parent in self._forest.states else None

    def _compare(self, first: EntryHash, fork: EntryHash | None) -> bool:
        """Compare a branch that is new, or has risen, with the best one; returns whether another one wins now."""
        contributors = self._counting[first]
        rank = -contributors.best, len(contributors.depths), first
        best = self._best.get(fork)
        if best is not None and best.rank > rank:
            return False
        self._best[fork] = _Branch(rank, first)
        return best is None or best.first != first

    def _follow(self, fork: EntryHash | None) -> None:
        """Find the entries that win behind a fork, if that wins itself."""
        if fork is not None and fork not in self._positions:
            return
        keep = 0 if fork is None else self._positions[fork] + 1
        while len(self._line) > keep:
            del self._positions[self._line.pop()]
        while (best := self._best.get(fork)) is not None:
            fork = best.first
            self._positions[fork] = len(self._line)
            self._line.append(fork)


class Crowds:
    """The crowds of one log, those that were used last, by the ids of their paths."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Crowd] = OrderedDict()
        self._size = 0

    def find(self, path_id: int, directories: Collection[EntryHash], authority: Authority) -> Crowd | None:
        """The crowd of a path in these incarnations of its directory, with the keys valid there."""
        crowd = self._known.get(path_id)
        if crowd is None:
            return None
        is_same = crowd.authority is authority or crowd.authority == authority
        if not is_same or crowd.directories != tuple(directories):
            self.drop(path_id)
            return None
        return crowd

    def keep(self, path_id: int, crowd: Crowd) -> None:
        """Keep a crowd, instead of those that were used least lately."""
        self.drop(path_id)
        self._known[path_id] = crowd
        self._size += len(crowd)
        self._bound()

    def add(self, placed: Placed) -> None:
        """Take a new entry of the log into the crowd of its path, if there is one."""
        crowd = self._known.pop(placed.path_id, None)
        if crowd is None:
            return
        self._size -= len(crowd)
        if crowd.add(placed):
            self._known[placed.path_id] = crowd
            self._size += len(crowd)
            self._bound()

    def drop(self, path_id: int) -> None:
        """Forget the crowd of a path, of which something else than a new entry is told."""
        crowd = self._known.pop(path_id, None)
        if crowd is not None:
            self._size -= len(crowd)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()
        self._size = 0

    def _bound(self) -> None:
        while self._size > MOST:
            self._size -= len(self._known.popitem(last=False)[1])
