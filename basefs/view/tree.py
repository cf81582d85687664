"""The live tree: every path that is there now, resolved on demand and kept up to date (docs/authority.md).

Invariants

1. A loaded node equals what `Resolver` makes of its path from scratch; `check` compares the two.
2. `children` of a directory is `None` (not loaded) or holds exactly its live names.
3. After `update` was called for every entry of a transaction, and then `settle`, 1 and 2 hold again, every directory
   that was loaded is loaded, and `settle` has reported every change of a loaded path.

Memory follows the live paths that were looked at, or with `observe` all live paths.  One new entry costs the entries
of its path; a grant or revoke costs the loaded paths of its subtree.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from basefs.errors import NotADirectory, NotFound
from basefs.log.entries import KEEPING_ACTIONS, Action, Entry
from basefs.log.hashes import ZERO_HASH, EntryHash, Fingerprint
from basefs.log.placement import ROOT_PATH_ID, EntryKind, Placed
from basefs.log.store import Store
from basefs.path import Path, display
from basefs.view.changes import Change, in_order, visible
from basefs.view.contributors import Contributors
from basefs.view.permissions import Authority
from basefs.view.resolution import Resolver
from basefs.view.states import Kind, State, step
from basefs.view.walk import MergedDirectory, Outcome

#: Names that are resolved in a portion, some 3 ms.
_PORTION = 64
#: Entries that change a state but not its kind or its file: they apply without looking at the rest.
_PLAIN = KEEPING_ACTIONS | {Action.WRITE}


class Node:
    """One live path.

    Attributes:
        name: last component; empty for the root.
        path_id: id of the path in the store.
        outcome: the outcome of the path, which its next entry builds on.
        children: live names below a directory, or `None` while not loaded.
        touched: nanoseconds since 1970 of the last change of the names in a directory that this node saw; 0 while
            there is none since the directory's own last entry, which may have set its time.
    """

    __slots__ = ("children", "name", "outcome", "path_id", "touched")

    def __init__(self, name: bytes, path_id: int, outcome: Outcome) -> None:
        self.name = name
        self.path_id = path_id
        self.outcome = outcome
        self.children: dict[bytes, Node] | None = None
        self.touched = 0

    @property
    def state(self) -> State:
        """The state of the path."""
        return self.outcome.state

    @property
    def authority(self) -> Authority:
        """The keys valid at the path."""
        return self.outcome.authority

    @property
    def is_directory(self) -> bool:
        """Whether the path is a directory."""
        return self.outcome.state.kind is Kind.DIRECTORY


class _Before(NamedTuple):
    """A loaded path as it was before the transaction."""

    path_id: int
    outcome: Outcome
    touched: int


class DirtyPaths:
    """The loaded paths as they were before the transaction under way.

    Attributes:
        before: path -> its former node; `None` for nothing.
        reload: directories that were loaded, and are to be loaded again.
        late: ids of the directories that were first looked at in the transaction.
        deletes: removed path -> the delete.
    """

    def __init__(self) -> None:
        self.before: dict[Path, _Before | None] = {}
        self.reload: dict[Path, None] = {}
        self.late: set[int] = set()
        self.deletes: dict[Path, Entry] = {}

    def note(self, path: Path, node: Node | None, directory: Node | None) -> None:
        """A path is about to change.

        Args:
            path: the path.
            node: its node; `None` for nothing.
            directory: the directory that holds it; `None` for the root.
        """
        if path not in self.before:
            # Of a directory that was loaded before the transaction, and forgotten in it, all names have been noted.
            is_new = node is None or (directory is not None and directory.path_id in self.late)
            self.before[path] = None if node is None or is_new else _Before(node.path_id, node.outcome, node.touched)

    def note_below(self, path: Path, node: Node) -> None:
        """All loaded paths below a directory are about to change."""
        todo = [(path, node)]
        while todo:
            path, node = todo.pop()
            if node.children is not None:
                for name, child in node.children.items():
                    self.note((*path, name), child, node)
                    todo.append(((*path, name), child))
                self.reload[path] = None


class Tree:
    """The resolved tree of one log.  Not thread-safe: `Replica` holds its lock around every call.

    Attributes:
        resolver: resolves a path.
    """

    def __init__(self, store: Store, resolver: Resolver, *, observing: bool = False) -> None:
        """`observing`: all paths are loaded, and the first `settle` reports their creation; as after `observe`."""
        self._store = store
        self.resolver = resolver
        self._dirty = DirtyPaths()
        self._observing = observing
        #: The paths that were resolved from all that is in the log.
        self._resolved: set[Path] = set()
        #: `None` after the log could not be read.
        self._root: Node | None = Node(b"", ROOT_PATH_ID, self.resolver.root())
        if observing:
            self._dirty.reload[()] = None

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Node:
        """The node of '/'."""
        if self._root is None:
            self._root = Node(b"", ROOT_PATH_ID, self.resolver.root())
            if self._observing:
                self.observe()
        return self._root

    def find(self, path: Sequence[bytes]) -> Node | None:
        """The node at a path, or `None` where nothing is."""
        node = self.root
        for name in path:
            if not node.is_directory:
                return None
            child = self.children(node).get(name)
            if child is None:
                return None
            node = child
        return node

    def nearest(self, path: Sequence[bytes]) -> Node:
        """The node at a path, or of the nearest directory above it that is there."""
        node = self.root
        for name in path:
            child = self.children(node).get(name) if node.is_directory else None
            if child is None:
                break
            node = child
        return node

    def loaded(self, path: Sequence[bytes]) -> Node | None:
        """The node at a path as it was after the last update, if somebody has looked at it; looks nothing up."""
        node = self._root
        for name in path:
            if node is None or node.children is None:
                return None
            node = node.children.get(name)
        return node

    def node(self, path: Path) -> Node:
        """The live node at a path.  Raises `NotFound`, or `NotADirectory` if a component above is not one."""
        node = self.root
        for depth, name in enumerate(path):
            if not node.is_directory:
                raise NotADirectory(f"{display(path[:depth])} is not a directory")
            child = self.children(node).get(name)
            if child is None:
                raise NotFound(f"{display(path[: depth + 1])} does not exist")
            node = child
        return node

    def children(self, node: Node) -> dict[bytes, Node]:
        """The live names in a directory.  Callers must not change it."""
        if node.children is None:
            node.children = self._load(node)
            if self._dirty.before:
                self._dirty.late.add(node.path_id)
        return node.children

    def peek(self, node: Node) -> Iterator[list[tuple[bytes, Node]]]:
        """The live names in a directory in portions, which are not kept if nobody has looked at them before."""
        if node.children is not None:
            yield list(node.children.items())
            return
        rows = self._store.paths.below(node.path_id)
        for start in range(0, len(rows), _PORTION):
            portion: list[tuple[bytes, Node]] = []
            for row in rows[start : start + _PORTION]:
                outcome = self._resolve(node, row.id)
                if outcome is not None and outcome.state.kind is not Kind.ABSENT:
                    portion.append((row.name, Node(row.name, row.id, outcome)))
            yield portion

    def _load(self, node: Node, names: Collection[bytes] | None = None) -> dict[bytes, Node]:
        children = {}
        directory = self._inside(node)
        for row, entries in self._store.entries_under(node.path_id, directory.mkdirs, names).items():
            outcome = self.resolver.path(entries, directory)
            if outcome is not None and outcome.state.kind is not Kind.ABSENT:
                children[row.name] = Node(row.name, row.id, outcome)
        return children

    def _inside(self, node: Node) -> MergedDirectory:
        """A directory, for the paths in it.  Grants on one of these do not affect the others."""
        return node.outcome.as_directory(len(self._store.paths.path_of(node.path_id)) + 1)

    def absent(self, directory: Node, name: bytes) -> Outcome | None:
        """The last outcome of a name without a live path, so that a new entry can follow its delete; `None` if none."""
        row = self._store.paths.find(directory.path_id, name)
        if row is None:
            return None
        return self._resolve(directory, row.id)

    def some(self, directory: Node, names: Collection[bytes]) -> dict[bytes, Node]:
        """The nodes of some names in a directory, up to some hundred, which is not loaded for them."""
        if directory.children is not None:
            return {name: directory.children[name] for name in names if name in directory.children}
        return self._load(directory, names)

    def live_ends(self, path: Path) -> dict[EntryHash, Authority]:
        """The ends of a path that a delete must follow for nothing to be there, each with the keys valid there.

        These are the tips of what is shown, and the ends of the branches that have lost to that: between equals
        something beats nothing, so one of them would be shown otherwise.  None where nothing is.
        """
        above, node = self.find(path[:-1]), self.find(path)
        if above is None or node is None or not path:
            return {}
        ends = {tip.hash: keys for tip, keys in zip(node.outcome.tips, node.outcome.authorities, strict=True)}
        entries = self._store.entries_at(node.path_id, above.outcome.directories)
        parents = {one.entry.parent for one in entries if one.kind.is_state}
        if sum(one.kind.is_state and one.entry.hash not in parents for one in entries) > len(ends):
            _, walk = self.resolver.survey(entries, self._inside(above))
            ends |= {hash: walk.authorities[hash] for hash in walk.live_ends() if hash not in ends}
        return ends

    def is_newest(self, placed: Placed) -> bool:
        """Whether a write is newer than all that its path shows, by the times of signing."""
        path = self._store.paths.path_of(placed.path_id)
        above = self.find(path[:-1])
        if above is None or placed.directory not in above.outcome.directories:
            return False
        node = self.children(above).get(path[-1])
        outcome = self.absent(above, path[-1]) if node is None else node.outcome
        return outcome is None or all(tip.made < placed.entry.made for tip in outcome.tips)

    def walk(self, top: Path = ()) -> Iterator[tuple[Path, Node]]:
        """Every live path at and below one, directories before their contents."""
        node = self.find(top)
        todo: list[tuple[Path, Node]] = [] if node is None else [(top, node)]
        while todo:
            path, node = todo.pop()
            yield path, node
            if node.is_directory:
                todo.extend(((*path, name), child) for name, child in self.children(node).items())

    # -- following the log --------------------------------------------------------------------------------------------

    def update(self, accepted: Iterable[Placed], completed: Iterable[Placed], *, now: int) -> None:
        """Take in changes of the log, all of which are in the store.

        What is resolved is resolved from all of them, so each path is resolved once.

        Args:
            accepted: the entries that the store has just accepted, parents first.
            completed: the writes whose content has just become complete.
            now: UNIX seconds.
        """
        self._resolved.clear()
        for placed in accepted:
            self._update_path(placed, now, is_new=True)
        for placed in (*completed, *self._links_to(completed)):
            self._update_path(placed, now, is_new=False)

    def _links_to(self, writes: Iterable[Placed]) -> list[Placed]:
        """The links that may show the contents of these writes: to their paths, and to the paths of such links."""
        found: list[Placed] = []
        seen: set[int] = set()
        todo = [write.path_id for write in writes]
        while todo:
            path_id = todo.pop()
            if path_id not in seen:
                seen.add(path_id)
                links = self._store.links_to(path_id)
                found += links
                todo += (link.path_id for link in links)
        return found

    def _update_path(self, placed: Placed, now: int, is_new: bool) -> None:
        """Resolve the path of an entry again, unless the entry counts for nothing."""
        if placed.kind is EntryKind.ANNOTATION:
            return
        if placed.path_id == ROOT_PATH_ID:
            self._refresh_root()
            return
        if self.root.children is None and not self.root.outcome.from_below:
            # Nobody has looked at anything.
            return
        path = self._store.paths.path_of(placed.path_id)
        directories = self._directories(placed)
        node = self.root
        for position, name in enumerate(path):
            is_last = position == len(path) - 1
            is_shown = directories[position] in node.outcome.directories
            if is_new and self._counts_for_nothing(placed, node, is_shown):
                return
            if not is_shown or node.outcome.from_below:
                # The change is outside of the part that this directory shows, or may decide its kind.
                self._refresh_above(path[:position], now)
                return
            if node.children is None:
                return
            child = node.children.get(name)
            if child is None or is_last:
                self._refresh(path[: position + 1], node, placed if is_new and is_last else None, now)
                return
            node = child

    def _counts_for_nothing(self, placed: Placed, node: Node, is_shown: bool) -> bool:
        """Whether a new entry below a directory decides nothing: its key is not valid there, nor below.

        So whatever a key hangs below a directory after its revoke costs nothing but its place in the log.

        `is_shown`: the entry stands in an incarnation of the directory that the path shows.  Others have grants of
        their own, and may win by what happens in them.
        """
        if placed.kind is EntryKind.KEY and is_shown:
            # The first one of a path ends what it has of the keys above it, also if it gives nothing.
            return False
        # What hangs on a path makes more keys valid there, and takes none of those above away.
        valid: list[Container[Fingerprint]] = [node.authority.depths]
        if not is_shown or node.outcome.from_below:
            # Each branch is looked at with its own keys.
            valid.append(node.outcome.elsewhere)
        if not is_shown or node.outcome.from_below:
            # What is not shown is looked at with the keys that its own ancestors make valid.
            valid.append(self.resolver.authority_above(placed).depths)
        if any(placed.entry.fingerprint in keys for keys in valid):
            return False
        path_id = placed.path_id
        while path_id != node.path_id:
            signers = self.resolver.key_signers(path_id)
            if any(signer in keys for keys in valid for signer in signers):
                return False
            path_id = self._store.paths.above(path_id)
        return True

    def _directories(self, placed: Placed) -> list[EntryHash]:
        """The mkdir entries above an entry, the root's first."""
        found = []
        hash = placed.directory
        while hash != ZERO_HASH:
            found.append(hash)
            above = self._store.get(hash)
            if above is None:
                break
            hash = above.directory
        return found[::-1]

    def _refresh_above(self, path: Path, now: int) -> None:
        """Resolve a directory again, and before it those whose own outcome may hang on it."""
        chain = [self.root]
        for name in path:
            chain.append(self.children(chain[-1])[name])
        top = len(path)
        for position in range(len(path), 0, -1):
            if chain[position - 1].outcome.from_below:
                top = position - 1
        self._forget(path[:top], chain[top])
        if top == 0:
            self._refresh_root()
            return
        self._refresh(path[:top], chain[top - 1], None, now)

    def _forget(self, path: Path, node: Node) -> None:
        """Let all below a directory be resolved again."""
        self._dirty.note_below(path, node)
        node.children = None

    def _refresh_root(self) -> None:
        if () in self._resolved:
            return
        self._resolved.add(())
        outcome = self.resolver.root()
        self._dirty.note((), self.root, None)
        if outcome.authority != self.root.authority:
            self._forget((), self.root)
        self.root.outcome = outcome

    def _refresh(self, path: Path, directory: Node, placed: Placed | None, now: int) -> None:
        """Resolve one name of a loaded directory again; `placed`: because of this new entry of its own."""
        if path in self._resolved:
            return
        assert directory.children is not None
        name = path[-1]
        child = directory.children.get(name)
        self._dirty.note(path, child, directory)
        if child is not None and placed is not None and self._append(child, placed):
            return
        if child is None and placed is not None and placed.is_first:
            # Nothing is there beside it, so nothing need be read.
            path_id, outcome = placed.path_id, self._resolve(directory, placed.path_id, [placed])
        else:
            row = None if child is not None else self._store.paths.find(directory.path_id, name)
            path_id = child.path_id if child is not None else 0 if row is None else row.id
            self._resolved.add(path)
            outcome = self._resolve(directory, path_id)
        if outcome is None or outcome.state.kind is Kind.ABSENT:
            if child is not None:
                self._forget(path, child)
                del directory.children[name]
                directory.touched = now
            if outcome is not None:
                self._dirty.deletes[path] = outcome.tips[0]
            return
        if child is None:
            directory.children[name] = Node(name, path_id, outcome)
            directory.touched = now
            return
        if (
            outcome.directories != child.outcome.directories
            or outcome.authority != child.outcome.authority
            or outcome.from_below
        ):
            self._forget(path, child)
        if outcome.tips != child.outcome.tips:
            child.touched = 0
        child.outcome = outcome

    def settle(self) -> tuple[Change, ...]:
        """End a transaction: reload the loaded paths, and return their changes in an order that can be applied."""
        dirty, self._dirty = self._dirty, DirtyPaths()
        for path in sorted(dirty.reload, key=len):
            node = self.find(path)
            if node is not None and node.is_directory:
                for name, child in self.children(node).items():
                    # A new directory begins here.
                    below = (*path, name)
                    dirty.note(below, None, node)
                    seen = dirty.before[below]
                    if seen is not None and seen.outcome.tips == child.outcome.tips:
                        child.touched = seen.touched
        if self._observing:
            for path, seen in list(dirty.before.items()):
                if seen is None or seen.outcome.state.kind is not Kind.DIRECTORY:
                    self._load_below(path, dirty)
        changes: dict[Path, Change] = {}
        for path, seen in dirty.before.items():
            node = self.find(path)
            change = _compare(path, seen, node, dirty.deletes.get(path))
            if change is not None:
                changes[path] = change
        return tuple(in_order(changes.values()))

    def _load_below(self, path: Path, dirty: DirtyPaths) -> None:
        """All below a path that was no directory begins here."""
        top = self.find(path)
        todo = [] if top is None else [(path, top)]
        while todo:
            path, node = todo.pop()
            if node.is_directory:
                for name, child in self.children(node).items():
                    dirty.note((*path, name), None, node)
                    todo.append(((*path, name), child))

    def observe(self) -> None:
        """Load every path and keep it so, from now on."""
        self._observing = True
        for _ in self.walk():
            pass

    def begin_observing(self) -> list[tuple[Path, Node]]:
        """`observe` in portions: this is the first, and each directory in one is loaded by `listed`."""
        self._observing = True
        return [((), self.root)]

    def listed(self, path: Path) -> list[tuple[Path, Node]]:
        """The names in a directory; none if the directory is gone."""
        node = self.find(path)
        if node is None or not node.is_directory:
            return []
        return [((*path, name), child) for name, child in self.children(node).items()]

    def undo(self) -> None:
        """End a transaction that has failed, and of which nothing is in the log any more."""
        self._resolved.clear()
        for path in sorted(self._dirty.before, key=len):
            directory = self.loaded(path[:-1])
            if not path:
                self._refresh_root()
            elif directory is not None and directory.is_directory and directory.children is not None:
                self._refresh(path, directory, None, directory.touched)
        self.settle()

    def forget(self) -> None:
        """End a transaction after which the log could not be read: paths are resolved again when they are used."""
        self._dirty = DirtyPaths()
        self._root = None

    def rebuild(self) -> None:
        """Resolve everything again: for a log in which more has happened than new entries.  `settle` comes next."""
        self._dirty.note((), self.root, None)
        self._forget((), self.root)
        self.root.outcome = self.resolver.root()

    def _resolve(self, directory: Node, path_id: int, entries: list[Placed] | None = None) -> Outcome | None:
        """The outcome of a path below `directory`; `entries`: all entries of the path, if the caller has them."""
        inside = self._inside(directory)
        return self.resolver.path(
            self._store.entries_at(path_id, inside.mkdirs) if entries is None else entries, inside
        )

    def _append(self, node: Node, placed: Placed) -> bool:
        """Take the short way for a plain entry behind the current one; False if the long one is needed.

        A valid contributor only strengthens the branch that has won already, so every earlier choice stands.
        """
        entry, outcome = placed.entry, node.outcome
        if (
            placed.kind is not EntryKind.SUCCESSOR
            or entry.action not in _PLAIN
            or len(outcome.tips) != 1
            or entry.parent != outcome.tips[0].hash
            or not outcome.authority.allows(entry.fingerprint)
            or outcome.from_below
            or (entry.action is Action.WRITE and node.is_directory)
        ):
            return False
        if entry.action is Action.WRITE and not self.resolver.is_complete(placed):
            return True
        node.touched = 0
        own = Contributors.of(entry.fingerprint, outcome.authority.depths[entry.fingerprint])
        contributors = outcome.contributors.with_others(own)
        node.outcome = outcome._replace(
            state=step(outcome.state, entry, complete=True), tips=(entry,), contributors=contributors
        )
        return True

    def check(self) -> list[Path]:
        """Compare what is loaded or kept with paths resolved anew; returns those that differ (a bug if any)."""
        fresh = Tree(self._store, self.resolver)
        differing: list[Path] = []
        todo: list[tuple[Path, Node, Node]] = [((), self.root, fresh.root)]
        while todo:
            path, live, rebuilt = todo.pop()
            if live.outcome != rebuilt.outcome:
                differing.append(path)
            if live.children is None:
                continue
            expected = fresh.children(rebuilt) if rebuilt.is_directory else {}
            differing.extend((*path, name) for name in expected.keys() ^ live.children.keys())
            common = expected.keys() & live.children.keys()
            todo.extend(((*path, name), live.children[name], expected[name]) for name in common)
        return sorted(differing)


class Glance:
    """Looks at paths without loading the directories that hold them, and remembers those for the next path.

    Valid as long as the log does not change, but for entries whose paths it was told to `forget`.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._seen: dict[Path, Node | None] = {}

    def find(self, path: Path) -> Node | None:
        """The node at a path, or `None` where nothing is."""
        if not path:
            return self._tree.root
        if path in self._seen:
            return self._seen[path]
        directory = self.find(path[:-1])
        node = None
        if directory is not None and directory.is_directory:
            node = self._tree.some(directory, path[-1:]).get(path[-1])
        if node is None or node.is_directory:
            self._seen[path] = node
        return node

    def find_all(self, paths: Iterable[Path]) -> dict[Path, Node | None]:
        """`find` of several paths; those in one directory in one query."""
        found: dict[Path, Node | None] = {}
        names: dict[Path, list[bytes]] = {}
        for path in paths:
            if path:
                names.setdefault(path[:-1], []).append(path[-1])
            else:
                found[path] = self.find(path)
        for above, some in names.items():
            directory = self.find(above)
            is_there = directory is not None and directory.is_directory
            nodes = self._tree.some(directory, some) if directory is not None and is_there else {}
            found.update(((*above, name), nodes.get(name)) for name in some)
        return found

    def nearest(self, path: Path) -> Node:
        """The node at a path, or of the nearest directory above it that is there."""
        while (node := self.find(path)) is None:
            path = path[:-1]
        return node

    def forget(self, path: Path) -> None:
        """Look again at a path, and at all below it."""
        for known in [known for known in self._seen if known[: len(path)] == path]:
            del self._seen[known]


def _compare(path: Path, seen: _Before | None, node: Node | None, delete: Entry | None) -> Change | None:
    """The change of a path; `None` if there is none."""
    if seen is None:
        return None if node is None else Change(path, None, node.state, node.outcome.tips[0])
    if node is None:
        return Change(path, seen.outcome.state, None, delete)
    before, after = seen.outcome, node.outcome
    rights = before.authority is not after.authority and before.authority.depths.keys() != after.authority.depths.keys()
    if visible(before.state) == visible(after.state) and not rights:
        return None
    return Change(path, before.state, after.state, after.tips[0], attributes=rights)
