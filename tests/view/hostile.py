"""Hostile histories: entries that no honest node writes, by key holders who may sign anything.

Reverts and links name grants, revokes, entries of other paths, entries that come later or never, and one another;
writes are deltas on anything; keys grant and revoke one another in chains and forks; keys sign that were revoked, or
never granted.  Every entry stands where the log admits it, most of them behind recent ones, so that chains become long.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

from basefs.errors import InvalidEntry, StoreError
from basefs.log import codecs
from basefs.log.blocks import Block
from basefs.log.entries import CHILD_ACTIONS, FIRST_ANNOTATION, KEY_ACTIONS, Action, Entry
from basefs.log.extensions import NO_EXTENSIONS, Extensions
from basefs.log.hashes import HASH_SIZE, EntryHash
from basefs.log.keys import SigningKey
from basefs.path import Path
from basefs.replica.replica import Replica
from basefs.view.states import Kind, Owner, encode_mode
from tests.support.helpers import (
    ALICE,
    BIRTH,
    BOB,
    CAROL,
    DAVE,
    GUARDIANS,
    HEIR,
    ROOT_KEY,
    SECOND_HEIR,
    STRANGER,
    genesis,
    in_blocks,
    make_key,
    recovery_keys,
    recovery_of,
)

ERIN = make_key("erin")
#: Keys that recoveries make the root key, former ones among them.
HEIRS = (HEIR, HEIR, SECOND_HEIR, ALICE, ROOT_KEY)
#: Alice holds a key for `/`, Bob, Carol and Erin for `/d`, Dave one for `/d` that was revoked; the stranger has none.
#: Erin builds on what Dave and the stranger write, and names it.  The last two keys are unknown until recoveries make
#: them the root key.
KEYS = (ROOT_KEY, ALICE, BOB, BOB, CAROL, ERIN, ERIN, ERIN, DAVE, DAVE, STRANGER, HEIR, SECOND_HEIR)
NAMES = (b"a", b"d")
TEXTS = (b"", b"one\n", b"two\n", b"three " * 20)
#: What most entries are: those that name other entries, and those that begin something to be named.
_ACTIONS = (
    *(Action.REVERT,) * 8,
    *(Action.WRITE,) * 4,
    *(Action.GRANT,) * 4,
    *(Action.LINK,) * 3,
    *(Action.REVOKE,) * 3,
    Action.DELETE,
    Action.MKDIR,
    Action.MODE,
    Action.ACK,
    Action.SLINK,
    Action.NODE,
    Action.XATTR,
    *(Action.ADMIT,) * 3,
    Action(FIRST_ANNOTATION),
    Action.GOSSIP_KEY,
)


#: Beyond the actions: recoveries, and a grant or a revoke some hundred times.
_RECOVERIES = range(len(_ACTIONS), len(_ACTIONS) + 3)
_REPETITION = _RECOVERIES.stop


class Deed(NamedTuple):
    """One entry, or many of a kind: choices, taken modulo what there is.

    Attributes:
        action: index of the action; beyond them it is a recovery or a repetition.
        key: index of the key that signs.
        parent: which of the entries that it may follow, counted from the last one.
        other: which entry, or key, it names.
        name: index of the name of a new path; also the text and the base of a write.
    """

    action: int
    key: int
    parent: int
    other: int
    name: int


def deeds(most: int = 40) -> st.SearchStrategy[list[Deed]]:
    """Strategy for hostile histories."""
    # Recent entries more often, so that there are chains.
    place = st.integers(0, 3) | st.integers(0, 3) | st.integers(0, 60)
    actions, keys = range(_RECOVERIES.stop), range(len(KEYS))

    def deed(actions: Sequence[int], keys: Sequence[int]) -> st.SearchStrategy[Deed]:
        return st.builds(Deed, st.sampled_from(actions), st.sampled_from(keys), place, place, st.integers(0, 11))

    def few(choices: Sequence[int]) -> st.SearchStrategy[list[int]]:
        return st.lists(st.sampled_from(choices), min_size=1, max_size=4, unique=True)

    any_deed = deed(actions, keys)
    # Histories of few kinds of entries, by few keys, go farther with these (swarm testing).
    swarm = st.tuples(few(actions), few(keys)).flatmap(
        lambda kinds: st.lists(deed(*kinds), min_size=most // 4, max_size=most)
    )
    return st.lists(any_deed, min_size=1, max_size=10) | st.lists(any_deed, min_size=most // 2, max_size=most) | swarm


def draw_deeds(rng: random.Random, most: int) -> list[Deed]:
    """A hostile history without Hypothesis, and without recoveries."""
    places = (0, 0, 1, 2, 3, 3, 7, 20, 60)
    return [
        Deed(rng.randrange(len(_ACTIONS)), rng.randrange(60), rng.choice(places), rng.choice(places), rng.randrange(12))
        for _ in range(rng.randint(1, most))
    ]


@cache
def rivals() -> tuple[Entry, ...]:
    """A log to go on with, in which a directory was made twice at once, and a file stands beside a directory in it.

    The file wins by its hash alone, so each key that comes to count in that directory lets it win.  Dave's key does, as
    Carol has granted it there: hers counts because the two directories above are one.
    """
    born = genesis((ROOT_KEY, ALICE), recovery=recovery_keys())
    first, second = (ROOT_KEY.sign(born[0].hash, BIRTH + number, Action.MKDIR, b"d") for number in range(2))
    inner = ROOT_KEY.sign(first.hash, BIRTH, Action.MKDIR, b"a")
    files = (ROOT_KEY.sign(first.hash, BIRTH + number, Action.WRITE, b"a") for number in itertools.count())
    return (
        *born,
        first,
        second,
        ROOT_KEY.sign(first.hash, BIRTH, Action.GRANT, b"key", BOB.public),
        ROOT_KEY.sign(second.hash, BIRTH, Action.GRANT, b"key", CAROL.public),
        inner,
        CAROL.sign(inner.hash, BIRTH, Action.GRANT, b"key", DAVE.public),
        next(file for file in files if file.hash > inner.hash),
    )


@cache
def doubled() -> tuple[Entry, ...]:
    """A log to go on with, in which a directory is shown by a revert, on a branch beside its own, which does not count.

    Its own branch counts, too, as soon as anything in it does.
    """
    born = genesis((ROOT_KEY, ALICE), recovery=recovery_keys())
    theirs, ours = (key.sign(born[0].hash, BIRTH, Action.MKDIR, b"d") for key in (ALICE, ROOT_KEY))
    return (
        *born,
        theirs,
        ROOT_KEY.sign(born[-1].hash, BIRTH, Action.REVOKE, b"key", ALICE.fingerprint),
        ours,
        ROOT_KEY.sign(ours.hash, BIRTH, Action.REVERT, b"d", theirs.hash),
    )


def crowds() -> st.SearchStrategy[list[Deed]]:
    """Strategy for hostile histories in the middle of which somebody grants and revokes a key some hundred times."""
    few = deeds(12)
    small = st.integers(0, 11)
    repetition = st.builds(Deed, st.just(_REPETITION), st.integers(0, len(KEYS) - 1), small, small, small)
    return st.builds(lambda before, crowd, after: [*before, crowd, *after], few, repetition, few)


class Hostile:
    """What was signed.

    Attributes:
        entries: parents first.
        blocks: of all contents.
    """

    def __init__(self, history: list[Deed], begin: Sequence[Entry] = (), keys: Sequence[SigningKey] = KEYS) -> None:
        """`begin`: a log to go on with, parents first, instead of a filesystem of its own; `keys`: as `KEYS`."""
        self._keys = keys
        self.entries: list[Entry] = []
        self.blocks: dict[bytes, Block] = {}
        #: entry -> the directory and the name of its path
        self._homes: dict[EntryHash, tuple[EntryHash, bytes]] = {}
        if begin:
            self._go_on(begin)
        else:
            self._begin()
        for deed in history:
            self._do(deed)

    def _go_on(self, begin: Sequence[Entry]) -> None:
        known = {entry.hash: entry for entry in begin}
        for entry in begin:
            parent = known.get(entry.parent)
            self._homes[entry.hash] = (entry.hash, b"/") if parent is None else self._home(parent, entry)
        self.entries += begin

    def _home(self, parent: Entry, entry: Entry) -> tuple[EntryHash, bytes]:
        begins = parent.action is Action.MKDIR and entry.action in CHILD_ACTIONS
        return (parent.hash, entry.name) if begins else self._homes[parent.hash]

    def _begin(self) -> None:
        born = genesis((ROOT_KEY, ALICE), recovery=recovery_keys())
        self.entries += born
        self._homes.update({e.hash: (born[0].hash, b"/") for e in born})
        directory = self._add(ROOT_KEY, born[0], Action.MKDIR, b"d", b"")
        last = directory
        for key in (BOB, CAROL, DAVE, ERIN):
            last = self._add(ROOT_KEY, last, Action.GRANT, b"key", key.public)
        self._add(ROOT_KEY, last, Action.REVOKE, b"key", bytes(DAVE.fingerprint))
        for parent, name in ((born[0], b"a"), (directory, b"a")):
            self._write(ROOT_KEY, parent, name, 1)

    def _do(self, deed: Deed) -> None:
        if deed.action in _RECOVERIES:
            self._recover(deed)
            return
        if deed.action == _REPETITION:
            self._repeat(deed)
            return
        action = _ACTIONS[deed.action]
        key = self._keys[deed.key % len(self._keys)]
        around = self._near(self.entries[-1]) if deed.name % 4 else self.entries
        parents = [entry for entry in around if _may_follow(action, entry)] or self.entries[:1]
        parent = parents[-1 - deed.parent % len(parents)]
        begins = parent.action is Action.MKDIR and action in CHILD_ACTIONS
        name = NAMES[deed.name % len(NAMES)] if begins or action in KEY_ACTIONS else parent.name
        # Some pretend that they were signed earlier.
        early = 30 - deed.other if deed.name % 5 == 4 else 0
        if action is Action.WRITE:
            self._write(key, parent, name, deed.name, early)
        else:
            extensions = Extensions()
            self._add(key, parent, action, name, self._content(action, deed, parent), extensions, early)

    def _recover(self, deed: Deed) -> None:
        """A recovery, true or false, anywhere; most often its key goes on to confirm it."""
        root, key, number = self.entries[0], HEIRS[deed.key % len(HEIRS)], 1 + deed.other % 3
        around = self.entries if deed.name == 3 else self._near(root)
        parents = [entry for entry in around if _may_follow(Action.GRANT, entry)]
        parent = parents[-1 - deed.parent % len(parents)]
        signers = GUARDIANS[deed.other % 2 :][: 1 if deed.name == 4 else 2]
        recovery = recovery_of(root, number + (deed.name == 5), key, signers)
        if deed.name == 5:
            # Signed for another number.
            recovery = replace(recovery, number=number)
        last = self._add(key, parent, Action.GRANT, b"root", key.public, Extensions(recovery=recovery))
        if deed.name % 3:
            self._add(key, last, Action.GRANT, b"root", key.public)

    def _repeat(self, deed: Deed) -> None:
        """A key is granted and revoked in turn, one after the other or all behind one entry."""
        key, other = (self._keys[number % len(self._keys)] for number in (deed.key, deed.other))
        parents = [entry for entry in self.entries if _may_follow(Action.GRANT, entry)]
        parent = parents[-1 - deed.parent % len(parents)]
        for number in range(100 + 20 * deed.name):
            action = Action.REVOKE if number % 2 else Action.GRANT
            content = bytes(other.fingerprint) if number % 2 else other.public
            last = self._add(key, parent, action, b"key", content)
            if deed.name % 2:
                parent = last

    def _content(self, action: Action, deed: Deed, parent: Entry) -> bytes:
        other = self._keys[deed.other % len(self._keys)]
        match action:
            case Action.GRANT | Action.ADMIT:
                return other.public
            case Action.REVOKE:
                return bytes(other.fingerprint)
            case Action.LINK | Action.REVERT:
                if deed.other == len(KEYS):
                    # An entry that never comes.
                    return bytes((deed.name,)) * HASH_SIZE
                # Of the same path more often than of another one, grants and revokes on it included.
                named = self._near(parent) if deed.other % 4 else self.entries
                if deed.other % 8:
                    # What the log takes.
                    named = [entry for entry in named if entry.action.is_state] or named
                if action is Action.REVERT and deed.name % 11:
                    named = [entry for entry in named if self._homes[entry.hash] == self._homes[parent.hash]] or named
                return bytes(named[-1 - deed.other % len(named)].hash)
            case Action.SLINK:
                return b"target"
            case Action.NODE:
                return b"\x01"
            case Action.XATTR:
                return b"\x01a\x00\x05value"
            case Action.MODE:
                return encode_mode(0o600 + deed.name, Owner(b"root", b"adm", 0, 4) if deed.name % 2 else None)
            case Action.GOSSIP_KEY:
                return bytes(32)
            case _:
                return b""

    def _near(self, entry: Entry) -> list[Entry]:
        """The entries of the path that an entry belongs to, in one incarnation of its directory."""
        return [other for other in self.entries if self._homes[other.hash] == self._homes[entry.hash]]

    def _write(self, key: SigningKey, parent: Entry, name: bytes, choice: int, early: int = 0) -> None:
        text, base = TEXTS[choice % len(TEXTS)], TEXTS[choice // len(TEXTS)]
        codec = codecs.STORED if choice % 3 == 0 else codecs.ZSTD
        named = b""
        if text:
            named, blocks = in_blocks(codec.encode(text, base), codec.tag)
            self.blocks.update((block.hash, block) for block in blocks)
        self._add(key, parent, Action.WRITE, name, named, Extensions(len(text)), early)

    def _add(
        self,
        key: SigningKey,
        parent: Entry,
        action: Action,
        name: bytes,
        content: bytes,
        extensions: Extensions = NO_EXTENSIONS,
        early: int = 0,
    ) -> Entry:
        try:
            entry = key.sign(parent.hash, BIRTH + len(self.entries) - early, action, name, content, extensions)
        except InvalidEntry:
            return parent
        if entry.hash not in self._homes:
            self._homes[entry.hash] = self._home(parent, entry)
            self.entries.append(entry)
        return entry


def _may_follow(action: Action, parent: Entry) -> bool:
    """Whether the log lets an entry stand there."""
    if action.is_annotation or parent.action.is_annotation:
        return action.is_annotation and parent.action is not Action.GOSSIP_KEY
    if action in KEY_ACTIONS:
        return parent.action in KEY_ACTIONS or parent.action in (Action.MKDIR, Action.WRITE, Action.LINK)
    if parent.action in KEY_ACTIONS:
        return False
    begins = parent.action is Action.MKDIR and action in CHILD_ACTIONS
    return begins or not parent.is_root or action in (Action.MODE, Action.XATTR, Action.ACK)


def seen(replica: Replica) -> dict[Path, tuple[object, ...]]:
    """What users see at every path; of a content that cannot be read, that it cannot."""
    found: dict[Path, tuple[object, ...]] = {}
    for names, kind in replica.live_paths():
        it = replica.attributes(names)
        content: object
        try:
            content = b"" if kind is Kind.DIRECTORY else replica.read(names)
        except StoreError as error:
            content = type(error)
        found[names] = (kind, it.mode, it.owner, it.size, it.version, it.origin, it.mtime, content)
    return found
