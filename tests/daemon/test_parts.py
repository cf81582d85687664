"""What the event loop of a daemon does again and again."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from basefs.daemon.loop import keep_durable
from basefs.errors import StoreError
from basefs.replica.replica import Applied, Replica
from tests.fs.local import Local
from tests.support.helpers import ROOT_KEY
from tests.support.patience import DEADLINE

#: Looks after which something that happens at every look would have happened.
MANY = 20


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """A filesystem of which everything is on the disk."""
    local = Local.bootstrap(tmp_path / "local")
    local.replica.sync_to_disk()
    yield local
    local.fs.close()
    local.replica.close()


class Watched:
    """A replica that counts the checks for durability, and the syncs."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.looks = self.syncs = 0
        self.failures = 0

    @property
    def is_durable(self) -> bool:
        self.looks += 1
        return self._replica.is_durable

    def sync_to_disk(self) -> None:
        self.syncs += 1
        if self.failures:
            self.failures -= 1
            raise StoreError("the disk is busy")
        self._replica.sync_to_disk()

    async def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end
            await asyncio.sleep(0.001)

    async def many_looks(self) -> None:
        """Until it was looked at many more times."""
        before = self.looks
        await self.until(lambda: self.looks >= before + MANY)


@pytest.fixture
def watched(local: Local) -> Watched:
    return Watched(local.replica)


def run(replica: Any, scenario: Callable[[], Awaitable[None]]) -> None:
    """Play `scenario` while the replica is kept durable, and looked at often."""

    async def play() -> None:
        keeping = asyncio.create_task(keep_durable(replica, 0.001))
        try:
            await scenario()
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping

    asyncio.run(play())


def test_a_node_on_which_nothing_happens_wakes_no_thread(local: Local, watched: Watched) -> None:
    async def scenario() -> None:
        await watched.many_looks()
        assert watched.syncs == 0

    run(watched, scenario)


async def synced_once(local: Local, watched: Watched) -> None:
    """All is made durable, and then nothing more is done for it."""
    await watched.until(lambda: local.replica.is_durable)
    synced = watched.syncs
    assert synced > 0
    await watched.many_looks()
    assert watched.syncs == synced


def test_what_was_published_is_synced_once(local: Local, watched: Watched) -> None:
    async def scenario() -> None:
        local.save("/f", b"x")
        local.publish()
        await synced_once(local, watched)

    run(watched, scenario)


def test_what_came_from_another_node_is_synced_once(local: Local, watched: Watched, tmp_path: Path) -> None:
    copy = tmp_path / "other"
    shutil.copytree(local.replica.directory, copy)
    other = Local(Replica(copy, [ROOT_KEY]))
    sent: list[Applied] = []
    other.replica.subscribe(sent.append)
    other.save("/f", b"x")
    other.publish()
    other.fs.close()
    other.replica.close()

    async def scenario() -> None:
        for applied in sent:
            local.replica.apply(applied.entries, applied.blocks)
        assert local.replica.read((b"f",)) == b"x"
        await synced_once(local, watched)

    run(watched, scenario)


def test_what_is_published_is_synced_once(local: Local, watched: Watched) -> None:
    """A saved file is the disk's until then, as anywhere: nothing is done for it."""

    async def scenario() -> None:
        local.save("/f", b"x")
        assert local.replica.is_durable
        local.publish()
        assert not local.replica.is_durable
        await synced_once(local, watched)

    run(watched, scenario)


@pytest.mark.logs("the disk is busy")
def test_what_could_not_be_synced_is_tried_again(local: Local, watched: Watched) -> None:
    async def scenario() -> None:
        watched.failures = 2
        local.save("/f", b"x")
        local.publish()
        await watched.until(lambda: local.replica.is_durable)
        assert watched.syncs > 2

    run(watched, scenario)
