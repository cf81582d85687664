"""One content's blocks serve another entry, with a size that is false: what is complete follows from what a node has,
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
from basefs.log.blocks import Block, split
from basefs.log.chains import ChainState
from basefs.log.check import check
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash
from basefs.replica.replica import LOG_FILE, Replica
from basefs.sync.session.result import Reason
from tests.support.examples import rarely
from tests.support.helpers import ALICE, BOB, ROOT_KEY, copy_replica, fetch, make_replica, noise, parcels, path
from tests.sync.helpers import Pair
from tests.view.histories import SEEDS, memory

SIZE = 200_000
HIGH = split(b"\0" + noise(1, SIZE))
#: A block of one byte whose next one is the second of these.
LOW = Block(HIGH[1].hash, b"\0")


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


def lacking(replica: Replica) -> dict[EntryHash, ChainState]:
    """The writes that are not complete."""
    return {entry.hash: found.state for _, entry, found in replica.incomplete()}


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
            replica.stall(-1000)


def are_equal(*replicas: Replica) -> None:
    """They have and show the same, and lack the same of what any of them might show."""
    one, *others = [
        (
            replica.digest(),
            shown(replica),
            {write for write, state in lacking(replica).items() if state is not ChainState.WITHHELD},
        )
        for replica in replicas
    ]
    assert all(other == one for other in others)


@pytest.mark.logs("cannot be read")
@pytest.mark.parametrize("asks_first", [False, True])
@pytest.mark.parametrize("ours_first", [False, True])
def test_a_small_entry_that_names_withheld_blocks(net: Net, asks_first: bool, ours_first: bool) -> None:
    """Bob's entry, before and behind the content of Alice that he names, of which one node has nothing."""
    one, other = net.replica(), net.replica()
    high = ALICE.sign(net.web, 1, Action.WRITE, b"f", HIGH[0].hash, Extensions(SIZE))
    low = BOB.sign(net.low, 1, Action.WRITE, b"f", LOW.hash, Extensions(1))
    for entry in (high, low) if ours_first else (low, high):
        one.apply([entry], [])
        fetch(one, {block.hash: block for block in (*HIGH, LOW)})
    revoke = net.revoke()
    one.apply(revoke, [])
    other.apply(revoke, [])
    last = settle(*((other, one) if asks_first else (one, other)))
    are_equal(one, other)
    assert last < 1000, "and say so"
    assert low.hash not in lacking(one)
    assert other.totals()["blocks"] < one.totals()["blocks"], "what nothing shows has not travelled"
    for node in (one, other):
        with pytest.raises(UnreadableContent):
            node.read(path("/low/f"))


@pytest.mark.logs("cannot be read")
def test_a_grant_that_comes_later_brings_the_rest(net: Net) -> None:
    one, other = net.replica(), net.replica()
    high = ALICE.sign(net.web, 1, Action.WRITE, b"f", HIGH[0].hash, Extensions(SIZE))
    low = BOB.sign(net.low, 1, Action.WRITE, b"f", LOW.hash, Extensions(1))
    one.apply([high, low], [*HIGH, LOW])
    revoke = net.revoke()
    for node in (one, other):
        node.apply(revoke, [])
    settle(one, other)
    assert ChainState.WITHHELD in lacking(other).values()
    one.apply(net.grant(), [])
    settle(one, other)
    are_equal(one, other)
    assert not lacking(other) and other.read(path("/web/f")) == noise(1, SIZE)


@pytest.mark.logs("cannot be read")
@pytest.mark.parametrize("asks_first", [False, True])
def test_what_an_entry_does_not_allow_does_not_travel_for_it(net: Net, asks_first: bool) -> None:
    """A content of which the other node has nothing, and entries that name it with small sizes."""
    one, other = net.replica(), net.replica()
    content = noise(1, 12_000_000)
    blocks = split(b"\0" + content)
    high = ALICE.sign(net.web, 1, Action.WRITE, b"f", blocks[0].hash, Extensions(len(content)))
    one.apply([high], blocks)
    revoke = net.revoke()
    for node in (one, other):
        node.apply(revoke, [])
    low = [
        BOB.sign(net.low, 1, Action.WRITE, b"%d" % size, blocks[size % 7].hash, Extensions(size))
        for size in (1, 3000, 3_000_000)
    ]
    for entry in low:
        one.apply([entry], [])
    pair = Pair(other, one) if asks_first else Pair(one, other)
    pair.run()
    assert pair.bytes < 6_500_000, "4 MB in base64, and what was asked for before it was seen that this is enough"
    settle(one, other)
    are_equal(one, other)


def test_a_content_that_counts_no_more_stops_on_its_way(net: Net) -> None:
    one, other = net.replica(), net.replica()
    content = noise(1, 12_000_000)
    blocks = split(b"\0" + content)
    high = ALICE.sign(net.web, 1, Action.WRITE, b"f", blocks[0].hash, Extensions(len(content)))
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


#: Bytes of data of blocks, and what is false or true about the size of a content: bytes more than it has.
BLOCK_SIZES = (1, 2, 400, 1023, 1025, 3000)
#: A chain: where its last block leads to (its own end, a block that nobody has, or into another chain), and its blocks.
CHAINS = st.lists(
    st.tuples(st.integers(0, 20), st.lists(st.sampled_from(BLOCK_SIZES), min_size=1, max_size=6)),
    min_size=1,
    max_size=4,
)
#: A write: whose, a name or what it builds on, its first block, and the size that it states.
WRITES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 30), st.sampled_from(["true", 1, 1000, 5000, 2**40])),
    min_size=2,
    max_size=8,
)


def shared_blocks(chains: list[tuple[int, list[int]]]) -> list[Block]:
    """The blocks of these chains; some begin as a delta would."""
    blocks: list[Block] = []
    for number, (where, sizes) in enumerate(chains):
        behind = BlockHash(ZERO_HASH)
        if where % 4 == 1:
            behind = Block(behind, b"lost").hash
        elif where % 4 == 2 and blocks:
            behind = blocks[where % len(blocks)].hash
        for place, size in enumerate(reversed(sizes)):
            tag = bytes(((0, 0, 3)[(where + place) % 3],))
            blocks.append(Block(behind, tag + noise(100 * number + place, size - 1)))
            behind = blocks[-1].hash
    return blocks


def length_of(first: Block, blocks: list[Block]) -> int:
    """Bytes of the chain from one block on, as far as there are blocks."""
    by_hash = {block.hash: block for block in blocks}
    length, block = 0, by_hash.get(first.hash)
    while block is not None:
        length += len(block.data)
        block = by_hash.get(block.next)
    return length


def written(net: Net, blocks: list[Block], writes: list[tuple[bool, int, int, str | int]]) -> list[Entry]:
    """Writes whose chains share blocks; some build on one before."""
    entries: list[Entry] = []
    for made, (by_alice, where, first, size) in enumerate(writes):
        key, directory = (ALICE, net.web) if by_alice else (BOB, net.low)
        block = blocks[first % len(blocks)]
        stated = max(1, length_of(block, blocks) - 1) if size == "true" else int(size)
        before = [entry for entry in entries if entry.fingerprint == key.fingerprint]
        parent, name = directory, b"%d" % (where % 3)
        if where > 3 and before:
            parent, name = before[-1].hash, before[-1].name
        entries.append(key.sign(parent, made, Action.WRITE, name, block.hash, Extensions(stated)))
    return entries


@pytest.mark.logs("cannot be read")
@rarely
@given(CHAINS, WRITES, SEEDS)
def test_replicas_end_equal_whatever_came_in_which_order(
    chains: list[tuple[int, list[int]]], writes: list[tuple[bool, int, int, str | int]], seed: int
) -> None:
    chance = random.Random(seed)
    blocks = shared_blocks(chains)
    with tempfile.TemporaryDirectory(dir=memory()) as directory, contextlib.closing(Net(Path(directory))) as net:
        entries = written(net, blocks, writes)
        for step in range(chance.randrange(3)):
            entries += net.grant() if step % 2 else net.revoke()
        replicas = [net.replica() for _ in range(3)]
        there = {block.hash: block for block in blocks}
        for replica in replicas:
            some = chance.sample(blocks, chance.randint(0, len(blocks)))
            for parcel in parcels(entries, some, chance):
                replica.apply(parcel.entries, parcel.blocks)
                if chance.random() < 0.2:
                    fetch(replica, {block.hash: block for block in chance.sample(blocks, len(blocks) // 2)})
                if chance.random() < 0.2:
                    replica.stall(-1000)
            if chance.random() < 0.3:
                fetch(replica, there)
        settle(*replicas)
        are_equal(*replicas)
        whole = net.replica()
        for parcel in parcels(entries, (), chance):
            whole.apply(parcel.entries, ())
            fetch(whole, there)
        settle(*replicas, whole)
        are_equal(*replicas, whole)
