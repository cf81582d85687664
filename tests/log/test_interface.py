"""What every implementation of `LogState` promises: the replica and the twin in memory pass the same tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basefs.log.blocks import Block
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import SUM_MASK, ZERO_HASH, BlockHash, addend, sha224, stalled_hash, sum_hash
from basefs.log.interface import AddResult, LogState
from basefs.replica.replica import Replica
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.states import Role
from tests.support.helpers import BIRTH, ROOT_KEY, STRANGER, genesis, noise
from tests.support.memory import MemoryLog

GENESIS = genesis()
ROOT = GENESIS[0]


class Log(LogState, Protocol):
    """A log whose contents can be told to have stopped arriving."""

    def stop_arriving(self) -> None:
        """No block has come for a while."""


class Twin(MemoryLog):
    """In memory, with the keys of the first entries."""

    def __init__(self) -> None:
        super().__init__(ROOT.hash, {ROOT_KEY.fingerprint: ROOT_KEY.public})

    def stop_arriving(self) -> None:
        self.stall()


class Real:
    """A replica; attributes are its own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.replica = Replica.create(directory, ROOT.hash)

    def __getattr__(self, name: str) -> object:
        return getattr(self.replica, name)

    def stop_arriving(self) -> None:
        self.replica.stall(0.0)


@pytest.fixture(params=["memory", "replica"])
def new_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Log]]:
    """Makes logs that have the first entries of one filesystem."""
    numbers = itertools.count()
    replicas: list[Real] = []

    def make() -> Log:
        log: Log
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
def log(new_log: Callable[[], Log]) -> Log:
    return new_log()


def signed(parent: Entry, action: Action, name: bytes, content: list[Block] | None = None, time: int = 1) -> Entry:
    first = content[0].hash if content else b""
    size = sum(len(block.data) for block in content or [])
    return ROOT_KEY.sign(parent.hash, BIRTH + time, action, name, first, Extensions(size))


def chain(seed: int, count: int) -> list[Block]:
    """A content of so many blocks, which do not compress."""
    blocks: list[Block] = []
    following = BlockHash(ZERO_HASH)
    for number in reversed(range(count)):
        blocks.append(Block(following, noise(seed * 100 + number, 100)))
        following = blocks[-1].hash
    return blocks[::-1]


def hash_of(*entries: Entry) -> bytes:
    """The hash of a path at and below which these entries are."""
    return sum_hash(sum(addend(entry.hash) for entry in entries) & SUM_MASK)


def encoded(*items: Entry | Block) -> list[bytes]:
    return [item.encode() for item in items]


class TestLogState:
    """One class for all implementations."""

    def test_the_identity_is_the_root_entry(self, log: Log) -> None:
        assert log.identity == ROOT.hash

    def test_an_entry_is_accepted_once_and_found_from_then_on(self, log: Log) -> None:
        entry = signed(ROOT, Action.MKDIR, b"d")
        assert log.entry(entry.hash) is None
        assert log.add(encoded(entry, entry), ()).accepted == 1
        assert log.add(encoded(entry), ()) == AddResult(0, (), (), ())
        assert log.entry(entry.hash) == entry.encode()
        assert log.digest() == (log.root_hash(), len(GENESIS) + 1, 0)

    def test_a_missing_parent_is_named(self, log: Log) -> None:
        directory = signed(ROOT, Action.MKDIR, b"d")
        result = log.add(encoded(signed(directory, Action.MKDIR, b"e")), ())
        assert result.accepted == 0 and result.missing_parents == (directory.hash,) and not result.rejected

    @pytest.mark.parametrize("data", [b"", b"rubbish", GENESIS[1].encode() + b"x"])
    def test_rubbish_is_refused_with_a_reason(self, log: Log, data: bytes) -> None:
        before = log.digest()
        result = log.add([data], [data])
        assert result.accepted == 0 and result.rejected and all(result.rejected)
        assert log.digest() == before

    def test_an_entry_of_another_key_and_a_forged_one_are_not_accepted(self, log: Log) -> None:
        stranger = STRANGER.sign(ROOT.hash, BIRTH, Action.MKDIR, b"d")
        forged = signed(ROOT, Action.MKDIR, b"e").encode()[:-1] + b"x"
        log.add([stranger.encode(), forged], ())
        assert log.listing((b"d",)) is None and log.listing((b"e",)) is None

    def test_the_hash_of_a_path_is_that_of_the_sum_of_all_that_is_at_it_and_below(self, log: Log) -> None:
        directory = signed(ROOT, Action.MKDIR, b"d")
        below = [signed(directory, Action.MKDIR, b"a"), signed(directory, Action.MKDIR, b"b")]
        log.add(encoded(directory, *below), ())
        assert log.path_hash((b"d",)) == hash_of(directory, *below)
        assert log.root_hash() == hash_of(directory, *below, *GENESIS)
        listing = log.listing((b"d",))
        assert listing is not None and listing.entries == (directory.hash,)
        assert listing.children == ((b"a", hash_of(below[0])), (b"b", hash_of(below[1])))
        assert log.child_hashes((b"d",), [b"b", b"x"]) == {b"b": hash_of(below[1])}

    def test_of_what_is_not_there_nothing_is_known(self, log: Log) -> None:
        assert log.listing((b"x",)) is None and log.path_hash((b"x",)) == ZERO_HASH
        assert log.child_hashes((b"x",), [b"y"]) == {} and [*log.walk((b"x",))] == []
        nothing = BlockHash(sha224(b"nothing"))
        assert log.block(nothing) is None and log.block_behind(nothing, 1) is None and log.missing_blocks(9) == ()

    def test_a_content_goes_from_receiving_to_stalled_to_complete(self, log: Log) -> None:
        blocks = chain(1, 3)
        write = signed(ROOT, Action.WRITE, b"f", blocks)
        before = log.root_hash()
        assert log.add(encoded(write), ()).missing_blocks == (blocks[0].hash,) == log.missing_blocks(9)
        listing = log.listing((b"f",))
        assert listing is not None and listing.receiving == (write.hash,) and log.root_hash() == before
        assert log.add((), encoded(blocks[0])).missing_blocks == (blocks[1].hash,)
        log.stop_arriving()
        listing = log.listing((b"f",))
        assert listing is not None and listing.stalled == ((write.hash, blocks[0].hash),)
        assert log.path_hash((b"f",)) == sum_hash(addend(stalled_hash(write.hash, blocks[0].hash)))
        assert log.add((), encoded(*blocks[1:])).missing_blocks == () == log.missing_blocks(9)
        listing = log.listing((b"f",))
        assert listing is not None and listing.entries == (write.hash,) and log.path_hash((b"f",)) == hash_of(write)

    def test_blocks_are_found_by_hash_and_by_their_place_in_the_chain(self, log: Log) -> None:
        blocks = chain(1, 5)
        log.add(encoded(signed(ROOT, Action.WRITE, b"f", blocks)), encoded(*blocks[:4]))
        assert [log.block(block.hash) for block in blocks] == [*encoded(*blocks[:4]), None]
        assert log.block_behind(blocks[0].hash, 3) == blocks[3].hash
        assert log.block_behind(blocks[0].hash, 4) is None

    def test_blocks_may_come_with_their_entries(self, log: Log) -> None:
        blocks = chain(1, 3)
        result = log.add(encoded(signed(ROOT, Action.WRITE, b"f", blocks)), encoded(*blocks))
        assert result.accepted >= 1 and not (result.missing_blocks or result.rejected)

    def test_a_block_that_is_no_next_one_changes_nothing(self, log: Log) -> None:
        blocks = chain(1, 3)
        log.add(encoded(signed(ROOT, Action.WRITE, b"f", blocks)), ())
        before = log.digest(), log.missing_blocks(9)
        result = log.add((), encoded(chain(2, 1)[0]))
        assert result.strays == len(result.rejected) and result.accepted == 0
        assert (log.digest(), log.missing_blocks(9)) == before

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
    def test_a_write_is_complete_with_as_much_as_its_size_allows_whatever_came_for_others(
        self, log: Log, new_log: Callable[[], Log], order: tuple[int, int, int]
    ) -> None:
        """Three writes of one chain, which begin at its first, first, and third block."""
        blocks = chain(1, 30)
        sizes = (3000, 1, 1)
        writes = [
            ROOT_KEY.sign(ROOT.hash, BIRTH, Action.WRITE, b"f%d" % n, blocks[2 * (n == 2)].hash, Extensions(size))
            for n, size in enumerate(sizes)
        ]
        for number in order:
            log.add(encoded(writes[number]), ())
        seen: dict[int, int] = {}
        for count, block in enumerate(blocks, 1):
            assert log.awaits(block.hash)
            log.add((), encoded(block))
            for number in range(3):
                listing = log.listing((b"f%d" % number,))
                assert listing is not None
                if listing.entries:
                    seen.setdefault(number, count)
        # 1025 bytes are allowed, which is found with the eleventh block of 100.
        assert seen == {0: 30, 1: 11, 2: 13}
        assert log.missing_blocks(9) == () and not log.awaits(blocks[0].hash)
        late = new_log()
        late.add(encoded(writes[0]), ())
        late.add((), encoded(*blocks))
        late.add(encoded(*writes[1:]), ())
        short = new_log()
        short.add(encoded(writes[1]), ())
        for block in blocks:
            short.add((), encoded(block))
        assert short.block(blocks[11].hash) is None
        short.add(encoded(writes[0], writes[2]), ())
        for block in blocks:
            short.add((), encoded(block))
        assert late.digest() == log.digest() == short.digest()

    def test_missing_blocks_are_bounded(self, log: Log) -> None:
        writes = [signed(ROOT, Action.WRITE, b"f%d" % number, chain(number, 1)) for number in range(5)]
        log.add(encoded(*writes), ())
        assert len(log.missing_blocks(9)) == 5 and len(log.missing_blocks(3)) == 3

    def test_a_walk_can_be_accepted_in_its_order_and_sees_a_log_that_grows(
        self, log: Log, new_log: Callable[[], Log]
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
    def test_the_order_of_arrival_does_not_matter(self, new_log: Callable[[], Log], rng: object) -> None:
        directories = [signed(ROOT, Action.MKDIR, b"d%d" % number) for number in range(3)]
        contents = [chain(number, 2) for number in range(6)]
        writes = [signed(directories[n % 3], Action.WRITE, b"f%d" % n, content) for n, content in enumerate(contents)]
        logs = new_log(), new_log()
        for log in logs:
            mixed = directories + writes
            rng.shuffle(mixed)  # type: ignore[attr-defined]
            # What a parent is missing for comes again, as a session asks for it.
            for _ in range(3):
                log.add(encoded(*mixed), ())
            rng.shuffle(contents)  # type: ignore[attr-defined]
            for content in contents:
                log.add((), encoded(*content))
        assert logs[0].digest() == logs[1].digest()
        assert logs[0].missing_blocks(9) == ()

    def test_two_of_them_are_synchronized(self, log: Log, new_log: Callable[[], Log]) -> None:
        blocks = chain(1, 3)
        log.add(encoded(signed(ROOT, Action.WRITE, b"f", blocks)), encoded(*blocks))
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
