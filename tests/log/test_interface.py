"""What every implementation of `LogState` promises: the replica and the twin in memory pass the same tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basefs.log.blocks import GOSSIP_BLOCK_DATA, Block, Encoded
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import SUM_MASK, ZERO_HASH, BlockHash, addend, sha224, sum_hash
from basefs.log.interface import AddResult, Digest, LogState
from basefs.replica.replica import Replica
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.states import Role
from tests.support.helpers import BIRTH, ROOT_KEY, STRANGER, genesis, in_blocks, noise
from tests.support.memory import MemoryLog

GENESIS = genesis()
ROOT = GENESIS[0]


class Twin(MemoryLog):
    """In memory, with the keys of the first entries."""

    def __init__(self) -> None:
        super().__init__(ROOT.hash, {ROOT_KEY.fingerprint: ROOT_KEY.public})


class Real:
    """A replica; attributes are its own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.replica = Replica.create(directory, ROOT.hash)

    def __getattr__(self, name: str) -> object:
        return getattr(self.replica, name)


@pytest.fixture(params=["memory", "replica"])
def new_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], LogState]]:
    """Makes logs that have the first entries of one filesystem."""
    numbers = itertools.count()
    replicas: list[Real] = []

    def make() -> LogState:
        log: LogState
        if request.param == "memory":
            log = Twin()
        else:
            replicas.append(Real(tmp_path / str(next(numbers))))
            log = replicas[-1]  # type: ignore[assignment]
        assert not log.add([entry.encode() for entry in GENESIS], ()).rejected
        return log

    yield make
    for each in replicas:
        each.replica.close()


@pytest.fixture
def log(new_log: Callable[[], LogState]) -> LogState:
    return new_log()


def signed(parent: Entry, action: Action, name: bytes, data: bytes = b"", time: int = 1) -> Entry:
    named = in_blocks(data)[0] if data else b""
    return ROOT_KEY.sign(parent.hash, BIRTH + time, action, name, named, Extensions(len(data)))


def content(seed: int, parts: int) -> tuple[bytes, list[Block]]:
    """A content of so many small parts, which do not compress; and its blocks, the list of them first."""
    data = noise(seed, parts * GOSSIP_BLOCK_DATA)
    return data, in_blocks(data)[1]


def lacks(log: LogState) -> list[bytes]:
    """The blocks that are asked for."""
    return [hash for _, hash in log.missing_blocks(99)]


def hash_of(*entries: Entry) -> bytes:
    """The hash of a path at and below which these entries are."""
    return sum_hash(sum(addend(entry.hash) for entry in entries) & SUM_MASK)


def encoded(*items: Entry | Block) -> list[bytes]:
    return [item.encode() if isinstance(item, Entry) else item.data for item in items]


class TestLogState:
    """One class for all implementations."""

    def test_the_identity_is_the_root_entry(self, log: LogState) -> None:
        assert log.identity == ROOT.hash

    def test_an_entry_is_accepted_once_and_found_from_then_on(self, log: LogState) -> None:
        entry = signed(ROOT, Action.MKDIR, b"d")
        assert log.entry(entry.hash) is None
        assert log.add(encoded(entry, entry), ()).accepted == 1
        assert log.add(encoded(entry), ()) == AddResult(0, (), False, ())
        assert log.entry(entry.hash) == entry.encode()
        assert log.digest() == Digest(log.root_hash(), len(GENESIS) + 1)

    def test_a_missing_parent_is_named(self, log: LogState) -> None:
        directory = signed(ROOT, Action.MKDIR, b"d")
        result = log.add(encoded(signed(directory, Action.MKDIR, b"e")), ())
        assert result.accepted == 0 and result.missing_parents == (directory.hash,) and not result.rejected

    @pytest.mark.parametrize("data", [b"", b"rubbish", GENESIS[1].encode() + b"x"])
    def test_rubbish_is_refused_with_a_reason(self, log: LogState, data: bytes) -> None:
        before = log.digest()
        result = log.add([data], [data])
        assert result.accepted == 0 and result.rejected and all(result.rejected)
        assert log.digest() == before

    def test_an_entry_of_another_key_and_a_forged_one_are_not_accepted(self, log: LogState) -> None:
        stranger = STRANGER.sign(ROOT.hash, BIRTH, Action.MKDIR, b"d")
        forged = signed(ROOT, Action.MKDIR, b"e").encode()[:-1] + b"x"
        log.add([stranger.encode(), forged], ())
        assert log.listing((b"d",)) is None and log.listing((b"e",)) is None

    def test_the_hash_of_a_path_is_that_of_the_sum_of_all_that_is_at_it_and_below(self, log: LogState) -> None:
        directory = signed(ROOT, Action.MKDIR, b"d")
        below = [signed(directory, Action.MKDIR, b"a"), signed(directory, Action.MKDIR, b"b")]
        log.add(encoded(directory, *below), ())
        assert log.path_hash((b"d",)) == hash_of(directory, *below)
        assert log.root_hash() == hash_of(directory, *below, *GENESIS)
        listing = log.listing((b"d",))
        assert listing is not None and listing.entries == (directory.hash,)
        assert listing.children == ((b"a", hash_of(below[0])), (b"b", hash_of(below[1])))
        assert log.child_hashes((b"d",), [b"b", b"x"]) == {b"b": hash_of(below[1])}

    def test_of_what_is_not_there_nothing_is_known(self, log: LogState) -> None:
        assert log.listing((b"x",)) is None and log.path_hash((b"x",)) == ZERO_HASH
        assert log.child_hashes((b"x",), [b"y"]) == {} and [*log.walk((b"x",))] == []
        nothing = BlockHash(sha224(b"nothing"))
        assert log.block(nothing) is None and not log.has_block(nothing) and log.missing_blocks(9) == []

    def test_a_write_is_in_the_tree_before_its_content(self, log: LogState) -> None:
        data, blocks = content(1, 3)
        write = signed(ROOT, Action.WRITE, b"f", data)
        result = log.add(encoded(write), ())
        assert result.accepted == 1 and result.lacks_blocks
        listing = log.listing((b"f",))
        assert listing is not None and listing.entries == (write.hash,) and log.path_hash((b"f",)) == hash_of(write)
        assert log.digest().missing == 1 and lacks(log) == [blocks[0].hash]

    @pytest.mark.parametrize("order", list(itertools.permutations(range(1, 4))))
    def test_the_parts_of_a_content_come_in_any_order(self, log: LogState, order: tuple[int, ...]) -> None:
        data, blocks = content(1, 3)
        log.add(encoded(signed(ROOT, Action.WRITE, b"f", data)), encoded(blocks[0]))
        left = [block.hash for block in blocks[1:]]
        assert lacks(log) == left, "in the order of the content"
        for number in order:
            assert log.add((), encoded(blocks[number])).accepted == 1
            left.remove(blocks[number].hash)
            assert lacks(log) == left and log.has_block(blocks[number].hash)
        assert log.digest().missing == 0

    def test_a_part_that_comes_twice_in_a_content_is_asked_for_once_at_the_most(self, log: LogState) -> None:
        data = bytes(4 * GOSSIP_BLOCK_DATA) + b"end"
        _, blocks = in_blocks(data)
        log.add(encoded(signed(ROOT, Action.WRITE, b"f", data)), encoded(blocks[0]))
        assert set(lacks(log)) == {blocks[1].hash, blocks[-1].hash} and len(lacks(log)) == 2
        log.add((), encoded(blocks[1], blocks[-1]))
        assert log.digest().missing == 0

    def test_missing_blocks_are_listed_page_by_page(self, log: LogState) -> None:
        for number in range(3):
            data, blocks = content(number, 5)
            log.add(encoded(signed(ROOT, Action.WRITE, b"f%d" % number, data)), encoded(blocks[0]))
        found: list[bytes] = []
        behind = 0
        while page := log.missing_blocks(4, behind):
            found += [hash for _, hash in page]
            behind = page[-1][0]
        assert found == lacks(log) and len(found) == 15
        assert all(map(log.wants_block, found))
        last = blocks[-1]
        log.add((), encoded(last))
        assert not log.wants_block(last.hash) and not log.wants_block(BlockHash(bytes(28)))

    def test_blocks_may_come_with_their_entries(self, log: LogState) -> None:
        data, blocks = content(1, 3)
        result = log.add(encoded(signed(ROOT, Action.WRITE, b"f", data)), encoded(*blocks))
        assert result.accepted >= 1 and not (result.lacks_blocks or result.rejected)
        assert log.digest().missing == 0

    def test_a_block_that_nothing_names_changes_nothing(self, log: LogState) -> None:
        log.add(encoded(signed(ROOT, Action.WRITE, b"f", content(1, 3)[0])), ())
        before = log.digest(), log.missing_blocks(9)
        result = log.add((), [noise(2, 100)])
        assert result.strays == len(result.rejected) and result.accepted == 0
        assert (log.digest(), log.missing_blocks(9)) == before

    @pytest.mark.parametrize("place", ["list", "part", "last part"])
    def test_a_content_with_a_block_of_another_size_is_never_complete(self, log: LogState, place: str) -> None:
        data, blocks = content(1, 3)
        _, (other, *_) = in_blocks(noise(9, 300))
        names = [block.hash for block in blocks[1:]]
        if place != "list":
            names[1 if place == "part" else 2] = other.hash
        manifest = Block(b"".join(names[: 2 if place == "list" else 3]))
        named = Encoded(manifest.hash, 0, len(data)).encode()
        write = ROOT_KEY.sign(ROOT.hash, BIRTH, Action.WRITE, b"f", named, Extensions(len(data)))
        log.add(encoded(write), ())
        result = log.add((), encoded(manifest))
        result = log.add((), encoded(*blocks[1:], other))
        assert not result.rejected or result.strays == len(result.rejected), "its sender may have it for another one"
        assert not lacks(log), "and it is not asked for again"

    def test_missing_blocks_are_bounded(self, log: LogState) -> None:
        writes = [signed(ROOT, Action.WRITE, b"f%d" % number, noise(number, 100)) for number in range(5)]
        log.add(encoded(*writes), ())
        assert len(log.missing_blocks(9)) == 5 and len(log.missing_blocks(3)) == 3

    def test_a_walk_can_be_accepted_in_its_order_and_sees_a_log_that_grows(
        self, log: LogState, new_log: Callable[[], LogState]
    ) -> None:
        directories = [signed(ROOT, Action.MKDIR, b"d%d" % number) for number in range(3)]
        files = [signed(directories[number % 3], Action.MKDIR, b"f%d" % number) for number in range(20)]
        log.add(encoded(*directories, *files), ())
        walk = log.walk(())
        seen = [next(walk)]
        log.add(encoded(signed(ROOT, Action.MKDIR, b"late")), ())
        seen += walk
        assert {*encoded(*directories, *files)} <= {*seen}
        copy = new_log()
        result = copy.add(seen, ())
        assert not (result.missing_parents or result.rejected)
        assert next(log.walk((b"d0",))) == directories[0].encode()

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
    @given(st.randoms(use_true_random=False))
    def test_the_order_of_arrival_does_not_matter(self, new_log: Callable[[], LogState], rng: object) -> None:
        directories = [signed(ROOT, Action.MKDIR, b"d%d" % number) for number in range(3)]
        contents = [content(number, 2) for number in range(6)]
        writes = [signed(directories[n % 3], Action.WRITE, b"f%d" % n, data) for n, (data, _) in enumerate(contents)]
        logs = new_log(), new_log()
        for log in logs:
            mixed = directories + writes
            rng.shuffle(mixed)  # type: ignore[attr-defined]
            # What a parent is missing for comes again, as a session asks for it.
            for _ in range(3):
                log.add(encoded(*mixed), ())
            rng.shuffle(contents)  # type: ignore[attr-defined]
            for _, blocks in contents:
                log.add((), encoded(*blocks))
        assert logs[0].digest() == logs[1].digest()
        assert logs[0].missing_blocks(9) == []

    def test_two_of_them_are_synchronized(self, log: LogState, new_log: Callable[[], LogState]) -> None:
        data, blocks = content(1, 3)
        log.add(encoded(signed(ROOT, Action.WRITE, b"f", data)), encoded(*blocks))
        other = new_log()
        other.add(encoded(signed(ROOT, Action.MKDIR, b"d")), ())
        cores = SyncProtocol(log, Role.INITIATOR), SyncProtocol(other, Role.RESPONDER)
        while not all(core.closed for core in cores):
            for here, there in (cores, cores[::-1]):
                if data := here.data_to_send(1 << 16):
                    there.receive_data(data)
                write = there.work()
                while write is not None:
                    write = there.work(write())
        assert all(core.result is not None and core.result.equal for core in cores)
        assert log.digest() == other.digest()
