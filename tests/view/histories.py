"""Random histories of several nodes that write, grant, revoke, revert and synchronise: the raw material of the laws."""

from __future__ import annotations

import pathlib
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

from basefs.errors import InvalidEntry, PathError
from basefs.log.blocks import Block
from basefs.log.entries import KEY_ACTIONS, Action, Entry
from basefs.log.extensions import NO_EXTENSIONS, Extensions
from basefs.log.hashes import BlockHash, EntryHash
from basefs.log.keys import SigningKey
from basefs.log.placement import ROOT_PATH_ID
from basefs.path import Path
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.states import Kind, Owner, encode_mode
from tests.support.helpers import (
    ALICE,
    BOB,
    CAROL,
    DAVE,
    HEIR,
    ROOT_KEY,
    SECOND_HEIR,
    Clock,
    Node,
    Shown,
    copy_replica,
    genesis,
    make_replica,
    noise,
    parcels,
    recovery_keys,
    recovery_of,
)
from tests.support.names import make_link, make_symlink, rename

NAMES = (b"a", b"b", b"c")
#: Keys that are granted, revoked and used by hand.
KEYS = (ROOT_KEY, ALICE, BOB, CAROL)
#: The keys of each node.  Carol may do nothing until she is granted something.
#: Keys that recoveries make the root key, a former one among them.
HEIRS = (HEIR, SECOND_HEIR, ROOT_KEY)
NODE_KEYS = ((ROOT_KEY,), (ALICE,), (BOB, CAROL), (DAVE,))
CONTENTS = (b"", b"x", b"hello\n", noise(1, 600), noise(1, 600) + b"!", noise(2, 1200), b"line\n" * 40)
MODES = (0o644, 0o755, 0o600, 0o640)
OWNERS = (None, None, Owner(b"root", b"adm", 0, 4))
TIMES = (None, None, 5)


class Step(NamedTuple):
    """One thing that happens: `what` is the index of an action, the rest are choices, taken modulo what there is."""

    what: int
    node: int
    a: int
    b: int
    c: int


def steps(least: int = 12, most: int = 50, *, recoveries: bool = True) -> st.SearchStrategy[list[Step]]:
    """Strategy for histories; without `recoveries` the first node has the root key throughout."""
    count = len(ACTIONS) if recoveries else ACTIONS.index(World.recover)
    small = st.integers(0, 11)
    step = st.builds(Step, st.integers(0, count - 1), st.integers(0, len(NODE_KEYS) - 1), small, small, small)
    # The first kind shrinks best, the second one goes farther: a list is about twice as long as its least size.
    return st.lists(step, min_size=1, max_size=15) | st.lists(step, min_size=least, max_size=most)


class _Born(NamedTuple):
    """What every world begins with.

    Attributes:
        replica: closed; its log is what each node begins with.
        entries: what is in that log, by hash.
        daves: the grant of Dave.
        now: what the clock showed then.
        directory: holds the log, and is removed with this.
    """

    replica: Replica
    entries: dict[EntryHash, Entry]
    daves: Entry
    now: float
    directory: tempfile.TemporaryDirectory[str]


@cache
def _born() -> _Born:
    """Made once and copied: to sign and store it anew was two fifths of the time of every example."""
    directory = tempfile.TemporaryDirectory(dir=memory())
    clock = Clock()
    born = genesis((ROOT_KEY, ALICE, DAVE), recovery=recovery_keys())
    node = Node(make_replica(pathlib.Path(directory.name), (ROOT_KEY,), born=[], identity=born[0].hash, clock=clock))
    node.receive(born, [])
    node.replica.commit(lambda author: author.make_directory((b"d",)))
    node.replica.commit(lambda author: author.grant((b"d",), b"bob", BOB.public))
    node.replica.close()
    return _Born(node.replica, node.entries, born[-1], clock.now, directory)


def memory() -> pathlib.Path | None:
    """A directory that is no disk, where the system has one."""
    memory = pathlib.Path("/dev/shm")
    return memory if memory.is_dir() else None


class World:
    """Some nodes of one filesystem.

    Attributes:
        nodes: with the keys of NODE_KEYS; all begin with grants for Alice and Dave on `/` and for Bob on `/d`.
        root: the root entry.
        daves: the grant of Dave, the only one that he ever gets.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        born = _born()
        self.directory = directory
        self.daves = born.daves
        self.root = next(entry for entry in born.entries.values() if entry.is_root)
        self.nodes: list[Node] = []
        self.opened = ExitStack()
        self._copies = 0
        self._by_hand: dict[EntryHash, Entry] = {}
        for index, keys in enumerate(NODE_KEYS):
            replica = copy_replica(born.replica, directory / f"node{index}", keys, clock=Clock(born.now))
            self.nodes.append(self._kept(Node(replica, dict(born.entries))))

    @classmethod
    @contextmanager
    def temporary(cls) -> Iterator[World]:
        """A world that is gone afterwards; in memory where the system has a place for that."""
        with tempfile.TemporaryDirectory(dir=memory()) as directory:
            world = cls(pathlib.Path(directory))
            try:
                yield world
            finally:
                world.opened.close()

    def node(self, name: str, keys: tuple[SigningKey, ...] = ()) -> Node:
        """A new node with an empty log."""
        return self._kept(Node(make_replica(self.directory / name, keys, born=[], identity=self.root.hash)))

    def copy(self, node: Node) -> Node:
        """A node that starts from a copy of another one's log."""
        self._copies += 1
        return self._kept(Node(copy_replica(node.replica, self.directory / f"copy{self._copies}")))

    def _kept(self, node: Node) -> Node:
        self.opened.callback(node.replica.close)
        return node

    # -- what the nodes know together ---------------------------------------------------------------------------------

    def entries(self) -> dict[EntryHash, Entry]:
        """All signed entries, whether or not any log has admitted them."""
        known = {hash: entry for node in self.nodes for hash, entry in node.entries.items()}
        return {**self._by_hand, **known}

    def blocks(self) -> dict[BlockHash, Block]:
        """Every block that any node has."""
        return {hash: block for node in self.nodes for hash, block in node.blocks.items()}

    def carry(self, source: Node, target: Node) -> None:
        """Bring all that one node has to another, in order."""
        target.receive(list(source.entries.values()), list(source.blocks.values()))

    def deliver(
        self,
        node: Node,
        entries: dict[EntryHash, Entry],
        blocks: dict[BlockHash, Block],
        seed: int,
        check: Callable[[Node], None] = lambda node: None,
    ) -> None:
        """Bring everything to a node in some random way, and call `check` after each delivery."""
        for parcel in parcels(entries.values(), blocks.values(), random.Random(seed)):
            node.receive(parcel.entries, parcel.blocks)
            check(node)

    # -- what can happen ----------------------------------------------------------------------------------------------

    def play(self, step: Step) -> Node:
        """Let one thing happen, or nothing where the system refuses it; returns the node that it happened to."""
        node = self.nodes[step.node]
        ACTIONS[step.what](self, node, step)
        return node

    @staticmethod
    def action(step: Step) -> Callable[[World, Node, Step], None]:
        """What a step does."""
        return ACTIONS[step.what]

    def _commit(self, node: Node, make: Callable[[Author], Draft]) -> None:
        try:
            node.replica.commit(make)
        except PathError:
            # No permission, or the path is not what the step hoped for: a user would see an error too.
            return

    def pick(self, node: Node, index: int, *kinds: Kind) -> Path | None:
        found = sorted(names for names, kind in node.replica.live_paths() if not kinds or kind in kinds)
        return found[index % len(found)] if found else None

    def _new(self, node: Node, step: Step) -> Path:
        directory = self.pick(node, step.a, Kind.DIRECTORY)
        assert directory is not None, "the root is always there"
        return (*directory, NAMES[step.b % len(NAMES)])

    def make_directory(self, node: Node, step: Step) -> None:
        """mkdir."""
        self._commit(node, lambda author: author.make_directory(self._new(node, step), mode=MODES[step.c % 3 and 1]))

    def write(self, node: Node, step: Step) -> None:
        """Create or rewrite a name."""
        content = CONTENTS[step.c % len(CONTENTS)]
        self._commit(node, lambda author: author.write(self._new(node, step), content))

    def rewrite(self, node: Node, step: Step) -> None:
        """Give a file another content."""
        names = self.pick(node, step.a, Kind.FILE)
        if names is not None:
            content = CONTENTS[step.b % len(CONTENTS)]
            self._commit(node, lambda author: author.write(names, content, mode=MODES[step.c % len(MODES)]))

    def remove(self, node: Node, step: Step) -> None:
        """unlink or rmdir."""
        names = self.pick(node, step.a)
        if names:
            is_directory = node.replica.attributes(names).kind is Kind.DIRECTORY
            self._commit(node, lambda author: author.remove(names, directory=is_directory))

    def rename(self, node: Node, step: Step) -> None:
        """Move anything anywhere."""
        source = self.pick(node, step.a)
        directory = self.pick(node, step.b, Kind.DIRECTORY)
        if source and directory is not None:
            target = (*directory, NAMES[step.c % len(NAMES)])
            self._commit(node, lambda author: rename(author, source, target))

    def link(self, node: Node, step: Step) -> None:
        """Another path that begins as a file is."""
        target = self.pick(node, step.c, Kind.FILE, Kind.SYMLINK)
        if target is not None:
            self._commit(node, lambda author: make_link(author, self._new(node, step), target))

    def symlink(self, node: Node, step: Step) -> None:
        """A symbolic link."""
        self._commit(node, lambda author: make_symlink(author, self._new(node, step), b"../x" + bytes([48 + step.c])))

    def attributes(self, node: Node, step: Step) -> None:
        """chmod, chown and utimens."""
        names = self.pick(node, step.a)
        if names is not None:
            mode, owner = MODES[step.b % len(MODES)], OWNERS[step.c % len(OWNERS)]
            mtime = TIMES[step.c // len(OWNERS) % len(TIMES)]
            self._commit(node, lambda author: author.set_attributes(names, mode=mode, owner=owner, mtime=mtime))

    def grant(self, node: Node, step: Step) -> None:
        """Grant a key something."""
        names = self.pick(node, step.a)
        if names is not None:
            key = KEYS[step.b % len(KEYS)]
            self._commit(node, lambda author: author.grant(names, b"key", key.public))

    def revoke(self, node: Node, step: Step) -> None:
        """Take a key's grants back, with acks or (by hand) without."""
        names = self.pick(node, step.a)
        if names is not None:
            key = KEYS[step.b % len(KEYS)]
            self._commit(node, lambda author: author.revoke(names, b"key", key.fingerprint))

    def by_hand(self, node: Node, step: Step) -> None:
        """Sign any entry behind any other that this node knows, with any key, as a hostile key holder might."""
        known = list(node.entries.values())
        parent = known[-1 - (step.a * 12 + step.b) % len(known)]
        action = tuple(Action)[step.c % len(Action)]
        self._sign(node, parent, action, step, known)

    def revert(self, node: Node, step: Step) -> None:
        """Revert the last entry of some path to an earlier entry of that path, on whatever branch."""
        known = list(node.entries.values())
        names = self.pick(node, step.a)
        if not names:
            return
        tip = node.replica.attributes(names).entry
        same = [entry for entry in known if entry.name == names[-1] and entry.action not in KEY_ACTIONS]
        self._accept(node, KEYS[step.b % len(KEYS)], node.entries[tip], Action.REVERT, same[step.c % len(same)].hash)

    def _sign(self, node: Node, parent: Entry, action: Action, step: Step, known: list[Entry]) -> None:
        key = KEYS[step.b % len(KEYS)]
        other = known[-1 - (step.a + step.c) % len(known)]
        match action:
            case Action.GRANT:
                content = KEYS[step.a % len(KEYS)].public
            case Action.REVOKE:
                content = bytes(KEYS[step.a % len(KEYS)].fingerprint)
            case Action.LINK | Action.REVERT:
                content = bytes(other.hash)
            case Action.SLINK:
                content = b"target"
            case Action.MODE:
                content = encode_mode(0o640, None)
            case _:
                content = b""
        self._accept(node, key, parent, action, content)

    def _accept(
        self,
        node: Node,
        key: SigningKey,
        parent: Entry,
        action: Action,
        content: bytes,
        extensions: Extensions = NO_EXTENSIONS,
    ) -> None:
        is_new = parent.action is Action.MKDIR and action in (Action.MKDIR, Action.WRITE, Action.LINK, Action.SLINK)
        name = NAMES[len(content) % len(NAMES)] if is_new else parent.name
        try:
            entry = key.sign(parent.hash, 7, action, name, content, extensions)
        except InvalidEntry:
            return
        self._by_hand[entry.hash] = entry
        node.receive([entry], [])

    def recover(self, node: Node, step: Step) -> None:
        """Replace the root key, as the command does."""
        key = HEIRS[step.a % len(HEIRS)]
        dropped = [KEYS[step.b % len(KEYS)].fingerprint] if step.b >= len(KEYS) else []

        def make(author: Author) -> Draft:
            recovery = recovery_of(self.root, author.key_holder.recoveries().last + 1, key)
            return author.key_holder.recover(b"root", recovery, dropped, discard=step.c == 0).draft

        node.replica.commit(make, key=key)

    def announce(self, node: Node, step: Step) -> None:
        """Sign a recovery by hand, behind any grant or revoke on `/`, and perhaps confirm it, with nothing else."""
        key = HEIRS[step.a % len(HEIRS)]
        replica = node.replica
        places = [placed.entry for placed in replica._store.keys_at(ROOT_PATH_ID)]
        recovery = recovery_of(self.root, 1 + step.b % 3, key)
        parent = places[-1 - step.c % len(places)]
        made = key.sign(parent.hash, 7, Action.GRANT, b"root", key.public, Extensions(recovery=recovery))
        entries = [made, key.sign(made.hash, 7, Action.GRANT, b"root", key.public)][: 1 + step.b % 2]
        self._by_hand.update((entry.hash, entry) for entry in entries)
        node.receive(entries, [])

    def synchronise(self, node: Node, step: Step) -> None:
        """Bring all that another node has."""
        self.carry(self.nodes[step.a % len(self.nodes)], node)

    def gossip(self, node: Node, step: Step) -> None:
        """Bring some of what another node has, in any order."""
        other = self.nodes[step.a % len(self.nodes)]
        chance = random.Random(step.b)
        entries = [entry for entry in other.entries.values() if chance.random() < 0.7]
        blocks = [block for block in other.blocks.values() if chance.random() < 0.7]
        chance.shuffle(entries)
        node.receive(entries, blocks)


ACTIONS: tuple[Callable[[World, Node, Step], None], ...] = (
    World.make_directory,
    World.write,
    World.write,
    World.rewrite,
    World.remove,
    World.remove,
    World.rename,
    World.link,
    World.symlink,
    World.attributes,
    World.grant,
    World.revoke,
    World.by_hand,
    World.by_hand,
    World.revert,
    World.synchronise,
    World.synchronise,
    World.gossip,
    World.recover,
    World.announce,
)


SEEDS = st.integers(0, 2**32 - 1)


def plain(tree: dict[Path, Shown]) -> dict[Path, tuple[object, ...]]:
    """What users see: without keys and entries, which acks and grants change."""
    return {names: (s.kind, s.mode, s.owner, s.size, s.content, s.mtime) for names, s in tree.items()}
