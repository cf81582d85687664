"""Crowds: paths with many entries, kept in memory so that one more entry costs no look at the others.

A key holder can write any number of entries at one path, in branches, with reverts to entries that come later.  A crowd
is what a `Walk` over the path found, in a form that a new entry extends.  Invariants

1. `outcome` equals what a new walk over all entries finds, which `Tree.check` compares.
2. An entry counts if it has contributors: those of itself and of all branches that build on it.  These only become
   more, so the rank of a branch only rises, and a branch that has become another one is compared with the best alone.
3. The state of an entry depends on one other entry at the most, and changes when something arrives that a revert names.
   Only what depends on that is looked at again.

So an entry costs a step, and one for each entry that counts, or has another contributor, or another state by it.  Paths
on which directories were made or keys granted have no crowd.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.placement import EntryKind, Placed
from basefs.view.contributors import NOBODY, Contributors
from basefs.view.states import ABSENT, Kind
from basefs.view.walk import MergedDirectory, Outcome, Walk

#: Entries from which on a path is kept: resolving fewer takes less than a millisecond.
LEAST = 8
#: Entries of all paths that are kept, about 600 bytes each.
MOST = 32_768


class _Signed(NamedTuple):
    """The keys that have contributed to a branch, as the bits of a number, and the highest authority of these."""

    keys: int
    best: int

    def with_others(self, others: _Signed) -> _Signed:
        """These and others; this object where there is none more.  A key has one authority in a crowd."""
        keys = self.keys | others.keys
        return self if keys == self.keys else _Signed(keys, min(self.best, others.best))


class _Winner(NamedTuple):
    """The branch that wins at an entry, or at the path: its rank (`Outcome.rank`) and first entry."""

    rank: tuple[int, int, EntryHash]
    first: EntryHash


class Impact(enum.Enum):
    """What one more entry does to what is kept of its path."""

    #: The outcome of the path stays.
    IDLE = enum.auto()
    #: The outcome is another one, or the entry stands elsewhere.
    TAKEN = enum.auto()
    #: All entries must be looked at.
    ENDS = enum.auto()


class Crowd:
    """The entries of one path in some incarnations of its directory.

    Attributes:
        directory: these, with the keys valid there.
    """

    def __init__(self, walk: Walk) -> None:
        """`walk`: belongs to the crowd from here on."""
        self.directory = walk.directory
        self._forest = walk.forest
        self._walk = walk
        #: What reverts name, whether it is here or not -> these reverts.
        self._named: dict[EntryHash, list[Placed]] = {}
        self._counting: dict[EntryHash, _Signed] = {}
        #: Entry, or `None` for the path -> the branch that wins behind it.
        self._best: dict[EntryHash | None, _Winner] = {}
        #: The entries that win, from the first one to the last, and the position of each.
        self._line: list[EntryHash] = []
        self._positions: dict[EntryHash, int] = {}
        #: The contributing keys, by the numbers of their bits, and what each of them contributes.
        self._keys: list[Fingerprint] = []
        self._own: dict[Fingerprint, _Signed] = {}
        #: What the outcome said last.
        self._told = _Signed(0, 0), NOBODY
        self._adopt(walk)

    @classmethod
    def of(cls, walk: Walk) -> Crowd | None:
        """The crowd that a walk has found, `None` where it cannot be kept."""
        forest = walk.forest
        if not LEAST <= len(forest.states) <= MOST or len(walk.states) != len(forest.states):
            return None
        if forest.hanging:
            return None
        actions = {entry.action for entry in forest.states.values()}
        if Action.MKDIR in actions or any(state.kind is Kind.ABSENT for state in walk.states.values()):
            # The rank of a branch falls when it ends with a removal.
            return None
        return cls(walk)

    def __len__(self) -> int:
        return len(self._forest.states)

    def _adopt(self, walk: Walk) -> None:
        behind: dict[EntryHash, _Signed] = {}
        # The last entries come first.
        for hash, branch in walk.branches.items():
            entry = self._forest.states[hash]
            signed = None if branch is None else self._with_own(entry, behind.get(hash))
            if signed is not None:
                self._counting[hash] = signed
                others = behind.get(entry.parent)
                behind[entry.parent] = signed if others is None else others.with_others(signed)
        for placed in (*self._forest.heads, *(one for some in self._forest.successors.values() for one in some)):
            _note_revert(self._named, placed)
            if placed.entry.hash in self._counting:
                self._compare(placed.entry.hash, self._above(placed))
        walk.branches.clear()
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
            self.directory.authority,
            (self.directory.authority,),
            self._contributors(self._counting[first]),
            first,
        )

    def _contributors(self, signed: _Signed) -> Contributors:
        if signed != self._told[0]:
            count = signed.keys.bit_count()
            keys = (key for number, key in enumerate(self._keys) if signed.keys >> number & 1)
            self._told = signed, Contributors({key: place for place, key in enumerate(keys)}, count, signed.best)
        return self._told[1]

    def _signed_by(self, key: Fingerprint) -> _Signed | None:
        """What one key contributes alone; `None` of one that is not valid."""
        signed = self._own.get(key)
        if signed is None and self.directory.authority.allows(key):
            signed = self._own[key] = _Signed(1 << len(self._keys), self.directory.authority.depths[key])
            self._keys.append(key)
        return signed

    def _with_own(self, entry: Entry, behind: _Signed | None) -> _Signed | None:
        """What the key of an entry contributes, and what the branches behind it do."""
        own = self._signed_by(entry.fingerprint)
        return own if behind is None else behind if own is None else behind.with_others(own)

    def add(self, placed: Placed) -> Impact:
        """Take a new entry of the path in, in one of these incarnations."""
        entry = placed.entry
        if (
            placed.kind is EntryKind.KEY
            or entry.action is Action.MKDIR
            or (placed.kind is EntryKind.SUCCESSOR and entry.parent not in self._forest.states)
        ):
            return Impact.ENDS
        if placed.kind is EntryKind.CHILD:
            self._forest.heads.append(placed)
        else:
            self._forest.successors.setdefault(entry.parent, []).append(placed)
        self._forest.states[entry.hash] = entry
        _note_revert(self._named, placed)
        changed = self._update_states(placed)
        if changed is None:
            return Impact.ENDS
        forks: dict[EntryHash | None, None] = {}
        for one in changed:
            self._count(one, forks)
        for fork in forks:
            self._follow(fork)
        return Impact.TAKEN if entry.hash in self._counting or len(changed) > 1 else Impact.IDLE

    def _update_states(self, placed: Placed) -> list[Placed] | None:
        """Find the state of a new entry, and of those that depend on it; returns these.

        `None` if any was complete and is not any more, which no arrival of an entry of this path can cause, or is a
        removal.
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
            if state.kind is Kind.ABSENT or (known is not None and known.complete and not state.complete):
                return None
            states[hash] = state
            changed.append(one)
            todo += self._forest.successors.get(hash, ())
            todo += self._named.get(hash, ())
        return changed

    def _count(self, placed: Placed, forks: dict[EntryHash | None, None]) -> None:
        """Let an entry count if it does by itself; `forks` gets the entries behind which another branch wins then."""
        entry = placed.entry
        own = self._signed_by(entry.fingerprint)
        if own is None or entry.hash in self._counting or not self._walk.states[entry.hash].complete:
            return
        self._counting[entry.hash] = own
        hash, above = entry.hash, self._above(placed)
        while True:
            if self._compare(hash, above):
                forks[above] = None
            if above is None:
                return
            before, signed = self._counting.get(above), self._counting[hash]
            after = self._with_own(self._forest.states[above], signed) if before is None else before.with_others(signed)
            if after is None or after is before:
                return
            self._counting[above] = after
            hash, above = above, self._parent(self._forest.states[above])

    def _parent(self, entry: Entry) -> EntryHash | None:
        """The entry before one of this path; `None` before a first one."""
        return entry.parent if entry.parent in self._forest.states else None

    def _compare(self, first: EntryHash, fork: EntryHash | None) -> bool:
        """Compare a branch that is new, or has risen, with the best one; returns whether another one wins now."""
        contributors = self._counting[first]
        rank = -contributors.best, contributors.keys.bit_count(), first
        best = self._best.get(fork)
        if best is not None and best.rank > rank:
            return False
        self._best[fork] = _Winner(rank, first)
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


class Idlers:
    """A path of any kind, which takes in what counts for nothing there, and ends with any other entry.

    Attributes:
        directory: as of a `Crowd`.
        looks_below: whether entries below the path may decide its outcome.
    """

    def __init__(self, walk: Walk, outcome: Outcome | None) -> None:
        """`walk`: belongs to this object from here on; `outcome`: of the path."""
        forest = walk.forest
        self.directory = walk.directory
        self._outcome = outcome
        self._successors = forest.successors
        #: Entry -> the keys valid there; where a deleted path begins again, those of before, which are no fewer.
        self._authorities = walk.authorities
        self._counting = {hash for hash, found in walk.branches.items() if found is not None}
        #: Grant or revoke -> the entry on which it hangs.
        self._owners = {key.hash: owner for owner, keys in forest.hanging.items() for key in keys}
        self._hung = set(forest.hanging)
        #: The entries that the walk has seen.
        self._walked = set(walk.states)
        self._named: dict[EntryHash, list[Placed]] = {}
        for placed in (one for some in forest.successors.values() for one in some):
            _note_revert(self._named, placed)
        self.looks_below = any(
            found.from_below if found is not None else forest.states[hash].action is Action.MKDIR
            for hash, found in walk.branches.items()
        )
        walk.branches.clear()

    def __len__(self) -> int:
        return len(self._authorities) + len(self._owners)

    @classmethod
    def of(cls, walk: Walk, outcome: Outcome | None) -> Idlers | None:
        """What a walk has found; `None` where that is not worth the memory."""
        forest = walk.forest
        count = len(forest.states) + sum(map(len, forest.hanging.values()))
        if not LEAST <= count <= MOST or len(walk.states) != len(forest.states):
            return None
        return cls(walk, outcome)

    def outcome(self) -> Outcome | None:
        """The outcome of the path."""
        return self._outcome

    def add(self, placed: Placed) -> Impact:
        """Take a new entry of the path in, in one of these incarnations."""
        if placed.kind is EntryKind.KEY:
            return Impact.IDLE if self._add_key(placed.entry) else Impact.ENDS
        if not self._add_state(placed):
            return Impact.ENDS
        # Links may name a revert whose state that changes.
        return Impact.TAKEN if placed.entry.hash in self._named else Impact.IDLE

    def _add_key(self, entry: Entry) -> bool:
        owner = self._owners.get(entry.parent, entry.parent)
        authority = self._authorities.get(owner)
        if authority is None:
            return False
        if owner not in self._walked:
            is_idle = not authority.allows(entry.fingerprint)
        else:
            # A key that is valid vouches for what it hangs anything on.
            is_idle = owner in self._hung and authority.ignores(entry)
            is_idle = is_idle and (owner in self._counting or not authority.allows(entry.fingerprint))
            if self._outcome is not None and len(self._outcome.directories) > 1:
                is_idle = is_idle and self._outcome.authority.ignores(entry)
        self._owners[entry.hash] = owner
        self._hung.add(owner)
        return is_idle

    def _add_state(self, placed: Placed) -> bool:
        entry = placed.entry
        self.looks_below |= entry.action is Action.MKDIR
        authority = self.directory.authority if placed.kind is EntryKind.CHILD else self._authorities.get(entry.parent)
        if entry.action is Action.REVERT:
            authority = self._authorities.get(EntryHash(entry.content), authority)
        if authority is None or authority.allows(entry.fingerprint):
            return False
        self._authorities[entry.hash] = authority
        if placed.kind is EntryKind.SUCCESSOR:
            self._successors.setdefault(entry.parent, []).append(placed)
        _note_revert(self._named, placed)
        return self._pass_on(entry.hash)

    def _pass_on(self, hash: EntryHash) -> bool:
        """Give reverts that name an entry its keys, and what builds on them; returns whether all of it stays idle."""
        todo = [(one, self._authorities[hash]) for one in self._named.get(hash, ())]
        while todo:
            placed, authority = todo.pop()
            entry = placed.entry
            if entry.hash in self._counting or entry.hash in self._hung or authority.allows(entry.fingerprint):
                return False
            if self._authorities[entry.hash] is authority:
                continue
            self._authorities[entry.hash] = authority
            todo += [(one, authority) for one in self._named.get(entry.hash, ())]
            for one in self._successors.get(entry.hash, ()):
                is_given = one.entry.action is Action.REVERT and one.entry.content in self._authorities
                if not is_given:
                    todo.append((one, authority))
        return True


def _note_revert(named: dict[EntryHash, list[Placed]], placed: Placed) -> None:
    """Note what an entry names, if it is a revert."""
    if placed.entry.action is Action.REVERT:
        named.setdefault(EntryHash(placed.entry.content), []).append(placed)


class Crowds:
    """The paths of one log that are kept, those that were used last, by their ids."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Crowd | Idlers] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._known)

    def find(self, path_id: int, directory: MergedDirectory) -> Crowd | Idlers | None:
        """What is kept of a path in these incarnations of its directory, with the keys valid there."""
        crowd = self._known.get(path_id)
        if crowd is None or crowd.directory == directory:
            return crowd
        self.drop(path_id)
        return None

    def keep(self, path_id: int, crowd: Crowd | Idlers) -> None:
        """Keep a path, instead of those that were used least lately."""
        self.drop(path_id)
        self._known[path_id] = crowd
        self._size += len(crowd)
        self._bound()

    def add(self, placed: Placed) -> Impact:
        """Take a new entry of the log in where its path is kept."""
        crowd = self._known.pop(placed.path_id, None)
        if crowd is None:
            return Impact.ENDS
        self._size -= len(crowd)
        is_outside = placed.kind is EntryKind.ANNOTATION or placed.directory not in crowd.directory.mkdirs
        impact = Impact.TAKEN if is_outside else crowd.add(placed)
        if impact is not Impact.ENDS:
            self._known[placed.path_id] = crowd
            self._size += len(crowd)
            self._bound()
        return impact

    def outcomes(self) -> list[tuple[int, Outcome | None]]:
        """What is kept, as the ids of the paths with their outcomes."""
        return [(path_id, crowd.outcome()) for path_id, crowd in self._known.items()]

    def drop_above(self, path_ids: Iterable[int]) -> None:
        """Forget those of these paths that look at what is below them, where something is another one."""
        for path_id in path_ids:
            crowd = self._known.get(path_id)
            if isinstance(crowd, Idlers) and crowd.looks_below:
                self.drop(path_id)

    def drop(self, path_id: int) -> None:
        """Forget a path, of which something else changes than that it has a new entry."""
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
