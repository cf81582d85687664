"""Resolution: from the entries of a path to its outcome.  Everything is pure in the set of entries and blocks.

`basefs/view/walk.py` holds the rules of the paper for one path.  This module adds the properties of other paths: the
state after the entry that a link names, and the life and the contributors below a directory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from basefs.errors import DamagedLog
from basefs.log.contents import Contents
from basefs.log.entries import NAMING_ACTIONS, Action, Entry
from basefs.log.hashes import ZERO_HASH, EntryHash, Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.log.placement import ROOT_PATH_ID, EntryKind, Placed
from basefs.log.remembered import Remembered
from basefs.log.store import Store
from basefs.view.contributors import Contributors
from basefs.view.permissions import Authority
from basefs.view.states import ABSENT, UNKNOWN, Kind, State, step
from basefs.view.walk import Forest, MergedDirectory, Outcome, Walk

#: Directories, and states behind entries, that are remembered: some 200 bytes each, with extended attributes 4 kB.
_REMEMBERED = 4096
#: Directories of which those above them are remembered, and paths that were asked for, some 200 bytes each.
_REMEMBERED_PLACES = 32_768

T = TypeVar("T")

# A question about what is below a directory takes a dozen frames for each level: some 3000 for the deepest path.
sys.setrecursionlimit(max(10_000, sys.getrecursionlimit()))


class _Ancestor(NamedTuple):
    """A directory on whose path a key was ever granted: its depth, its mkdir, and as of `_Above`."""

    depth: int
    placed: Placed
    behind: EntryHash


@dataclass(frozen=True, slots=True)
class _Above:
    """A directory by its mkdir.

    Attributes:
        depth: number of components of its path.
        granted: those from the root to it on whose paths a key was ever granted; directories with the same ones share
            the tuple.
        behind: what the nearest mkdir from here upwards follows that was made again; `ZERO_HASH` if none was.  Mkdirs
            of one path with the same one are one directory, which several nodes have made.
    """

    depth: int
    granted: tuple[_Ancestor, ...]
    behind: EntryHash


@dataclass(slots=True)
class _Keys:
    """The grants, revokes and admits of one path, which may have been made many times.

    Attributes:
        hanging: mkdir or write -> those on it.
        revokes: the entry before a mkdir -> key -> signer -> mkdir behind that entry -> a revoke on it.
        united: what tells directories of a path apart (`_Above.behind`) -> those on all that are one; once asked for.
    """

    hanging: Mapping[EntryHash, Sequence[Entry]]
    revokes: dict[EntryHash, dict[bytes, dict[Fingerprint, dict[EntryHash, Entry]]]]
    united: dict[EntryHash, list[Entry]] | None = None

    @classmethod
    def of(cls, store: Store, path_id: int) -> _Keys:
        found = cls(Forest.of(store.keys_at(path_id)).hanging, {})
        for owner, entries in found.hanging.items():
            revokes = [entry for entry in entries if entry.action is Action.REVOKE]
            made = store.get(owner) if revokes else None
            if made is not None and made.entry.action is Action.MKDIR:
                behind = found.revokes.setdefault(made.entry.parent, {})
                for revoke in revokes:
                    by_signer = behind.setdefault(revoke.content, {})
                    by_signer.setdefault(revoke.fingerprint, {})[owner] = revoke
        return found

    def on(self, made: Entry) -> list[Entry]:
        """Those on what an entry has made, and revokes of their keys on what was made at the same time.

        Both may be one directory, and a revoke hangs on either.  Of those of one key by one signer, one is enough:
        nothing here comes before or behind it.
        """
        here = list(self.hanging.get(made.hash, ()))
        behind = self.revokes.get(made.parent, {}) if made.action is Action.MKDIR else {}
        keys = {bytes(fingerprint_of(entry.content)) for entry in here if entry.action is not Action.REVOKE}
        for key in keys & behind.keys():
            for found in behind[key].values():
                here += next(([revoke] for owner, revoke in found.items() if owner != made.hash), [])
        return here


class Ancestry:
    """The directories above the entries of one log.

    Which they are never changes, so a directory is looked up once for all that is in it or below it; which keys are
    valid there is found out once between two grants or revokes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[EntryHash, _Above] = {}
        self._granted = set(store.granted.paths())
        #: The ids of the paths of directories and files whose authorities were asked for, with those above them.
        self._asked: set[int] = set()
        #: By the mkdirs on whose paths a key was granted, and by the first entry of a file.
        self._authorities: dict[tuple[EntryHash, ...], Authority] = {}
        #: By the id of a path.
        self._keys: dict[int, _Keys] = {}
        #: By the id of a path: those of the authorities in which what hangs there has a part.
        self._hanging: dict[int, list[tuple[EntryHash, ...]]] = {}
        #: Those of them where nothing hangs yet.
        self._bare: set[tuple[EntryHash, ...]] = set()
        #: By the id of a path and what tells its directories apart (`_Above.behind`).
        self._lasting: dict[tuple[int, EntryHash], Authority] = {}
        #: By the first entry of a file, behind which a directory may have been made.
        self._lasting_files: dict[EntryHash, Authority] = {}
        #: By the id of a path.
        self._key_signers: dict[int, set[Fingerprint]] = {}
        #: What holds before any grant, in all of this.
        self._root: Authority | None = None
        self._version = store.keys_version
        self._seen = store.entry_count()

    def authority(self, placed: Placed, root: Authority) -> tuple[Authority, int]:
        """The keys valid above the path of an entry, and the path's depth; `root`: what holds before any grant."""
        self._begin_from(root)
        above = self._above(placed.directory)
        authority = root
        hashes: tuple[EntryHash, ...] = ()
        for depth, ancestor, _ in above.granted:
            hashes = (*hashes, ancestor.entry.hash)
            authority = self._extended(hashes, authority, ancestor, depth)
        return authority, above.depth + 1

    def key_signers(self, path_id: int) -> Collection[Fingerprint]:
        """The keys that signed grants or revokes of a path."""
        self._renew()
        known = self._key_signers.get(path_id)
        if known is None:
            known = {placed.entry.fingerprint for placed in self._store.keys_at(path_id)}
            self._key_signers[path_id] = known
        return known

    def lasting_authority(self, placed: Placed, root: Authority) -> Authority:
        """The keys valid at what an entry has made, a directory or a file, had nothing ever been removed.

        A directory that several nodes have made, here and above, has the keys of all of these.
        """
        self._begin_from(root)
        above = self._above(placed.directory)
        authority = root
        for depth, ancestor, behind in above.granted:
            authority = self._united(ancestor.path_id, behind, authority, depth)
        if placed.entry.action is Action.MKDIR:
            behind = self._above(placed.entry.hash).behind
            return self._united(placed.path_id, behind, authority, above.depth + 1)
        hash = placed.entry.hash
        if hash not in self._lasting_files:
            hanging = self._keys_of(placed.path_id).hanging.get(hash, ())
            self._lasting_files[hash] = authority.extended(hanging, above.depth + 1)
        return self._lasting_files[hash]

    def _united(self, path_id: int, behind: EntryHash, authority: Authority, depth: int) -> Authority:
        """The keys valid above a directory that several nodes have made, and those granted on any of these."""
        place = path_id, behind
        if place not in self._lasting:
            keys = self._keys_of(path_id)
            if keys.united is None:
                keys.united = {}
                for owner, entries in keys.hanging.items():
                    made = self._store.get(owner)
                    if made is not None and made.entry.action is Action.MKDIR:
                        keys.united.setdefault(self._above(owner).behind, []).extend(entries)
            self._lasting[place] = authority.extended(keys.united.get(behind, ()), depth)
        return self._lasting[place]

    def _begin_from(self, root: Authority) -> None:
        self._renew()
        if root is not self._root:
            self._root = root
            self._forget_authorities()

    def _renew(self) -> None:
        """Forget what a grant or revoke has changed, or what is too much."""
        version = self._store.keys_version
        is_full = len(self._known) + len(self._asked) > _REMEMBERED_PLACES
        is_full = is_full or len(self._authorities) + len(self._key_signers) > _REMEMBERED
        if self._version != version or len(self._lasting) + len(self._lasting_files) > _REMEMBERED:
            self._lasting.clear()
            self._lasting_files.clear()
        if self._version == version and not is_full:
            return
        is_longer = self._version[0] == version[0] and not is_full
        new = self._store.keys_behind(self._seen) if is_longer else []
        self._version, self._seen = version, self._store.entry_count()
        # The first grant on a path concerns what is there or below, and nothing else.
        fresh = {placed.path_id for placed in new if placed.entry.action is Action.GRANT} - self._granted
        if not is_longer or not fresh.isdisjoint(self._asked):
            self._known.clear()
            self._asked.clear()
            self._granted = set(self._store.granted.paths())
        elif all(map(self._is_ignored, new)):
            self._granted |= fresh
            for placed in new:
                self._keys.pop(placed.path_id, None)
                if placed.path_id in self._key_signers:
                    self._key_signers[placed.path_id].add(placed.entry.fingerprint)
            return
        self._granted |= fresh
        self._forget_authorities()
        self._key_signers.clear()

    def _forget_authorities(self) -> None:
        self._authorities.clear()
        self._lasting.clear()
        self._lasting_files.clear()
        self._keys.clear()
        self._hanging.clear()
        self._bare.clear()

    def _is_ignored(self, placed: Placed) -> bool:
        """Whether a new grant, revoke or admit changes none of the authorities that are remembered."""
        places = self._hanging.get(placed.path_id, ())
        return all(place not in self._bare and self._authorities[place].ignores(placed.entry) for place in places)

    def _extended(self, place: tuple[EntryHash, ...], authority: Authority, placed: Placed, depth: int) -> Authority:
        """The keys valid above an entry and those granted on it, by a name that stands for both."""
        known = self._authorities.get(place)
        if known is None:
            hanging = self._keys_of(placed.path_id).on(placed.entry)
            known = authority.extended(hanging, depth)
            self._authorities[place] = known
            self._hanging.setdefault(placed.path_id, []).append(place)
            if not hanging:
                self._bare.add(place)
        return known

    def _keys_of(self, path_id: int) -> _Keys:
        keys = self._keys.get(path_id)
        if keys is None:
            keys = self._keys[path_id] = _Keys.of(self._store, path_id)
        return keys

    def _above(self, directory: EntryHash) -> _Above:
        unknown: list[Placed] = []
        found = _Above(-1, (), EntryHash(ZERO_HASH))
        is_whole = True
        while directory != ZERO_HASH:
            known = self._known.get(directory)
            if known is not None:
                found = known
                break
            ancestor = self._store.get(directory)
            if ancestor is None:
                # Damaged: what is below may be looked at, and remembered once it is repaired.
                is_whole = False
                break
            unknown.append(ancestor)
            directory = ancestor.directory
        for ancestor in reversed(unknown):
            depth = found.depth + 1
            self._asked.add(ancestor.path_id)
            behind = ancestor.entry.parent if ancestor.kind is EntryKind.SUCCESSOR else found.behind
            here = (_Ancestor(depth, ancestor, behind),) if ancestor.path_id in self._granted else ()
            found = _Above(depth, found.granted + here, behind)
            if is_whole:
                self._known[ancestor.entry.hash] = found
        return found


class _Answers(Generic[T]):
    """The answers to one question about what is below directories: by the directory, and the keys valid in it."""

    def __init__(self) -> None:
        self._found: dict[tuple[EntryHash, ...], list[tuple[Authority, T]]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def clear(self) -> None:
        """Forget all of them."""
        self._found.clear()

    def of(self, directory: MergedDirectory) -> T | None:
        """The answer, if it is known."""
        answers = self._found.get(directory.mkdirs, ())
        return next((answer for authority, answer in answers if authority == directory.authority), None)

    def note(self, directory: MergedDirectory, answer: T) -> None:
        """It was found."""
        self._found.setdefault(directory.mkdirs, []).append((directory.authority, answer))


class Resolver:
    """Resolves paths of one log."""

    def __init__(self, store: Store, contents: Contents) -> None:
        """Raises `DamagedLog` if the root entry cannot be read."""
        root = store.root()
        if root is None:
            raise DamagedLog(
                f"the root entry of {store.database.path} is missing or damaged: fetch it with 'basefs get'"
            )
        self._store = store
        self._lineages = contents.lineages
        self._root = root
        #: The root key, the version of the keys of the log in which that was found, the number of its last entry, and
        #: whether there was a recovery.
        self._root_authority = Authority.of_root_key(root)
        self._rooted: tuple[tuple[int, int] | None, int, bool] = None, 0, False
        self._ancestry = Ancestry(store)
        #: Entry -> the state of its path after it, as if all contents were here; that never changes.
        self._states: Remembered[EntryHash, State] = Remembered(_REMEMBERED)
        #: What is known of what is below directories, and the version of the log in which that holds.
        self._effective = _Answers[bool]()
        self._alive = _Answers[bool]()
        self._contributors = _Answers[Contributors]()
        self._version = store.version
        #: How many questions are being answered, one because of the other.
        self._asked = 0

    def root_authority(self) -> Authority:
        """The authority before any grant: the root key."""
        known, seen, is_recovered = self._rooted
        version = self._store.keys_version
        if known == version or self._root.extensions.recovery_keys is None:
            # Without recovery keys it is always the same one.
            return self._root_authority
        if known is not None and known[0] == version[0] and not is_recovered:
            new = self._store.keys_behind(seen)
            if all(placed.entry.extensions.recovery is None for placed in new):
                self._rooted = version, self._store.entry_count(), False
                return self._root_authority
        hanging = [placed.entry for placed in self._store.keys_at(ROOT_PATH_ID)]
        is_recovered = any(entry.extensions.recovery is not None for entry in hanging)
        self._rooted = version, self._store.entry_count(), is_recovered
        found = Authority.of_root_key(self._root, hanging)
        if found != self._root_authority:
            # Otherwise the same object, of which others know that it has not changed.
            self._root_authority = found
        return self._root_authority

    def is_allowed(self, write: Placed) -> bool:
        """Whether the key of a write that comes is valid above it by its own ancestors."""
        return self.authority_above(write).allows(write.entry.fingerprint)

    def root_directory(self) -> MergedDirectory:
        """What holds the root directory."""
        return MergedDirectory((EntryHash(ZERO_HASH),), self.root_authority(), 0)

    def root(self) -> Outcome:
        """The outcome of the root directory."""
        outcome = self.path(self._store.entries_at(ROOT_PATH_ID), self.root_directory())
        assert outcome is not None, "the root key is always valid, so the root is always there"
        return outcome

    def path(self, entries: Sequence[Placed], directory: MergedDirectory) -> Outcome | None:
        """The outcome of a path.

        Args:
            entries: all entries of the path, parents first.
            directory: that holds it.

        Returns `None` where no entry counts; a deleted path has an outcome with an absent state.
        """
        forest = Forest.of(entries, directory.mkdirs)
        return self._result(Walk(self, forest, directory)) if forest.heads else None

    @staticmethod
    def _result(walk: Walk) -> Outcome | None:
        winner = walk.winner()
        if winner is None:
            return None
        outcome = winner.outcome()
        if len(outcome.directories) > 1:
            outcome = outcome._replace(authority=walk.united(outcome.directories))
        # Changes below a directory that is not shown are looked at in any case.  A revert can show the directory of a
        # branch that does not count yet.
        if not walk.decided_below.isdisjoint(outcome.directories):
            outcome = outcome._replace(from_below=True)
        if walk.forest.hanging:
            elsewhere = walk.keys_besides(outcome.authority)
            outcome = outcome._replace(elsewhere=elsewhere) if elsewhere else outcome
        return outcome

    def survey(self, entries: Sequence[Placed], directory: MergedDirectory) -> tuple[Outcome | None, Walk]:
        """What `path` returns, and the walk over the path."""
        walk = Walk(self, Forest.of(entries, directory.mkdirs), directory)
        return self._result(walk), walk

    def past(self, entries: Sequence[Placed], directory: MergedDirectory, tip: EntryHash) -> Outcome | None:
        """The outcome of a path when it ended with an entry; `None` without it, other arguments as for `path`."""
        return Walk(self, Forest.of(entries, directory.mkdirs), directory).end(tip)

    def removed(self, entries: Sequence[Placed], directory: MergedDirectory) -> MergedDirectory | None:
        """The directory that a path was before it was removed; arguments as for `path`.

        `None` where no branch ends as a directory that was removed.
        """
        walk = Walk(self, Forest.of(entries, directory.mkdirs), directory)
        walk.winner()
        deleted = {one.mkdirs[0]: one.authority for one in walk.deleted}
        if not deleted:
            return None
        mkdirs = tuple(deleted)
        authority = walk.united(mkdirs) if len(mkdirs) > 1 else deleted[mkdirs[0]]
        return MergedDirectory(mkdirs, authority, directory.depth + 1)

    def is_complete(self, write: Placed) -> bool:
        """Whether the content of a write can be read."""
        return self._lineages.is_complete(write)

    def is_withheld(self, write: EntryHash) -> bool:
        """Whether the content of a write cannot be read only because some of it is not fetched, as nothing shows it."""
        return set(map(self._store.blocks.is_withheld, self._lineages.lacking(write))) == {True}

    def snapshot(self, entry: EntryHash) -> State:
        """The state of a file after an entry, whatever its path, and whether or not it counts there.

        That is a function of the entry and of those before it on its path, which never changes: so it is found once,
        and only whether the content can be read is looked up each time.  Of a directory, of nothing, and behind a
        damaged row it is not known.
        """
        passed: list[Placed] = []
        state = ABSENT
        at: EntryHash | None = entry
        while at is not None:
            known = self._states.get(at)
            if known is not None:
                state = known
                break
            placed = self._store.get(at)
            if placed is None:
                return UNKNOWN
            passed.append(placed)
            at = _origin_of_state(placed)
        for placed in reversed(passed):
            state = _behind(state, placed.entry)
            self._states.keep(placed.entry.hash, state)
        if not state.kind.is_linkable:
            return UNKNOWN
        if state.content is None:
            return state
        write = self._store.get(state.content)
        return state._replace(complete=write is not None and self.is_complete(write))

    def key_signers(self, path_id: int) -> Collection[Fingerprint]:
        """The keys that signed grants or revokes of a path."""
        return self._ancestry.key_signers(path_id)

    def authority_above(self, placed: Placed) -> Authority:
        """The keys valid in the directory that holds an entry, whether that is shown or not."""
        return self._ancestry.authority(placed, self.root_authority())[0]

    def lasting_authority(self, placed: Placed) -> Authority:
        """The keys valid at what an entry has made, a directory or a file, had nothing ever been removed."""
        return self._ancestry.lasting_authority(placed, self.root_authority())

    # These ask each other, a level of the tree deeper each time: a path has at most `MAX_DEPTH` names.

    def has_effective_below(self, directory: MergedDirectory) -> bool:
        """Whether any entry below a directory, however deep, counts."""
        return self._ask(self._effective, self._find_effective, directory)

    def has_life_below(self, directory: MergedDirectory) -> bool:
        """Whether any path below a directory, however deep, is live."""
        return self._ask(self._alive, self._find_life, directory)

    def contributors_below(self, directories: Iterable[MergedDirectory]) -> Contributors:
        """The keys valid now that signed anything below any of these directories."""
        return Contributors.united(self._ask(self._contributors, self._find_contributors, one) for one in directories)

    def _ask(self, answers: _Answers[T], find: Callable[[MergedDirectory], T], directory: MergedDirectory) -> T:
        """An answer that is known, or else found; none is forgotten while others may need it."""
        is_much = len(self._effective) + len(self._alive) + len(self._contributors) > _REMEMBERED
        if self._version != self._store.version or (is_much and not self._asked):
            self._version = self._store.version
            self._effective.clear()
            self._alive.clear()
            self._contributors.clear()
        known = answers.of(directory)
        if known is None:
            self._asked += 1
            try:
                known = find(directory)
            finally:
                self._asked -= 1
            answers.note(directory, known)
        return known

    def _find_effective(self, directory: MergedDirectory) -> bool:
        for walk in self._walks_below(directory):
            if any(branch is not None for branch in walk.branches.values()):
                return True
        return False

    def _find_life(self, directory: MergedDirectory) -> bool:
        for walk in self._walks_below(directory):
            winner = walk.winner()
            if winner is not None and winner.state.kind is not Kind.ABSENT:
                return True
        return False

    def _find_contributors(self, directory: MergedDirectory) -> Contributors:
        found: list[Contributors] = []
        for walk in self._walks_below(directory):
            outcome = self._result(walk)
            if outcome is not None:
                found.append(outcome.contributors)
                whole = outcome.as_directory(directory.depth + 1)
                found.append(self.contributors_below(whole._replace(mkdirs=(mkdir,)) for mkdir in whole.mkdirs))
        return Contributors.united(found)

    def _walks_below(self, directory: MergedDirectory) -> Iterator[Walk]:
        """The walks over the paths directly in a directory."""
        placed = self._store.get(directory.mkdirs[0])
        if placed is not None:
            for entries in self._store.entries_under(placed.path_id, directory.mkdirs).values():
                yield Walk(self, Forest.of(entries, directory.mkdirs), directory)


def _origin_of_state(placed: Placed) -> EntryHash | None:
    """The entry from whose state that after another one follows; `None` where nothing was before."""
    entry = placed.entry
    if entry.action in NAMING_ACTIONS:
        return EntryHash(entry.content)
    return entry.parent if placed.kind is EntryKind.SUCCESSOR else None


def _behind(before: State, entry: Entry) -> State:
    """The state after an entry, as if all contents were here; `before`: that from which it follows."""
    if entry.action is Action.LINK:
        return before._replace(origin=entry.hash) if before.kind.is_linkable else UNKNOWN
    if entry.action is Action.REVERT:
        return before if before.kind is Kind.ABSENT else before._replace(mtime=entry.mtime)
    return step(before, entry, complete=True)
