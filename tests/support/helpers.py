"""What the tests of log, view and replica share: fixed keys, a filesystem born without chance, and a small network.

Nothing here depends on time or chance: keys come from fixed seeds, clocks count, and the root entry has a fixed nonce,
so that a failing example fails again.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import random
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from basefs.log.blocks import Block, Encoded, split
from basefs.log.content import LARGE_CONTENT, BytesContent, Content, FileContent
from basefs.log.entries import ROOT_NAME, Action, Entry
from basefs.log.extensions import NO_EXTENSIONS, Extensions, Recovery, RecoveryKeys
from basefs.log.hashes import HASH_SIZE, BlockHash, EntryHash
from basefs.log.keys import SigningKey
from basefs.log.recovery import message
from basefs.path import Path
from basefs.replica.replica import LOG_FILE, Applied, Replica
from basefs.view.states import Kind, Owner
from basefs.view.tree import Node as ViewNode

NONCE = bytes(range(HASH_SIZE))
BIRTH = 1_000_000_000


def make_key(name: str) -> SigningKey:
    """The key that always has this name."""
    return SigningKey.from_seed(hashlib.sha256(name.encode()).digest())


ROOT_KEY = make_key("root")
ALICE = make_key("alice")
BOB = make_key("bob")
CAROL = make_key("carol")
DAVE = make_key("dave")
STRANGER = make_key("stranger")
#: Keys that recoveries make the root key, and the recovery keys, of which two do.
HEIR = make_key("heir")
SECOND_HEIR = make_key("second heir")
GUARDIANS = tuple(make_key(f"guardian {number}") for number in (1, 2, 3))
KEY_NAMES = {
    key.fingerprint: name
    for name, key in [
        ("root", ROOT_KEY),
        ("alice", ALICE),
        ("bob", BOB),
        ("carol", CAROL),
        ("dave", DAVE),
        ("stranger", STRANGER),
        ("heir", HEIR),
        ("second heir", SECOND_HEIR),
    ]
}


def path(text: str) -> Path:
    """`"/a/b"` as names."""
    return tuple(part.encode() for part in text.split("/") if part)


def noise(seed: int, size: int) -> bytes:
    """Bytes that do not compress, always the same ones."""
    return hashlib.shake_128(seed.to_bytes(8, "big")).digest(size)


class Clock:
    """A clock that advances by one second at each reading."""

    def __init__(self, now: float = BIRTH) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 1
        return self.now


def genesis(
    keys: Sequence[SigningKey] = (ROOT_KEY,), *, nonce: bytes = NONCE, recovery: RecoveryKeys | None = None
) -> list[Entry]:
    """The first entries of a filesystem: the root directory and a grant on it for each key, signed by the first."""
    signer = keys[0]
    extensions = NO_EXTENSIONS if recovery is None else Extensions(recovery_keys=recovery)
    entries = [signer.sign(nonce, BIRTH * 10**9, Action.MKDIR, ROOT_NAME, extensions=extensions)]
    for key in keys:
        name = KEY_NAMES.get(key.fingerprint, "key").encode()
        entries.append(signer.sign(entries[-1].hash, BIRTH * 10**9, Action.GRANT, name, key.public))
    return entries


def recovery_keys(keys: Sequence[SigningKey] = GUARDIANS, threshold: int = 2) -> RecoveryKeys:
    """The recovery keys of a root entry."""
    return RecoveryKeys(threshold, tuple(sorted(key.public for key in keys)))


def recovery_of(root: Entry, number: int, new: SigningKey, signers: Sequence[SigningKey] = GUARDIANS[:2]) -> Recovery:
    """What makes a grant of a key by itself a recovery, signed by these recovery keys."""
    keys = root.extensions.recovery_keys
    publics = () if keys is None else keys.publics
    signed = message(root.hash, number, new.public)
    signatures = {publics.index(key.public): key.secret.sign(signed) for key in signers}
    return Recovery(number, tuple(sorted(signatures.items())))


def make_replica(
    directory: pathlib.Path,
    keys: Sequence[SigningKey] = (ROOT_KEY,),
    *,
    born: Sequence[Entry] | None = None,
    identity: EntryHash | None = None,
    clock: Clock | None = None,
) -> Replica:
    """A replica with a log of its own in `directory`.

    Args:
        directory: made if it is missing.
        keys: what this node signs with.
        born: entries that it begins with; `None` is `genesis()`, and nothing is an empty log.
        identity: of the filesystem; `None` is that of what it begins with, or of `genesis()`.
        clock: `None` is a clock of its own.
    """
    directory.mkdir(parents=True, exist_ok=True)
    entries = genesis() if born is None else born
    identity = identity or next((entry for entry in entries if entry.is_root), genesis()[0]).hash
    replica = Replica.create(directory, identity, keys, clock=clock or Clock())
    applied = replica.apply(entries, [])
    assert not applied.rejected
    return replica


def content_of(file: BinaryIO) -> Content:
    """The present content of a file on disk, which must not change while this is used."""
    content = FileContent(os.dup(file.fileno()), os.fstat(file.fileno()).st_size)
    # A change shows by its key.
    return content if content.key and content.size > LARGE_CONTENT else BytesContent(content.whole())


def copy_replica(
    replica: Replica, directory: pathlib.Path, keys: Sequence[SigningKey] = (), *, clock: Clock | None = None
) -> Replica:
    """A replica that starts from a copy of another one's log: nothing but what is on disk."""
    directory.mkdir(parents=True)
    for name in (LOG_FILE, f"{LOG_FILE}-wal"):
        if (replica.directory / name).exists():
            shutil.copy(replica.directory / name, directory / name)
    return Replica(directory, keys, clock=clock or Clock())


@dataclass(frozen=True)
class Shown:
    """What a live path looks like from outside, except what each node may see differently."""

    kind: Kind
    mode: int
    owner: Owner | None
    size: int
    content: bytes
    entry: EntryHash
    mtime: int
    keys: tuple[tuple[str, int], ...]


def live_nodes(replica: Replica) -> dict[Path, ViewNode]:
    """The live tree with states and authority, which a replica shows nobody as a whole."""
    return dict(replica._tree.walk())


def keys_at(replica: Replica, names: Path) -> tuple[tuple[str, int], ...]:
    """The keys valid at a live path, each with the depth of its authority."""
    depths = replica._tree.node(names).authority.depths
    return tuple(sorted((KEY_NAMES[fingerprint], depth) for fingerprint, depth in depths.items()))


def tree_of(replica: Replica) -> dict[Path, Shown]:
    """Everything that a replica shows."""
    shown = {}
    for names, kind in replica.live_paths():
        attributes = replica.attributes(names)
        assert attributes.kind is kind
        is_directory = kind is Kind.DIRECTORY
        shown[names] = Shown(
            kind,
            attributes.mode,
            attributes.owner,
            attributes.size,
            b"" if is_directory else replica.read(names),
            attributes.entry,
            # A directory's time also follows the changes that this node saw happen in it.
            0 if is_directory else attributes.mtime,
            keys_at(replica, names),
        )
    return shown


@dataclass
class Node:
    """A replica on the network.

    Attributes:
        replica: the replica.
        entries: what its log holds, in order of arrival.
        blocks: the blocks that it made or was given.
    """

    replica: Replica
    entries: dict[EntryHash, Entry] = field(default_factory=dict)
    blocks: dict[BlockHash, Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.replica.subscribe(self._note)

    def _note(self, applied: Applied) -> None:
        self.entries.update((entry.hash, entry) for entry in applied.entries)
        self.blocks.update((block.hash, block) for block in applied.blocks)

    def receive(self, entries: Sequence[Entry], blocks: Sequence[Block], *, peer: str = "peer") -> Applied:
        """Take in a delivery."""
        self.blocks.update((block.hash, block) for block in blocks)
        applied = self.replica.apply(entries, blocks, peer=peer)
        fetch(self.replica, self.blocks)
        return applied


def in_blocks(encoded: bytes, tag: int = 0) -> tuple[bytes, list[Block]]:
    """How an entry names an encoded content that is not empty, by default one that is stored as it is; and its blocks,
    the root first.
    """
    root, blocks = split(encoded)
    return Encoded(root, tag, len(encoded)).encode(), blocks


def fetch(replica: Replica, there: Mapping[BlockHash, Block]) -> int:
    """Bring the blocks that a replica asks for from a peer that has these; returns how many."""
    count = 0
    while True:
        while replica.review_needs(at_once=True):
            # What waited here may have completed some, by which others may be needed.
            pass
        found = [there[hash] for _, hash in replica.missing_blocks(1000) if hash in there]
        if not found:
            return count
        replica.apply([], found)
        count += len(found)


@dataclass(frozen=True)
class Parcel:
    """What arrives at once."""

    entries: tuple[Entry, ...]
    blocks: tuple[Block, ...]


def parcels(
    entries: Iterable[Entry], blocks: Iterable[Block], chance: random.Random, *, duplicates: bool = True
) -> list[Parcel]:
    """A way in which a network may deliver: random order, some things twice, singly or in batches of random size."""
    things: list[Entry | Block] = [*entries, *blocks]
    if duplicates:
        things.extend(chance.sample(things, len(things) // 4))
    chance.shuffle(things)
    most = chance.choice((1, 3, 10, 1 + len(things)))
    found = []
    while things:
        count = chance.randint(1, most)
        batch, things = things[:count], things[count:]
        found.append(
            Parcel(
                tuple(thing for thing in batch if isinstance(thing, Entry)),
                tuple(thing for thing in batch if isinstance(thing, Block)),
            )
        )
    return found
