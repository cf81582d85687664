"""Contents that share blocks, and entries that name blocks of others: what is complete follows from what a node has,
and not from why it has it, so nodes with the same entries end equal.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import UnreadableContent
from basefs.log.blocks import GOSSIP_BLOCK_DATA, Block, Encoded
from basefs.log.check import check
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash
from basefs.log.missing import ContentProgress
from basefs.replica.replica import LOG_FILE, Replica
from basefs.sync.session.result import Reason
from tests.support.examples import rarely
from tests.support.helpers import (
    ALICE,
    BOB,
    ROOT_KEY,
    copy_replica,
    fetch,
    in_blocks,
    make_replica,
    noise,
    parcels,
    path,
)
from tests.sync.helpers import Pair
from tests.view.histories import SEEDS, memory

SIZE = 200_000
NAMED, HIGH = in_blocks(noise(1, SIZE))


#: Of contents that are not fetched.
NEVER = (ContentProgress.WITHHELD, ContentProgress.SPOILED)


class Net:
    """Alice may write below /web, Bob below /low; replicas of that filesystem."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._origin = make_replica(directory / "origin", [ROOT_KEY])
        commit = self._origin.commit
        for name, key in ((b"web", ALICE), (b"low", BOB)):
            commit(lambda author, name=name: author.make_directory((name,)))  # type: ignore[misc]
            commit(lambda author, name=name, key=key: author.key_holder.grant((name,), b"k", key.public).draft)  # type: ignore[misc]
        self.web, self.low = (self._at(name) for name in (b"web", b"low"))
        self.replicas: list[Replica] = []

    def _at(self, name: bytes) -> EntryHash:
        made = self._origin.attributes((name,)).origin
        assert made is not None
        return made

    def replica(self) -> Replica:
        """One that has what all have."""
        self.replicas.append(copy_replica(self._origin, self._directory / str(len(self.replicas))))
        return self.replicas[-1]

    def restarted(self, replica: Replica) -> Replica:
        """The same one after a restart."""
        replica.close()
        again = Replica(replica.directory, [])
        self.replicas[self.replicas.index(replica)] = again
        return again

    def revoke(self) -> list[Entry]:
        """Alice's key ends."""
        web, key = path("/web"), ALICE.fingerprint
        revoke = self._origin.commit(lambda author: author.key_holder.revoke(web, b"k", key, discard=True).draft)
        return list(revoke.entries)

    def grant(self) -> list[Entry]:
        """Alice's key is valid again."""
        grant = self._origin.commit(lambda author: author.key_holder.grant(path("/web"), b"k", ALICE.public).draft)
        return list(grant.entries)

    def close(self) -> None:
        """Everything looks whole."""
        for replica in self.replicas:
            assert replica.check_view() == [] and check(replica.directory / LOG_FILE) == []
            replica.close()
        self._origin.close()


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    made = Net(tmp_path)
    yield made
    made.close()


def shown(replica: Replica) -> dict[tuple[bytes, ...], tuple[object, ...]]:
    """The files of a replica, each with its entry, and with its content or `None` where that cannot be read."""
    found: dict[tuple[bytes, ...], tuple[object, ...]] = {}
    for names, _ in replica.live_paths():
        attributes = replica.attributes(names)
        content: object = None
        with contextlib.suppress(UnreadableContent, IsADirectoryError):
            content = replica.read(names) if attributes.content is not None else b""
        found[names] = (attributes.entry, attributes.size, content)
    return found


def lacking(replica: Replica) -> dict[EntryHash, ContentProgress]:
    """The writes that are not complete."""
    return {entry.hash: found.progress for _, entry, found in replica.incomplete()}


def settle(*replicas: Replica) -> int:
    """Sessions, in turns, until they bring nothing more; returns the bytes of the last one."""
    before: object = None
    last = 0
    while True:
        now = [(replica.digest(), lacking(replica), replica.totals()["blocks"]) for replica in replicas]
        if now == before:
            return last
        before = now
        for left, right in itertools.permutations(replicas, 2):
            pair = Pair(left, right)
            for result in pair.run():
                assert result.reason is Reason.COMPLETE and not result.counters.rejected, result
            last = pair.bytes
        for replica in replicas:
            replica.review_needs(at_once=True)


def are_equal(*replicas: Replica) -> None:
    """They have and show the same, and lack the same of what any of them might show."""
    one, *others = [
        (
            replica.digest(),
            shown(replica),
            {
                write
                for write, state in lacking(replica).items()
                if state not in (ContentProgress.WITHHELD, ContentProgress.SPOILED)
            },
        )
        for replica in replicas
    ]
    assert all(other == one for other in others)


@pytest.mark.parametrize("asks_first", [False, True])
@pytest.mark.parametrize("ours_first", [False, True])
def test_an_entry_that_names_a_withheld_content_brings_it(net: Net, asks_first: bool, ours_first: bool) -> None:
    """Bob's entry, before and behind that of Alice, whose key ends."""
    one, other = net.replica(), net.replica()
    high = ALICE.sign(net.web, 1, Action.WRITE, b"f", NAMED, Extensions(SIZE))
    low = BOB.sign(net.low, 1, Action.WRITE, b"f", NAMED, Extensions(SIZE))
    for entry in (high, low) if ours_first else (low, high):
        one.apply([entry], [])
        fetch(one, {block.hash: block for block in HIGH})
    revoke = net.revoke()
    one.apply(revoke, [])
    other.apply(revoke, [])
    last = settle(*((other, one) if asks_first else (one, other)))
    are_equal(one, other)
    assert last < 1000, "and say so"
    for node in (one, other):
        assert node.read(path("/low/f")) == noise(1, SIZE)


def test_a_grant_that_comes_later_brings_the_rest(net: Net) -> None:
    one, other = net.replica(), net.replica()
    high = ALICE.sign(net.web, 1, Action.WRITE, b"f", NAMED, Extensions(SIZE))
    part = BOB.sign(net.low, 1, Action.WRITE, b"f", in_blocks(HIGH[1].data)[0], Extensions(len(HIGH[1].data)))
    one.apply([high, part], HIGH)
    revoke = net.revoke()
    for node in (one, other):
        node.apply(revoke, [])
    settle(one, other)
    assert other.read(path("/low/f")) == HIGH[1].data
    assert set(lacking(other).values()) == {ContentProgress.WITHHELD} and other.totals()["blocks"] < 5
    one.apply(net.grant(), [])
    settle(one, other)
    are_equal(one, other)
    assert not lacking(other) and other.read(path("/web/f")) == noise(1, SIZE)


def test_a_content_that_counts_no_more_stops_on_its_way(net: Net) -> None:
    one, other = net.replica(), net.replica()
    content = noise(1, 12_000_000)
    named, blocks = in_blocks(content)
    high = ALICE.sign(net.web, 1, Action.WRITE, b"f", named, Extensions(len(content)))
    one.apply([high], blocks)
    revoke, pair = net.revoke(), Pair(one, other)

    def stop() -> None:
        if other.totals()["blocks"] > 40:
            other.apply(revoke, [])
            other.review_needs(at_once=True)

    pair.run(stop)
    assert other.totals()["blocks"] < 200
    settle(one, other)
    are_equal(one, other)


#: Contents of small parts, of which some are the same; and what is false or true about the length.
CONTENTS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=4)
#: A write: whose, a name or what it builds on, its content or which block of it, and the length that it states.
WRITES = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 5), st.integers(0, 30), st.sampled_from(["true", 1, 511, 600, 3000, 40_000])
    ),
    min_size=2,
    max_size=8,
)


def content_of(parts: list[int]) -> bytes:
    """Some of six parts, the last one shorter."""
    return b"".join(noise(part, GOSSIP_BLOCK_DATA) for part in parts)[: -1 - parts[-1]]


def written(
    net: Net, contents: list[list[int]], blocks: list[Block], writes: list[tuple[bool, int, int, str | int]]
) -> list[Entry]:
    """Writes that name contents as they are, and blocks of them as if they were others; some build on one before."""
    entries: list[Entry] = []
    for made, (by_alice, where, which, length) in enumerate(writes):
        key, directory = (ALICE, net.web) if by_alice else (BOB, net.low)
        data = content_of(contents[which % len(contents)])
        named, size = in_blocks(data, which % 2 * 3)[0], len(data)
        if isinstance(length, int):
            named, size = Encoded(blocks[which % len(blocks)].hash, 0, length).encode(), length
        before = [entry for entry in entries if entry.fingerprint == key.fingerprint]
        parent, name = directory, b"%d" % (where % 3)
        if where > 3 and before:
            parent, name = before[-1].hash, before[-1].name
        entries.append(key.sign(parent, made, Action.WRITE, name, named, Extensions(size)))
    return entries


@pytest.mark.logs("cannot be read")
@rarely
@given(CONTENTS, WRITES, SEEDS)
def test_replicas_end_equal_whatever_came_in_which_order(
    contents: list[list[int]], writes: list[tuple[bool, int, int, str | int]], seed: int
) -> None:
    chance = random.Random(seed)
    blocks = [block for parts in contents for block in in_blocks(content_of(parts))[1]]
    with tempfile.TemporaryDirectory(dir=memory()) as directory, contextlib.closing(Net(Path(directory))) as net:
        entries = written(net, contents, blocks, writes)
        for step in range(chance.randrange(3)):
            entries += net.grant() if step % 2 else net.revoke()
        there = {block.hash: block for block in blocks}
        replicas: list[Replica] = []
        for _ in range(3):
            replica = net.replica()
            some = chance.sample(blocks, chance.randint(0, len(blocks)))
            for parcel in parcels(entries, some, chance):
                replica.apply(parcel.entries, parcel.blocks)
                if chance.random() < 0.2:
                    fetch(replica, {block.hash: block for block in chance.sample(blocks, len(blocks) // 2)})
                if chance.random() < 0.1:
                    replica = net.restarted(replica)
            if chance.random() < 0.3:
                fetch(replica, there)
            replicas.append(replica)
        settle(*replicas)
        are_equal(*replicas)
        whole = net.replica()
        for parcel in parcels(entries, (), chance):
            whole.apply(parcel.entries, ())
            fetch(whole, there)
        settle(*replicas, whole)
        are_equal(*replicas, whole)
