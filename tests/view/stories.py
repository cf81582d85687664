"""Histories told entry by entry, for tests of single rules.

A `Story` collects signed entries.  `tree` delivers them to several replicas in different orders, checks that all show
the same, and returns what they show: so every test of a rule is a test of its independence from order as well.
"""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable, Sequence

from basefs.log import codecs
from basefs.log.blocks import Block
from basefs.log.entries import Action, Entry
from basefs.log.extensions import NO_EXTENSIONS, Extensions, RecoveryKeys
from basefs.log.keys import SigningKey
from basefs.path import Path
from basefs.replica.replica import Replica
from basefs.view.states import encode_mode
from tests.support.helpers import (
    BIRTH,
    GUARDIANS,
    ROOT_KEY,
    Shown,
    fetch,
    genesis,
    in_blocks,
    make_replica,
    parcels,
    path,
    recovery_of,
    tree_of,
)

Condition = Callable[[Entry], bool]


def anything(entry: Entry) -> bool:
    """Wants nothing special."""
    return True


def above(other: Entry) -> Condition:
    """Wants an entry with a higher hash, so that it wins where nothing else decides."""
    return lambda entry: entry.hash > other.hash


def below(other: Entry) -> Condition:
    """Wants an entry with a lower hash, so that it loses where nothing else decides."""
    return lambda entry: entry.hash < other.hash


class Story:
    """Entries and blocks in the order in which they were signed.

    Attributes:
        entries: begins with the root directory and the grants of the root keys.
        blocks: of all contents.
        root: the root directory's entry.
        keys: the last grant on the root directory, behind which the next one goes.
        now: the time at which entries are signed, nanoseconds since 1970.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        keys: Sequence[SigningKey] = (ROOT_KEY,),
        recovery: RecoveryKeys | None = None,
    ) -> None:
        self.directory = directory
        self.entries = genesis(keys, recovery=recovery)
        self.blocks: list[Block] = []
        self.root = self.entries[0]
        self.keys = self.entries[-1]
        self.now = BIRTH
        self._replicas = 0

    # -- signing ------------------------------------------------------------------------------------------------------

    def sign(
        self,
        key: SigningKey,
        parent: Entry,
        action: Action,
        name: str | None = None,
        content: bytes = b"",
        extensions: Extensions = NO_EXTENSIONS,
        wanted: Condition = anything,
    ) -> Entry:
        """Add an entry.  Its time is the first one from `now` on that gives it a hash as `wanted`."""
        raw = parent.name if name is None else name.encode()
        for made in range(self.now, self.now + 1000):
            entry = key.sign(parent.hash, made, action, raw, content, extensions)
            if wanted(entry):
                self.entries.append(entry)
                return entry
        raise AssertionError("no time gives such a hash")

    def mkdir(self, key: SigningKey, parent: Entry, name: str | None = None, wanted: Condition = anything) -> Entry:
        """A directory in another one, or (behind a delete) made again."""
        return self.sign(key, parent, Action.MKDIR, name, wanted=wanted)

    def write(
        self, key: SigningKey, parent: Entry, text: bytes, name: str | None = None, wanted: Condition = anything
    ) -> Entry:
        """A file in a directory, or (without a name) a new content."""
        named = b""
        if text:
            tag, encoded = codecs.encode(text, b"", keyframe=True)
            named, blocks = in_blocks(encoded, tag)
            self.blocks.extend(blocks)
        return self.sign(key, parent, Action.WRITE, name, named, Extensions(len(text)), wanted=wanted)

    def delete(self, key: SigningKey, parent: Entry, wanted: Condition = anything) -> Entry:
        """Remove a path."""
        return self.sign(key, parent, Action.DELETE, wanted=wanted)

    def ack(self, key: SigningKey, parent: Entry) -> Entry:
        """Accept what a path is."""
        return self.sign(key, parent, Action.ACK)

    def mode(self, key: SigningKey, parent: Entry, mode: int, wanted: Condition = anything) -> Entry:
        """chmod."""
        return self.sign(key, parent, Action.MODE, content=encode_mode(mode, None), wanted=wanted)

    def link(self, key: SigningKey, parent: Entry, target: Entry, name: str | None = None) -> Entry:
        """Another name for a file."""
        return self.sign(key, parent, Action.LINK, name, target.hash)

    def slink(
        self, key: SigningKey, parent: Entry, target: bytes, name: str | None = None, wanted: Condition = anything
    ) -> Entry:
        """A symbolic link."""
        return self.sign(key, parent, Action.SLINK, name, target, wanted=wanted)

    def revert(self, key: SigningKey, parent: Entry, target: Entry, wanted: Condition = anything) -> Entry:
        """Make a path what it was at an earlier entry."""
        return self.sign(key, parent, Action.REVERT, content=target.hash, wanted=wanted)

    def grant(self, key: SigningKey, behind: Entry, whom: SigningKey) -> Entry:
        """Let a key write; `behind` is the directory, or its last grant or revoke."""
        return self.sign(key, behind, Action.GRANT, "key", whom.public)

    def admit(self, key: SigningKey, behind: Entry, whom: SigningKey) -> Entry:
        """Let a key read; `behind` as for `grant`."""
        return self.sign(key, behind, Action.ADMIT, "key", whom.public)

    def revoke(self, key: SigningKey, behind: Entry, whom: SigningKey) -> Entry:
        """Take a key's grants and admits back."""
        return self.sign(key, behind, Action.REVOKE, "key", whom.fingerprint)

    def recovery(
        self,
        key: SigningKey,
        behind: Entry | None = None,
        number: int = 1,
        signers: Sequence[SigningKey] = GUARDIANS[:2],
        wanted: Condition = anything,
    ) -> Entry:
        """Announce a new root key; it counts once `grant` follows, of the key by itself."""
        recovery = recovery_of(self.root, number, key, signers)
        extensions = Extensions(recovery=recovery)
        return self.sign(key, behind or self.keys, Action.GRANT, "root", key.public, extensions, wanted)

    def recover(self, key: SigningKey, behind: Entry | None = None, number: int = 1) -> Entry:
        """Replace the root key; returns the entry behind which the next grant goes."""
        return self.grant(key, self.recovery(key, behind, number), key)

    # -- showing ------------------------------------------------------------------------------------------------------

    def replica(
        self, *keys: SigningKey, without: Sequence[Block] = (), without_entries: Sequence[Entry] = ()
    ) -> Replica:
        """A replica that has everything, in the order of signing, but some blocks or entries."""
        self._replicas += 1
        replica = make_replica(self.directory / f"story{self._replicas}", keys, born=[], identity=self.root.hash)
        applied = replica.apply(
            [entry for entry in self.entries if entry not in without_entries],
            [block for block in self.blocks if block not in without],
        )
        assert not applied.rejected
        fetch(replica, {block.hash: block for block in self.blocks if block not in without})
        return replica

    def tree(self, *, without: Sequence[Block] = ()) -> dict[Path, Shown]:
        """What every replica shows that has everything, but some blocks."""
        replica = self.replica(without=without)
        expected = tree_of(replica)
        replica.close()
        pieces = [block for block in self.blocks if block not in without]
        for seed in range(4):
            self._replicas += 1
            other = make_replica(self.directory / f"story{self._replicas}", born=[], identity=self.root.hash)
            chance, there = random.Random(seed), {block.hash: block for block in pieces}
            for parcel in parcels(self.entries, pieces, chance):
                other.apply(parcel.entries, parcel.blocks)
                if chance.random() < 0.3:
                    fetch(other, there)
                if other.totals()["entries"]:
                    assert other.check_view() == []
                    other.live_paths()
            fetch(other, there)
            assert tree_of(other) == expected
            other.close()
        return expected

    def at(self, text: str, *, without: Sequence[Block] = ()) -> Shown | None:
        """What is at a path, or `None`."""
        return self.tree(without=without).get(path(text))

    def content(self, text: str, *, without: Sequence[Block] = ()) -> bytes | None:
        """The content of a file, or `None` if nothing is there."""
        shown = self.at(text, without=without)
        return None if shown is None else shown.content
