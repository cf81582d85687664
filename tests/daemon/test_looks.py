"""When a task looks at the keys: soon after a change, in a share of the time, and at once after a revoke."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.daemon.looks import SHARE, Looks
from basefs.replica.replica import Replica
from basefs.tasks import within
from tests.support.asynchronous import run
from tests.support.helpers import BOB, CAROL, DAVE, make_replica, path

#: Seconds of a look, and for which a revoke waits.
LOOK = 0.5
SOON = 0.1


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    made = make_replica(tmp_path / "log")
    made.commit(lambda author: author.grant(path("/"), b"bob", BOB.public))
    yield made
    made.close()


def grant(replica: Replica, name: bytes = b"carol", public: bytes = CAROL.public) -> None:
    replica.commit(lambda author: author.grant(path("/"), name, public))


def revoke(replica: Replica) -> None:
    replica.commit(lambda author: author.revoke(path("/"), b"bob", BOB.fingerprint))


async def look(looks: Looks, seconds: float = LOOK) -> None:
    await looks.look(lambda: time.sleep(seconds))


async def waited(looks: Looks, seconds: float | None = None, for_revokes: float = SOON) -> float:
    """The seconds of a wait."""
    began = asyncio.get_running_loop().time()
    await within(60.0, looks.wait(seconds, for_revokes))
    return asyncio.get_running_loop().time() - began


def test_a_change_of_keys_ends_the_wait_and_a_write_does_not(replica: Replica) -> None:
    async def main() -> None:
        looks = Looks(replica)
        waiting = asyncio.ensure_future(looks.wait(None))
        replica.commit(lambda author: author.write(path("/f"), b"text"))
        assert (await asyncio.wait([waiting], timeout=0.2))[1], "nothing has changed"
        grant(replica)
        await within(60.0, waiting)
        assert not looks.is_hurried

    run(main())


def test_a_wait_ends_without_a_change(replica: Replica) -> None:
    run(waited_once(replica))


async def waited_once(replica: Replica) -> None:
    assert await waited(Looks(replica), 0.1) >= 0.1


def test_a_grant_waits_for_the_share(replica: Replica) -> None:
    async def main() -> None:
        looks = Looks(replica)
        await look(looks)
        grant(replica)
        assert await waited(looks) >= LOOK / SHARE * 0.9
        assert not looks.is_hurried

    run(main())


def test_a_revoke_waits_for_no_share_and_puts_nothing_off(replica: Replica) -> None:
    async def main() -> None:
        looks, loop = Looks(replica), asyncio.get_running_loop()
        await look(looks)
        due = loop.time() + LOOK / SHARE - 0.1
        revoke(replica)
        assert await waited(looks) >= SOON
        assert looks.is_hurried and loop.time() < due
        await look(looks, 2.0)
        grant(replica, b"dave", DAVE.public)
        await waited(looks)
        assert not looks.is_hurried
        assert due <= loop.time() < due + 2.0 / SHARE, "the look after the revoke does not count"

    run(main())
