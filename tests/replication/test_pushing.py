"""What is pushed and what is only told: two replicas with real sessions between them."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from basefs.log.keys import SigningKey
from basefs.replica.replica import Applied, Replica
from basefs.replication.pushing import LOOKED_BYTES, PUSH_BYTES, Pusher
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import SessionContext
from basefs.sync.session.push import QueuedPush
from basefs.sync.wire.limits import INLINE_BLOCKS
from tests.support.flood import flood
from tests.support.helpers import ROOT_KEY, copy_replica, make_replica, noise
from tests.support.patience import DEADLINE
from tests.support.syncing import Syncing

HOST = "127.0.0.1"


class Peer:
    """A replica with its sync service and pusher, as a daemon composes them.

    Attributes:
        gaps: how often a push did not bring all.
    """

    def __init__(self, replica: Replica, peers: list[tuple[str, int]], shared: SessionContext | None = None) -> None:
        self.replica = replica
        self.syncing = Syncing(replica, peers, degree=1, shared=shared)
        self.sync = self.syncing.sync

    @property
    def gaps(self) -> int:
        return self.syncing.gaps

    def _on_applied(self, applied: Applied) -> None:
        self.loop.call_soon_threadsafe(self.pusher.gather, applied)

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.pusher = Pusher(self.replica, self.sync, self.loop)
        self.replica.subscribe(self._on_applied)
        await self.syncing.start()

    def write(self, name: bytes, content: bytes) -> None:
        self.replica.commit(lambda author: author.write((name,), content))


@contextlib.asynccontextmanager
async def connected(
    directory: Path, shared: tuple[SessionContext | None, SessionContext | None] = (None, None)
) -> AsyncIterator[tuple[Peer, Peer]]:
    """Two equal replicas between which a session stands."""
    peers: list[tuple[str, int]] = []
    first = make_replica(directory / "one")
    one = Peer(first, peers, shared[0])
    two = Peer(copy_replica(first, directory / "two"), [], shared[1])
    await one.start()
    await two.start()
    peers.append((HOST, two.sync.port))
    try:
        await until(lambda: bool(one.sync.standing and two.sync.standing))
        yield one, two
    finally:
        for peer in (one, two):
            peer.pusher.stop()
            await peer.syncing.stop()
            peer.replica.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a generous deadline."""

    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(poll(), DEADLINE)


def equal(one: Peer, two: Peer) -> bool:
    return one.replica.root_hash() == two.replica.root_hash()


def test_a_small_change_is_pushed_with_its_content(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(tmp_path) as (one, two):
            one.write(b"file", noise(1, 2000))
            await until(lambda: equal(one, two) and not two.replica.missing_blocks(1))
            assert two.gaps == 0, "nothing had to be fetched"
            assert two.replica.read((b"file",)) == noise(1, 2000)

    asyncio.run(main())


def test_a_large_content_is_told_and_fetched_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(tmp_path) as (one, two):
            one.write(b"large", noise(1, 4 * PUSH_BYTES))
            await until(lambda: equal(one, two) and not two.replica.missing_blocks(1))
            assert two.gaps >= 1
            assert two.replica.read((b"large",)) == noise(1, 4 * PUSH_BYTES)

    asyncio.run(main())


def test_a_content_of_some_kilobytes_is_pushed_after_a_while_of_silence(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(tmp_path) as (one, two):
            one.write(b"file", noise(1, 15 * 480))
            await until(lambda: equal(one, two) and not two.replica.missing_blocks(1))
            assert two.gaps == 0, "nothing had to be fetched"

    asyncio.run(main())


def test_a_burst_goes_on_over_a_link_that_takes_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(tmp_path) as (one, two):
            for number in range(300):
                one.write(b"file%d" % number, noise(number, 300))
                if number % 20 == 0:
                    await asyncio.sleep(0)
            one.replica.commit(lambda author: author.make_directory((b"d",)))
            one.replica.commit(lambda author: author.write((b"d", b"file"), b"last"))
            await until(lambda: equal(one, two))
            assert two.gaps == 0, "nothing had to be compared"
            assert two.replica.read((b"d", b"file")) == b"last"
            assert len(two.replica.live_paths()) == len(one.replica.live_paths())

    asyncio.run(main())


def test_a_burst_of_larger_files_is_looked_at_in_slices(tmp_path: Path) -> None:
    """Nothing else happens in the event loop while their contents are looked up."""

    async def main() -> None:
        async with connected(tmp_path) as (one, two):
            looked: list[int] = []
            push_later = one.sync.neighbours.push_later

            def count(news: Sequence[QueuedPush]) -> None:
                looked.append(sum(each.size for each in news))
                push_later(news)

            one.sync.neighbours.push_later = count  # type: ignore[method-assign]
            contents = [(b"file%d" % number, noise(number, 40_000)) for number in range(20)]
            one.replica.commit(lambda author: [author.write((name,), content) for name, content in contents])
            await until(lambda: equal(one, two) and not two.replica.missing_blocks(1))
            assert sum(looked) > 20 * 30_000
            assert max(looked) < LOOKED_BYTES + INLINE_BLOCKS

    asyncio.run(main())


def test_what_a_burst_left_unsent_is_fetched(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(tmp_path) as (one, two):
            for number in range(40):
                one.write(b"file%d" % number, noise(number, 1000))
            one.write(b"large", noise(1, 2 * INLINE_BLOCKS))
            await until(lambda: equal(one, two) and not two.replica.missing_blocks(1))
            assert two.gaps >= 1
            assert two.replica.read((b"large",)) == noise(1, 2 * INLINE_BLOCKS)

    asyncio.run(main())


def test_what_came_from_a_peer_is_passed_on_to_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(tmp_path) as (one, two):
            three = Peer(copy_replica(one.replica, tmp_path / "three", (ROOT_KEY,)), [(HOST, two.sync.port)])
            await three.start()
            try:
                await until(lambda: bool(three.sync.standing) and len(two.sync.standing) == 2)
                one.write(b"file", b"news")
                await until(lambda: equal(one, three) and not three.replica.missing_blocks(1))
                assert three.replica.read((b"file",)) == b"news"
                three.write(b"back", b"more")
                await until(lambda: equal(one, three))
            finally:
                three.pusher.stop()
                await three.syncing.stop()
                three.replica.close()

    asyncio.run(main())


CHANGES = 60


async def time_of_changes(one: Peer, two: Peer) -> float:
    """Seconds from a write on one replica until the other one shows it: the median of some."""
    taken = []
    for number in range(CHANGES):
        started = time.perf_counter()
        await asyncio.to_thread(one.write, b"file", b"%f %d" % (started, number))
        while not equal(one, two):
            await asyncio.sleep(0.0005)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


@pytest.mark.alone
@pytest.mark.parametrize("says", ["nothing", "hello"])
def test_a_change_takes_hardly_longer_while_strangers_come(tmp_path: Path, says: str) -> None:
    keys = [SigningKey.generate() for _ in range(2)]
    first, second = (SessionContext(credentials=Credentials(key, [each.public for each in keys])) for key in keys)

    async def main() -> None:
        async with connected(tmp_path, (first, second)) as (one, two):
            tasks, ratios = len(asyncio.all_tasks()), list[float]()
            while len(ratios) < 3 and not (ratios and ratios[-1] <= 1.5):
                quiet = await time_of_changes(one, two)
                with flood(two.sync.port, says) as is_there:
                    assert await asyncio.to_thread(is_there) == "full\n"
                    ratios.append(await time_of_changes(one, two) / quiet)
                # Those that are gone are noticed.
                await until(lambda: len(asyncio.all_tasks()) <= tasks + 1)
            assert min(ratios) <= 1.5, ratios

    asyncio.run(main())
