"""The view once more, simple and slow: straight from the rules (docs/authority.md, docs/formats.md,
section 3, docs/deviations.md), by plain recursion over the set of entries.

No store, no order of arrival, nothing incremental, nothing shared with `basefs.view.resolution` and `permissions`: what
both agree on is not a slip of one of them.  Only the step from one state to the next (`states.step`) is the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from basefs import path as paths
from basefs.log.entries import CHILD_ACTIONS, KEY_ACTIONS, Action, Entry
from basefs.log.keys import fingerprint_of
from basefs.view.states import ABSENT, UNKNOWN, Kind, State, step


class Depths(dict[bytes, int]):
    """Valid key -> its authority; `named`: the grants and admits in force on the nearest path that has any."""

    def __init__(self, depths: dict[bytes, int] | None = None) -> None:
        super().__init__(depths or {})
        self.named: set[Entry] = set()


#: Below any directory.
NEVER = 2**80


@dataclass(frozen=True)
class Branch:
    """Where a branch ends: its state, the merged directories, the keys there, its contributors, its first entry.

    `ends`: the directories that were merged, each with the keys that are valid in it.
    """

    state: State
    ends: tuple[tuple[bytes, Depths], ...]
    keys: Depths
    contributors: Depths
    first: bytes

    @property
    def directories(self) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys(mkdir for mkdir, _ in self.ends))

    @property
    def rank(self) -> tuple[int, bool, int, bytes]:
        highest = -min(self.contributors.values(), default=1 << 30)
        return highest, self.state.kind is not Kind.ABSENT, len(self.contributors), self.first


class Oracle:
    """What a set of entries shows.

    Attributes:
        entries: hash -> entry; the parents of all of them are among them.
        complete: whether the content of a write can be read.
    """

    def __init__(self, entries: Iterable[Entry], complete: Callable[[Entry], bool]) -> None:
        self.entries: dict[bytes, Entry] = {entry.hash: entry for entry in entries}
        self.complete = complete
        self.root = next(entry for entry in self.entries.values() if entry.is_root)
        self.place = lru_cache(None)(self._place)
        self.under = lru_cache(None)(self._under)
        self.hanging = lru_cache(None)(self._hanging)
        self.are_one = lru_cache(None)(self._are_one)
        self.root_key = lru_cache(None)(self._root_key)
        self.after = lru_cache(None)(self._after)

    def tree(self) -> dict[paths.Path, tuple[State, Depths]]:
        """Every live path: what is there, and the keys that are valid there."""
        return {names: (branch.state, branch.keys) for names, branch in self.branches().items()}

    def branches(self) -> dict[paths.Path, Branch]:
        """Every live path."""
        shown: dict[paths.Path, Branch] = {}
        todo: list[tuple[paths.Path, Branch | None]] = [((), self.path((), (b"",), self.root_key()))]
        while todo:
            names, branch = todo.pop()
            if branch is None or branch.state.kind is Kind.ABSENT:
                continue
            shown[names] = branch
            for name in self.names_under(branch.directories):
                todo.append(((*names, name), self.path((*names, name), branch.directories, branch.keys)))
        return shown

    def members(self) -> set[bytes]:
        """The public keys of those who may read."""
        live = self.branches()
        made = (e.hash for e in self.entries.values() if e.action.is_state and self.hanging(e.hash))
        lasting = [self.lasting_on(hash).named for hash in made]
        grants = set[Entry]().union(*(branch.keys.named for branch in live.values()), *lasting)
        roots = (e.content for e in self.entries.values() if fingerprint_of(e.content) in self.root_key())
        return {e.content for e in grants}.union(roots)

    def lasting_on(self, hash: bytes) -> Depths:
        """The keys valid at what an entry has made, had nothing ever been removed."""
        names, directory = self.place(hash)
        above = self.lasting_on(directory) if directory else self.root_key()
        made = [hash]
        if self.entries[hash].action is Action.MKDIR:
            made = [other for other in self.entries if other == hash or self.are_one(hash, other)]
        return granted(above, [key for each in made for key in self.hanging(each)], len(names))

    def _are_one(self, hash: bytes, other: bytes) -> bool:
        """Whether two entries have made one directory, at the same time."""
        left, right = self.entries[hash], self.entries[other]
        if left.action is not Action.MKDIR or right.action is not Action.MKDIR or left.name != right.name:
            return False
        begin = all(self.place(each.hash)[1] == each.parent for each in (left, right))
        return left.parent == right.parent or (begin and self.are_one(left.parent, right.parent))

    def _root_key(self) -> Depths:
        """The key that is valid everywhere: the first one, or that of the recovery that comes last."""
        hanging = self.hanging(self.root.hash)
        found = []
        for entry in hanging:
            recovery = entry.extensions.recovery
            if recovery is not None and any(
                other.action is Action.GRANT
                and other.content == entry.content
                and other.fingerprint == entry.fingerprint
                and self.is_behind(other, entry)
                for other in hanging
            ):
                found.append((recovery.number, entry.content))
        return Depths({fingerprint_of(max(found)[1]) if found else self.root.fingerprint: 0})

    def is_behind(self, entry: Entry, other: Entry) -> bool:
        """Whether an entry has another one among its ancestors."""
        while entry.parent in self.entries:
            entry = self.entries[entry.parent]
            if entry == other:
                return True
        return False

    # -- where entries stand ------------------------------------------------------------------------------------------

    def _place(self, hash: bytes) -> tuple[paths.Path, bytes]:
        """The path of an entry, and the mkdir under which its chain lives."""
        entry = self.entries[hash]
        if entry.is_root:
            return (), b""
        names, directory = self.place(entry.parent)
        if entry.action in CHILD_ACTIONS and self.entries[entry.parent].action is Action.MKDIR:
            return (*names, entry.name), entry.parent
        return names, directory

    def _under(self, directory: bytes) -> tuple[Entry, ...]:
        """The entries of all chains in one incarnation of a directory."""
        return tuple(entry for hash, entry in self.entries.items() if self.place(hash)[1] == directory)

    def names_under(self, directories: Iterable[bytes]) -> set[bytes]:
        """The names that were ever in a directory."""
        return {self.place(entry.hash)[0][-1] for mkdir in directories for entry in self.under(mkdir)}

    def path(self, names: paths.Path, directories: tuple[bytes, ...], keys: Depths) -> Branch | None:
        """What a path is, in these incarnations of its directory, in which these keys are valid."""
        members = [entry for mkdir in directories for entry in self.under(mkdir) if self.place(entry.hash)[0] == names]
        return Path(self, members, keys, len(names)).result()

    def _after(self, hash: bytes) -> State:
        """The state after an entry, by those before it on its path and what links among them name."""
        entry = self.entries[hash]
        if entry.action is Action.LINK:
            named = self.after(entry.content)
            return named._replace(origin=hash) if named.kind.is_linkable else UNKNOWN
        if entry.action is Action.REVERT:
            named = self.after(entry.content)
            return named if named.kind is Kind.ABSENT else named._replace(mtime=entry.mtime)
        begins = entry.is_root or (entry.action in CHILD_ACTIONS and self.entries[entry.parent].action is Action.MKDIR)
        before = ABSENT if begins else self.after(entry.parent)
        return step(before, entry, complete=entry.action is not Action.WRITE or self.complete(entry))

    def _hanging(self, hash: bytes) -> list[Entry]:
        """The grants and revokes that hang on an entry."""
        found = [entry for entry in self.entries.values() if entry.parent == hash and entry.action in KEY_ACTIONS]
        return found + [below for entry in found for below in self.hanging(entry.hash)]


class Path:
    """The entries of one path, and what they come to."""

    def __init__(self, oracle: Oracle, members: list[Entry], keys: Depths, depth: int) -> None:
        self.oracle, self.keys, self.depth = oracle, keys, depth
        self.members = {entry.hash: entry for entry in members}
        self.memo: dict[tuple[str, bytes], object] = {}
        self.keys_at = lru_cache(None)(self._keys_at)

    def heads(self) -> list[Entry]:
        return [entry for entry in self.members.values() if entry.parent not in self.members]

    def successors(self, entry: Entry) -> list[Entry]:
        return [e for e in self.members.values() if e.parent == entry.hash and e.action.is_state]

    def states(self) -> dict[bytes, State]:
        return {hash: self.state(entry) for hash, entry in self.members.items() if entry.action.is_state}

    def state(self, entry: Entry) -> State:
        """What the path is after an entry."""
        if ("state", entry.hash) not in self.memo:
            self.memo["state", entry.hash] = self._state(entry)
        found = self.memo["state", entry.hash]
        assert isinstance(found, State)
        return found

    def _state(self, entry: Entry) -> State:
        before = self.state(self.members[entry.parent]) if entry.parent in self.members else ABSENT
        if entry.action is Action.LINK:
            return self.oracle.after(entry.hash)
        if entry.action is Action.REVERT:
            target = self.members.get(entry.content)  # type: ignore[call-overload]
            state = UNKNOWN if target is None or not target.action.is_state else self.state(target)
            state = state if state.kind is Kind.ABSENT else state._replace(mtime=entry.mtime)
        else:
            complete = entry.action is not Action.WRITE or self.oracle.complete(entry)
            state = step(before, entry, complete=complete)
        return state

    def _keys_at(self, entry: Entry) -> Depths:
        """The keys valid at an entry: those granted above, and on this incarnation of the path."""
        parent = self.members.get(entry.parent)
        keys = self.keys if parent is None else self.keys_at(parent)
        if parent is not None and entry.action in CHILD_ACTIONS and self.state(parent).kind is Kind.ABSENT:
            # What is made anew does not inherit grants.
            keys = self.keys
        if entry.action is Action.REVERT:
            target = self.members.get(entry.content)  # type: ignore[call-overload]
            return keys if target is None or not target.action.is_state else self.keys_at(target)
        return granted(keys, self.oracle.hanging(entry.hash), self.depth)

    def branch(self, entry: Entry) -> Branch | None:
        """Where the branch that an entry begins ends; `None` if it has no complete, effective entry."""
        keys = self.keys_at(entry)
        own = Depths()
        if entry.fingerprint in keys:
            own[entry.fingerprint] = keys[entry.fingerprint]
        branches = [branch for e in self.successors(entry) if (branch := self.branch(e)) is not None]
        chosen = self.choose(branches)
        if chosen is not None:
            contributors = united([own, *(branch.contributors for branch in branches)])
            return replace(chosen, contributors=contributors, first=entry.hash)
        state = self.state(entry)
        if not state.complete or not (own or self.is_built_upon(entry, keys)):
            return None
        if state.kind is Kind.ABSENT and state.remains is not None:
            assert state.remains.origin is not None
            if self.lives(state.remains.origin, keys, self.depth):
                state = state.remains
        ends: tuple[tuple[bytes, Depths], ...] = ()
        if state.kind is Kind.DIRECTORY:
            assert state.origin is not None
            ends = ((state.origin, keys),)
        return Branch(state, ends, keys, own, entry.hash)

    def is_built_upon(self, entry: Entry, keys: Depths) -> bool:
        """Whether anything valid builds on an entry: a grant, or something in the directory that it makes."""
        hanging = {key.fingerprint for key in self.oracle.hanging(entry.hash)}
        if any(key in keys for key in hanging):
            return True
        return entry.action is Action.MKDIR and any(True for _ in self.below(entry.hash, keys, self.depth, heads=True))

    def below(self, mkdir: bytes, keys: Depths, depth: int, *, heads: bool = False) -> Iterable[Branch]:
        """What the paths in one incarnation of a directory are; `heads`: every branch of them that counts."""
        for path in self.paths_below(mkdir, keys, depth):
            found = [path.branch(head) for head in path.heads()] if heads else [path.result()]
            yield from (branch for branch in found if branch is not None)

    def paths_below(self, mkdir: bytes, keys: Depths, depth: int) -> Iterable[Path]:
        """The paths in one incarnation of a directory."""
        for name in self.oracle.names_under((mkdir,)):
            names = (*self.oracle.place(mkdir)[0], name)
            members = [entry for entry in self.oracle.under(mkdir) if self.oracle.place(entry.hash)[0] == names]
            yield Path(self.oracle, members, keys, depth + 1)

    def lives(self, mkdir: bytes, keys: Depths, depth: int) -> bool:
        """Whether any path in one incarnation of a directory is live."""
        return any(branch.state.kind is not Kind.ABSENT for branch in self.below(mkdir, keys, depth))

    def contributors_below(self, mkdir: bytes, keys: Depths, depth: int) -> Depths:
        found = []
        for branch in self.below(mkdir, keys, depth):
            found.append(branch.contributors)
            found += [self.contributors_below(deeper, branch.keys, depth + 1) for deeper in branch.directories]
        return united(found)

    def choose(self, branches: list[Branch]) -> Branch | None:
        """The winner, by authority, life, number of contributors and hash; directories are one."""
        if len(branches) < 2:
            return branches[0] if branches else None
        directories = sorted((b for b in branches if b.directories), key=lambda b: b.rank, reverse=True)
        others = [branch for branch in branches if not branch.directories]
        if not directories:
            return max(others, key=lambda branch: branch.rank)
        # rmdir removes the branches that it saw, and no other.
        others = [branch for branch in others if branch.state.remains is None]
        contributors = [branch.contributors for branch in directories]
        if others:
            contributors += [
                self.contributors_below(mkdir, keys, self.depth)
                for branch in directories
                for mkdir, keys in branch.ends
            ]
        merged = replace(
            directories[0],
            ends=tuple(end for branch in directories for end in branch.ends),
            contributors=united(contributors),
            first=max(branch.first for branch in directories),
        )
        return max([merged, *others], key=lambda branch: branch.rank)

    def result(self) -> Branch | None:
        """What the path is."""
        heads = [self.branch(head) for head in self.heads()]
        winner = self.choose([branch for branch in heads if branch is not None])
        if winner is not None and len(winner.directories) > 1:
            hanging = [entry for mkdir in winner.directories for entry in self.oracle.hanging(mkdir)]
            winner = replace(winner, keys=granted(self.keys, hanging, self.depth))
        return winner


def united(all_contributors: Iterable[Depths]) -> Depths:
    """Contributors together, each with its highest authority."""
    found = Depths()
    for contributors in all_contributors:
        for key, depth in contributors.items():
            found[key] = min(depth, found.get(key, depth))
    return found


def granted(above: Depths, hanging: list[Entry], depth: int) -> Depths:
    """The keys valid where these grants and revokes hang: level by level, from the keys valid above downwards."""
    if not hanging:
        return above
    known = {entry.hash: entry for entry in hanging}

    def comes_after(entry: Entry, other: Entry) -> bool:
        return entry.parent == other.hash or (entry.parent in known and comes_after(known[entry.parent], other))

    keys = Depths(above)
    #: key -> the keys from which its grants here stem
    stems: dict[bytes, set[bytes]] = {}
    counting: list[Entry] = []
    left = [entry for entry in hanging if entry.action is Action.GRANT]
    revokes = [entry for entry in hanging if entry.action is Action.REVOKE]

    def falls(grant: Entry, others: list[Entry]) -> bool:
        key = fingerprint_of(grant.content)
        granters = {grant.fingerprint, *stems.get(grant.fingerprint, ())}
        for revoke in revokes:
            if revoke.content != key or comes_after(grant, revoke):
                continue
            higher = revoke.fingerprint in above and above[revoke.fingerprint] < above.get(key, depth)
            if not (revoke.fingerprint == key or revoke.fingerprint in granters or higher):
                continue
            answers = (other for other in others if fingerprint_of(other.content) == key)
            if comes_after(revoke, grant) or not any(comes_after(answer, revoke) for answer in answers):
                return True
        return False

    while level := [entry for entry in left if entry.fingerprint in keys]:
        left = [entry for entry in left if entry not in level]
        level = standing(level, counting, falls)
        new: dict[bytes, set[bytes]] = {}
        for grant in level:
            key = fingerprint_of(grant.content)
            keys.setdefault(key, depth)
            new.setdefault(key, set()).update({grant.fingerprint}, stems.get(grant.fingerprint, ()))
        for key, granters in new.items():
            stems.setdefault(key, set()).update(granters)
        counting += level
    admits = [entry for entry in hanging if entry.action is Action.ADMIT]
    admits = [entry for entry in admits if entry.fingerprint in keys]
    keys.named = {*counting, *standing(admits, [], falls)}
    return keys


def standing(level: list[Entry], counting: list[Entry], falls: Callable[[Entry, list[Entry]], bool]) -> list[Entry]:
    """The grants of a level that do not fall, of which each may be the answer for another one."""
    while fallen := [grant for grant in level if falls(grant, counting + level)]:
        level = [grant for grant in level if grant not in fallen]
    return level
